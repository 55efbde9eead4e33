"""A small aligned federation: A has the labels, B the other columns."""

import numpy as np
import pandas as pd
import pytest

import vfsl
from vfsl.align import RowPlan, RowShare


def make_fed(rows=240, seed=0, scheme="plain", unknown=0):
    """Two parties, aligned row by row; labels: two classes ``bad``, numbers ``amount``."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    score = x @ [1.5, -1.0, 1.2, 0.8]
    bad = np.where(rng.random(rows) < 1 / (1 + np.exp(-score)), "yes", "no")
    bad = np.where(np.arange(rows) < unknown, None, bad.astype(object))
    ids = [f"p{place}" for place in range(rows)]
    a = {"id": ids, "income": 3e4 + 8e3 * x[:, 0], "age": 40 + 9 * x[:, 1], "bad": bad}
    b = {"id": ids, "basket": 50 + 9 * x[:, 2], "visits": 20 + 5 * x[:, 3]}
    a["amount"] = 100 + 20 * score + 5 * rng.normal(size=rows)
    fed = vfsl.simulate(
        {"A": pd.DataFrame(a), "B": pd.DataFrame(b)}, labels={"A": "bad"}, scheme=scheme, seed=seed
    )
    every = np.arange(rows)
    fed.plan = RowPlan({party: RowShare(party, "p", every, every[:0]) for party in "AB"})
    return fed


@pytest.fixture
def fed():
    return make_fed()
