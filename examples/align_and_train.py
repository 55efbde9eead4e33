# %% [markdown]
# # Align two tables and train across them
# Party A has the label, party B has other columns. Both tables are halves of a public data set, so
# that the result can be judged. Encryption is on.

# %%
import numpy as np
from sklearn.metrics import roc_auc_score

import vfsl

cut = vfsl.datasets.parties("breast_cancer", rng=np.random.default_rng(0), overlap=0.7, test=0.3)
print({party: table.shape for party, table in cut.tables.items()})

# %% [markdown]
# ## Who is in both?
# Each party learns which of its own rows are common, and nothing about the other rows.

# %%
fed = vfsl.simulate(cut.tables, labels=cut.labels, kinds=cut.kinds, seed=0)
plan = fed.align("A", "B", protocol="ecdh")
print(len(plan.overlap), "rows in common of", len(cut.tables["A"]), "and", len(cut.tables["B"]))

# %% [markdown]
# ## Two models on the common rows

# %%
label = ("A", cut.label)
logistic = vfsl.estimators.LogisticRegression(l2=0.01).fit(fed, label)
trees = vfsl.estimators.XGB(n_estimators=5, max_depth=3).fit(fed, label)

# %% [markdown]
# ## Test rows
# A second federation holds the test rows; the model shares stay where they are.

# %%
unseen = vfsl.simulate(cut.test, labels=cut.labels, kinds=cut.kinds, seed=0)
rows = unseen.align("A", "B", protocol="ecdh")["A"].overlap
truth = cut.test["A"][cut.label].to_numpy()[rows]
for name, model in {"logistic": logistic, "trees": trees}.items():
    print(f"{name}: AUC {roc_auc_score(truth, model.predict_proba(unseen)[:, 1]):.3f}")

# %% [markdown]
# ## What left each party

# %%
ledger = fed.ledger
print(ledger.groupby(["step", "sender", "kind"])["bytes"].sum())
print("\n".join(sorted(set(ledger.loc[ledger["kind"] == "plain", "fact"]))))
