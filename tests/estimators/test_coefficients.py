"""Coefficients in units of each owner's table, against scikit-learn's on pooled rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression as Pooled

import vfsl
from vfsl.align import RowPlan, RowShare
from vfsl.errors import ConfigError
from vfsl.estimators import GBDT, LinearRegression, LogisticRegression
from vfsl.estimators.coefficients import INTERCEPT, read_coefficients


@pytest.fixture(scope="module")
def fed():
    rng = np.random.default_rng(3)
    ids = [f"p{place}" for place in range(300)]
    x = rng.normal(size=(300, 3)) * [8e3, 9, 5] + [3e4, 40, 20]
    town = rng.choice(["here", "there"], 300)
    amount = x @ [0.01, -2, 3] + 7 * (town == "there") + rng.normal(size=300)
    score = (x - x.mean(axis=0)) @ [2e-4, 0.05, -0.2]
    bad = np.where(rng.random(300) < 1 / (1 + np.exp(-score)), "yes", "no")
    a = {"id": ids, "income": x[:, 0], "age": x[:, 1], "amount": amount, "bad": bad}
    b = {"id": ids, "visits": x[:, 2], "town": town}
    tables = {"A": pd.DataFrame(a), "B": pd.DataFrame(b)}
    made = vfsl.simulate(tables, labels={"A": "bad"}, scheme="plain")
    every = np.arange(300)
    made.plan = RowPlan({party: RowShare(party, "p", every, every[:0]) for party in "AB"})
    return made


def test_numbers_have_the_pooled_coefficients_in_units(fed):
    model = LinearRegression(weights="own").fit(fed, ("A", "amount"))
    a, b = (fed.tables[party].to_frame() for party in "AB")
    x = np.column_stack([a["income"], a["age"], b["visits"], b["town"] == "there"])
    pooled = Pooled().fit(x, a["amount"])
    found = {party: one["coefficient"] for party, one in model.coef_.items()}
    ours = [found["A"]["income"], found["A"]["age"], found["B"]["visits"]]
    assert ours == pytest.approx(pooled.coef_[:3], rel=1e-3)
    step = found["B"]["town=there"] - found["B"]["town=here"]
    assert step == pytest.approx(pooled.coef_[3], rel=1e-2)
    assert found["A"][INTERCEPT] == pytest.approx(a["amount"].mean(), rel=1e-3)
    # B alone does not know the label's deviation: its own file is in deviations.
    alone = read_coefficients(model.shares_["B"])["coefficient"]
    assert alone["visits"] * a["amount"].std(ddof=0) == pytest.approx(found["B"]["visits"])


def test_classes_have_log_odds_per_unit(fed):
    model = LogisticRegression(weights="own", label_noise=0.0).fit(fed, ("A", "bad"))
    before = model.decision_function(fed)[:, 0]
    b, weight = fed.tables["B"].to_frame(), model.coef_["B"]["coefficient"]
    b["visits"] += 1
    b["id"] = fed.tables["B"].ids
    moved = vfsl.simulate({"A": fed.tables["A"], "B": b}, scheme="plain")
    moved.plan = fed.plan
    after = model.decision_function(moved)[:, 0]
    assert after - before == pytest.approx(np.full(300, weight["visits"]), abs=1e-3)


def test_shared_weights_are_nobodys_and_trees_have_importances(fed):
    model = LogisticRegression().fit(fed, ("A", "bad"))
    with pytest.raises(ConfigError, match="fit the model with weights='own'"):
        model.coef_  # noqa: B018
    told, table = model.tell_columns(model.shares_["B"])
    assert "nobody has coefficients" in told
    assert table is None
    trees = GBDT(n_estimators=3).fit(fed, ("A", "bad"))
    told, table = trees.tell_columns(trees.shares_["B"])
    assert told == "importances"
    assert table["importance"].to_dict() == pytest.approx(trees.importances("B").to_dict())
    assert sum(trees.rate_parties(trees.held_share).values()) == pytest.approx(1)
