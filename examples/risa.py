# %% [markdown]
# # Learn from every row
# RISA trains on the common rows and on those that only one party has. It needs PyTorch. Its
# gradients reveal to the other parties the labels of the rows they train on: read docs/risa.md.

# %%
import numpy as np
from sklearn.metrics import roc_auc_score

import vfsl

cut = vfsl.datasets.parties("breast_cancer", rng=np.random.default_rng(0), overlap=0.2, test=0.4)
fed = vfsl.simulate(cut.tables, labels=cut.labels, kinds=cut.kinds, seed=0)
plan = fed.align("A", "B", protocol="ecdh")
print(
    len(plan.overlap),
    "common rows,",
    len(plan["A"].rest),
    "of A's own,",
    len(plan["B"].rest),
    "of B's",
)

# %%
risa = vfsl.RISA(epochs=20, self_steps=100).fit(fed, label=("A", cut.label))
print("trust:", risa.trust_)
print(risa.n_pseudo_, "rows got a pseudo label;", len(risa.removed_), "left")

# %% [markdown]
# ## Test rows: both parties, and A alone

# %%
unseen = vfsl.simulate(cut.test, labels=cut.labels, kinds=cut.kinds, seed=0)
rows = unseen.align("A", "B", protocol="ecdh")["A"].overlap
truth = cut.test["A"][cut.label].to_numpy()[rows]
print(f"both: AUC {roc_auc_score(truth, risa.predict_proba(unseen)[:, 1]):.3f}")
alone = risa.predict_proba(unseen, offline=["B"])
print(f"A alone: AUC {roc_auc_score(truth, alone[:, 1]):.3f}")

# %% [markdown]
# ## Does uncertainty mean something?
# A fused opinion is uncertain if there is little evidence, or if the parties disagree.

# %%
doubt = risa.uncertainty(unseen)
right = risa.classes_[risa.predict_proba(unseen).argmax(axis=1)] == truth
sure = doubt <= np.median(doubt)
print(f"right in the surer half: {right[sure].mean():.3f}, in the other: {right[~sure].mean():.3f}")
print("\n".join(sorted(set(fed.ledger.loc[fed.ledger["kind"] == "plain", "fact"]))))
