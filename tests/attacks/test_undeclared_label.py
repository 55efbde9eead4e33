"""A label among the features shows in completed columns; a declared or asked-for one does not.

The attacker is the missing party: it has a column that goes with the other's label on common rows,
receives that column completed for rows that it does not know, and ranks them by it.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import vfsl
from vfsl.errors import ConfigError


def two_tables(rows=900, seed=0):
    """A: columns that say nothing of its label; B: a column that follows it."""
    rng = np.random.default_rng(seed)
    churn = rng.random(rows) < 0.4
    ids = [f"p{i}" for i in range(rows)]
    a = pd.DataFrame({"id": ids, "a0": rng.normal(size=rows), "a1": rng.normal(size=rows)})
    a["churn"] = churn.astype(int)
    b = pd.DataFrame({"id": ids, "b0": 2.0 * churn + rng.normal(size=rows)})
    b["b1"] = a["a0"] + 0.3 * rng.normal(size=rows)
    return a, b.iloc[: rows // 2]


def attack(labels):
    """How well B ranks A's label, for rows that only A has, by what B received."""
    a, b = two_tables()
    fed = vfsl.simulate({"A": a, "B": b}, labels=labels, scheme="plain", seed=1)
    fed.align("A", "B", protocol="ecdh")
    done = vfsl.FedPSG(rounds=2, low="direct").fit_complete(fed, given="A", missing="B")
    truth = a.set_index("id")["churn"].loc[done.table.index]
    return max(roc_auc_score(truth, done.table[name]) for name in ("b0", "b1"))


def test_a_declared_label_stays_at_home():
    assert attack({"A": "churn"}) < 0.58  # four standard errors of 450 rows at chance are 0.11


def test_the_attack_works_where_the_door_is_open():
    assert attack({"A": None}) > 0.95


def test_an_undeclared_label_is_asked_about_before_anything_is_sent():
    a, b = two_tables()
    fed = vfsl.simulate({"A": a, "B": b}, scheme="plain", seed=1)
    with pytest.raises(ConfigError, match="'churn' of A looks like a label"):
        vfsl.FedPSG().fit_complete(fed, given="A", missing="B")
    assert not fed.steps
