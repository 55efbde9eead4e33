"""make_parties: dependence, balance, missing share and overlap are what was asked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, rankdata
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score

from vfsl.data import Encoder, Kind, PartyTable, Synthetic, make_parties
from vfsl.errors import ConfigError


def make(seed: int = 0, **options: object) -> Synthetic:
    return make_parties(**{"rng": np.random.default_rng(seed), **options})


def normal_scores(frame: pd.DataFrame) -> np.ndarray:
    ranks = np.column_stack([rankdata(frame[name]) for name in frame])
    return norm.ppf((ranks - 0.5) / len(frame))


def explained(made: Synthetic, target: str, given: str) -> float:
    """Mean R² of the target party's numeric columns from the given party's, on held-out people."""
    numeric = {
        party: [name for name in names if made.truth[name].dtype.kind in "if"]
        for party, names in made.columns.items()
    }
    x, y = (normal_scores(made.truth[numeric[party]]) for party in (given, target))
    half = len(x) // 2
    model = LinearRegression().fit(x[:half], y[:half])
    rest = ((y[half:] - model.predict(x[half:])) ** 2).mean(axis=0)
    return float((1 - rest / y[half:].var(axis=0)).mean())


@pytest.mark.parametrize("seed", [0, 1])
def test_dependence_is_about_the_share_explained_and_rises(seed: int):
    asked = [0.0, 0.3, 0.6, 0.9, 1.0]
    found = [explained(make(seed, rows=4000, dependence=share), "B", "A") for share in asked]
    assert abs(found[0]) < 0.02
    assert found[-1] > 0.9
    assert np.all(np.diff(found) > 0)
    np.testing.assert_allclose(found, asked, atol=0.09)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_class_balance(share: float):
    made = make(rows=2000, positives=share)
    assert made.truth[made.label].sum() == round(share * 2000)
    held = made.tables["A"][made.label]
    assert abs(held.mean() - share) < 0.03


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4])
def test_missing_share(share: float):
    made = make(rows=3000, missing=share)
    for party, names in made.columns.items():
        assert abs(made.tables[party][names].isna().to_numpy().mean() - share) < 0.02
    assert not made.truth.isna().any(axis=None)
    assert not made.tables["A"][made.label].isna().any()
    assert not any(table["id"].isna().any() for table in made.tables.values())


@pytest.mark.parametrize("remainders", ["disjoint", "all"])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_overlap(share: float, remainders: str):
    made = make(rows=400, overlap=share, remainders=remainders)
    both = set(made.tables["A"]["id"]) & set(made.tables["B"]["id"])
    assert len(both) == len(made.overlap) == round(share * 400)
    sizes = {len(table) for table in made.tables.values()}
    assert sizes == ({400} if remainders == "all" else {round(400 * (1 + share) / 2)})


def test_observed_cells_are_the_truth():
    made = make(rows=300)
    for party, names in made.columns.items():
        table = made.tables[party]
        true = made.truth.iloc[made.rows[party][table["id"]]].reset_index(drop=True)
        for name in names:
            seen = table[name].notna()
            assert table[name][seen].tolist() == true[name][seen].tolist()


def test_the_label_needs_all_parties():
    made = make(rows=4000, dependence=0.3)

    def auc(*parties: str) -> float:
        names = [name for party in parties for name in made.columns[party]]
        frame = made.truth[["id", *names]]
        x = Encoder().fit_transform(PartyTable.from_frame(frame, party="P", id="id")).matrix
        y = made.truth[made.label].to_numpy()
        model = LogisticRegression(max_iter=2000).fit(x[:2000], y[:2000])
        return float(roc_auc_score(y[2000:], model.decision_function(x[2000:])))

    assert auc("A", "B") > max(auc("A"), auc("B")) + 0.05
    assert min(auc("A"), auc("B")) > 0.6


def test_kinds_are_mixed_and_realistic():
    made = make(rows=2000, missing=0.0)
    truth = made.truth
    assert truth["age"].dtype == np.int64
    assert truth["age"].between(18, 95).all()
    assert truth["card_use"].between(0, 1).all()
    assert truth["income"].skew() > 1
    assert truth["owns_home"].dtype == bool
    assert set(truth["region"]) == {"centre", "east", "north", "south", "west"}
    table = PartyTable.from_frame(made.tables["A"], party="A", id="id", label=made.label)
    kinds = list(table.kinds.values())
    assert (kinds.count(Kind.NUMERIC), kinds.count(Kind.CATEGORICAL)) == (6, 3)


def test_gaps_keep_whole_numbers_and_truth_values():
    table = make(rows=500, missing=0.2).tables["A"]
    assert str(table["age"].dtype) == "Int64"
    assert str(table["owns_home"].dtype) == "boolean"


def test_column_counts_are_as_asked():
    made = make(rows=50, numeric=14, categorical=4)
    assert [len(names) for names in made.columns.values()] == [18, 18]
    assert len({name for names in made.columns.values() for name in names}) == 36
    assert [len(names) for names in make(rows=50, numeric=1, categorical=0).columns.values()] == [
        1,
        1,
    ]


def test_three_parties_for_positive_unlabelled_learning():
    made = make(rows=1000, parties=3, known_positives=0.4, positives=0.3)
    assert list(made.tables) == ["A", "B", "C"]
    assert list(made.tables["A"].columns) == ["id"]
    assert len(made.tables["A"]) == 120
    positive = set(made.truth["id"][made.truth[made.label] == 1])
    assert set(made.tables["A"]["id"]) <= positive
    assert all(made.label not in table for table in made.tables.values())
    assert len(set(made.tables["B"]["id"]) & set(made.tables["C"]["id"])) == 500
    linked = set(made.tables["A"]["id"]) & set(made.tables["B"]["id"]) & set(made.tables["C"]["id"])
    assert 30 <= len(linked) <= 90
    assert made.truth["id"].iloc[made.rows["A"]].tolist() == made.tables["A"]["id"].tolist()


def test_three_parties_with_a_label_column():
    made = make(rows=300, parties=3, label_as="column")
    assert list(made.columns) == ["A", "B", "C"]
    assert made.label in made.tables["A"]
    assert "blood_pressure" in made.tables["C"]


def test_some_labels_may_be_unknown():
    made = make(rows=2000, labelled=0.3)
    share = made.tables["A"][made.label].notna().mean()
    assert abs(share - 0.3) < 0.04
    assert not made.truth[made.label].isna().any()


def test_the_same_seed_gives_the_same_tables():
    for parties in (2, 3):
        first, second = make(7, parties=parties), make(7, parties=parties)
        other = make(8, parties=parties)
        pd.testing.assert_frame_equal(first.truth, second.truth)
        for party, table in first.tables.items():
            pd.testing.assert_frame_equal(table, second.tables[party])
            assert not table.equals(other.tables[party])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rows": 5}, "rows parameter .* at least 10. Got 5"),
        ({"parties": 4}, "parties parameter .* must be 2 or 3. Got 4"),
        ({"dependence": -0.1}, "dependence parameter"),
        ({"positives": 2}, "positives parameter"),
        ({"numeric": 0}, "numeric parameter"),
        ({"rng": None}, "rng parameter .* Got NoneType"),
        ({"label_as": "positives"}, "must be 'column' with two parties"),
        ({"label_as": "row"}, "label_as parameter"),
    ],
)
def test_wrong_parameters_are_refused(options: dict[str, object], says: str):
    with pytest.raises(ConfigError, match=says):
        make(**options)
