"""What becomes of missing cells: in the encoder, in a table, in models, simulations and jobs."""

import numpy as np
import pandas as pd
import pytest

import vfsl
from vfsl.data import Encoder, PartyTable
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import LogisticRegression
from vfsl.job.run import read_tables
from vfsl.job.schema import check


def table(party="A"):
    frame = pd.DataFrame(
        {
            "id": list("abcdef"),
            "x": [1.0, 3.0, np.nan, 5.0, 7.0, 4.0],
            "c": ["u", "u", "v", None, "u", "v"],
        }
    )
    return PartyTable.from_frame(frame, party=party, id="id")


@pytest.mark.parametrize(
    ("missing", "number", "category"),
    [("impute", 4.0, [1.0, 0.0]), ("mean", 4.0, [0.6, 0.4]), ("zero", 0.0, [0.0, 0.0])],
)
def test_the_encoder_fills_cells(missing, number, category):
    encoder = Encoder(missing=missing).fit(table())
    made = encoder.transform(table()).matrix
    code = encoder.codes_[0]
    assert made[2, 0] * code.deviation + code.mean == pytest.approx(number)
    assert made[3, 1:].tolist() == pytest.approx(category)
    assert made[0, 1:].tolist() == [1.0, 0.0]
    if missing == "zero":  # zeros count in the statistics, so that none lies far away
        assert made[:, 0].mean() == pytest.approx(0.0, abs=1e-12)
    again = Encoder.from_dict(encoder.to_dict()).transform(table()).matrix
    np.testing.assert_array_equal(again, made)


def test_rows_are_dropped_before_anybody_hears_of_them():
    made = table().treat_missing("drop")
    assert made.ids.tolist() == ["a", "b", "e", "f"]
    assert "2 rows dropped for missing cells" in made.notes[-1].text
    assert made.treat_missing("drop") is made
    with pytest.raises(ConfigError, match="'drop'"):
        table().treat_missing("forget")
    with pytest.raises(DataError, match="leaves none"):
        table().take(np.array([2, 3])).treat_missing("drop")


def frames():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 200, 2))
    label = (a[:, 0] + b[:, 0] + rng.normal(size=200) > 0).astype(int)
    ids = [f"p{n}" for n in range(200)]
    own = pd.DataFrame({"id": ids, "a0": a[:, 0], "a1": a[:, 1], "y": label})
    other = pd.DataFrame({"id": ids, "b0": b[:, 0] + 5, "b1": b[:, 1]})
    other.loc[rng.choice(200, 40, replace=False), "b0"] = np.nan
    return own, other


def fit(missing=None):
    own, other = frames()
    fed = vfsl.simulate({"A": own, "B": other}, labels={"A": "y"}, missing=missing, scheme="plain")
    fed.align("A", "B", protocol="ecdh")
    return LogisticRegression().fit(fed, ("A", "y")), fed


def test_a_simulation_says_what_becomes_of_missing_cells():
    assert len(fit()[1].plan.overlap) == 200
    assert len(fit(missing="drop")[1].plan.overlap) == 160
    assert len(fit(missing={"B": "drop"})[1].plan.overlap) == 160
    zero, _ = fit(missing={"B": "zero"})
    assert zero.shares_["B"].state["encoder"]["missing"] == "zero"
    assert zero.shares_["A"].state["encoder"]["missing"] == "impute"
    with pytest.raises(ConfigError, match="missing"):
        fit(missing="forget")
    with pytest.raises(ConfigError, match="The missing parameter names"):
        fit(missing={"Q": "zero"})


def test_an_estimator_says_it_for_all_parties():
    own, other = frames()
    fed = vfsl.simulate({"A": own, "B": other}, labels={"A": "y"}, missing="mean", scheme="plain")
    fed.align("A", "B", protocol="ecdh")
    model = LogisticRegression(missing="zero").fit(fed, ("A", "y"))
    assert {share.state["encoder"]["missing"] for share in model.shares_.values()} == {"zero"}
    assert model.predict_proba(fed).shape == (200, 2)
    with pytest.raises(ConfigError, match="The missing parameter of LogisticRegression"):
        LogisticRegression(missing="drop").fit(fed, ("A", "y"))


def test_a_job_says_it_by_party(tmp_path):
    own, other = frames()
    own.to_csv(tmp_path / "a.csv", index=False)
    other.to_csv(tmp_path / "b.csv", index=False)
    job = check(
        {
            "parties": {
                "A": {"table": "a.csv", "id": "id", "label": "y", "missing": "zero"},
                "B": {"table": "b.csv", "id": "id", "missing": "drop"},
            },
            "steps": [
                {"do": "align"},
                {"do": "train", "model": "logistic", "label": ["A", "y"], "missing": "mean"},
            ],
        }
    )
    tables, _ = read_tables(job, tmp_path)
    assert (len(tables["A"]), tables["A"].missing) == (200, "zero")
    assert len(tables["B"]) == 160
    assert job.steps[1].estimator().missing == "mean"
