# %% [markdown]
# # Complete the columns that the other party lacks
# A has many people, and B knows few of them. FedPSG completes B's columns for A's remaining rows
# and says for each column whether the result is useful.

# %%
import numpy as np
import pandas as pd

import vfsl
from vfsl.estimators import XGB

made = vfsl.datasets.make_parties(
    rows=800, overlap=0.3, dependence=0.7, rng=np.random.default_rng(0)
)
fed = vfsl.simulate(made.tables, labels={"A": made.label}, scheme="plain", seed=0)
plan = fed.align("A", "B", protocol="ecdh")
print(len(plan.overlap), "common rows;", len(plan["A"].rest), "rows that only A has")

# %% [markdown]
# ## Complete
# `skill` is the fraction of the mean's squared error that a model removes, on held-out common rows.

# %%
done = vfsl.FedPSG().fit_complete(fed, given="A", missing="B")
print(done.quality[["model", "skill", "coverage", "verdict"]])
print(done.provenance["member"].head())  # each cell: route, model, round, confidence

# %% [markdown]
# ## Compare with the truth, which only an experimenter has

# %%
rows = made.rows["A"].loc[done.table.index]
for name in done.table.select_dtypes("number"):
    true = made.truth[name].iloc[rows].to_numpy(float)
    made_up = pd.to_numeric(done.table[name]).to_numpy(float)
    error = np.mean((made_up - true) ** 2) / np.var(true)
    expected = done.quality.loc[name, "skill"]
    print(f"{name}: removes {1 - error:.2f} of the variance; expected {expected:.2f}")

# %% [markdown]
# ## Is it worth it?
# Every strategy for using the rows is scored on common rows that its model was not trained on.

# %%
advice = done.recommend(base=XGB(n_estimators=5, max_depth=2))
print(advice.text)
print(advice.table)
