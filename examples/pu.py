# %% [markdown]
# # Who else is positive?
# A knows some positives and has nothing else. B and C have columns about many people. VFPU ranks
# the unlabelled rows. The truth is known here, so that the ranking can be judged; VFPU never sees
# it.

# %%
import numpy as np
from sklearn.metrics import roc_auc_score

import vfsl

cut = vfsl.datasets.parties(
    "breast_cancer", rng=np.random.default_rng(0), overlap=0.95, known_positives=0.4
)
print({party: table.shape for party, table in cut.tables.items()})

# %% [markdown]
# ## Align B and C, then mark the rows that A knows
# C asks A about the common rows only. A learns how many there are, and nothing else.

# %%
fed = vfsl.simulate(cut.tables, kinds=cut.kinds, scheme="plain", seed=0)
fed.align("B", "C", protocol="ecdh")
plan = fed.mark(positives="A", label_holder="C", protocol="ecdh")
print(int((plan["C"].marks == 1).sum()), "of", len(plan.overlap), "common rows are known to A")

# %% [markdown]
# ## Rank the unlabelled rows

# %%
pu = vfsl.VFPU(base="lr", rounds=20).fit(fed, positives="A", label_holder="C")
print("stopped:", pu.stop_reason_)
print(f"prior: {pu.prior_.low:.2f} to {pu.prior_.high:.2f}")
for warning in pu.warnings_:
    print("warning:", warning)

# %% [markdown]
# ## How good is it?

# %%
rare = cut.truth[cut.label].value_counts().index[-1]
truth = cut.truth.iloc[cut.rows["C"].loc[pu.scores_.index]][cut.label].to_numpy() == rare
print(f"true share of positives among the unlabelled: {truth.mean():.2f}")
print(f"AUC of the ranking: {roc_auc_score(truth, pu.scores_):.3f}")
found = np.isin(pu.scores_.index, pu.reliable_positives_.index)
print(f"{found.sum()} reliable positives, {truth[found].mean():.2f} of them right")
