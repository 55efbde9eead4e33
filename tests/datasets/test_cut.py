"""Public sets as the tables of parties: what the user asks for is what the tables have."""

import doctest

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vfsl
from vfsl import datasets
from vfsl.data import Kind
from vfsl.datasets import Dataset, Images
from vfsl.errors import ConfigError

IRIS = datasets.load("iris")


def cut(name="breast_cancer", *, seed=0, **how):
    return datasets.parties(name, rng=np.random.default_rng(seed), **how)


def test_two_parties_share_what_was_asked_for():
    made = cut(overlap=0.4)
    a, b = made.tables["A"], made.tables["B"]
    assert len(set(a["id"]) & set(b["id"])) == round(0.4 * 569) == len(made.overlap)
    assert len(set(a["id"]) | set(b["id"])) == 569
    assert made.labels == {"A": "target", "B": None}
    assert "target" not in b.columns
    assert sorted([*made.columns["A"], *made.columns["B"], "target", "id"]) == sorted(made.truth)


def test_rows_lead_to_the_truth():
    made = cut("wine", overlap=0.5)
    for party, table in made.tables.items():
        true = made.truth.iloc[made.rows[party].loc[table["id"]]]
        for name in made.columns[party]:
            np.testing.assert_array_equal(table[name].to_numpy(), true[name].to_numpy())


def test_the_same_rng_gives_the_same_tables():
    first, second = cut(missing=0.1, test=0.2), cut(missing=0.1, test=0.2)
    other = cut(missing=0.1, test=0.2, seed=1)
    for party in "AB":
        pd.testing.assert_frame_equal(first.tables[party], second.tables[party])
        pd.testing.assert_frame_equal(first.test[party], second.test[party])
        assert not first.tables[party].equals(other.tables[party])


SHARE = st.floats(0, 1)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(10, 150),
    overlap=SHARE,
    test=st.floats(0, 0.8),
    shares=st.fixed_dictionaries({"labelled": SHARE, "missing": SHARE, "blocks": SHARE}),
    remainders=st.sampled_from(["disjoint", "all"]),
)
def test_whatever_is_asked_for_the_tables_are_sound(seed, rows, overlap, test, shares, remainders):
    made = cut(
        IRIS, seed=seed, rows=rows, overlap=overlap, test=test, remainders=remainders, **shares
    )
    apart = round(test * rows)
    ids = {party: set(table["id"]) for party, table in made.tables.items()}
    assert [len(ids[party]) for party in "AB"] == [len(t) for t in made.tables.values()]
    assert len(ids["A"] & ids["B"]) == len(made.overlap) == round(overlap * (rows - apart))
    assert len(made.truth) == rows
    assert sum(len(table) for table in made.test.values()) == 2 * apart
    for party, table in made.tables.items():
        true = made.truth.iloc[made.rows[party].loc[table["id"]]]
        for name in made.columns[party]:
            same = table[name].isna().to_numpy() | (table[name].to_numpy() == true[name].to_numpy())
            assert same.all()
            assert not len(table) or table[name].notna().any()


def test_test_rows_are_apart_and_complete():
    made = cut(test=0.25, missing=0.3, labelled=0.1)
    ids = set(made.test["A"]["id"])
    assert len(ids) == round(0.25 * 569)
    assert ids == set(made.test["B"]["id"])
    assert not ids & (set(made.tables["A"]["id"]) | set(made.tables["B"]["id"]))
    assert not made.test["A"].isna().any(axis=None)
    assert list(made.test["A"].columns) == list(made.tables["A"].columns)


def test_labels_cells_and_blocks_go_missing():
    made = cut(labelled=0.2, missing=0.1, blocks=0.5, remainders="all")
    table, names = made.tables["B"], made.columns["B"]
    assert len(table) == 569
    assert made.tables["A"]["target"].notna().mean() == pytest.approx(0.2, abs=0.06)
    first, second = names[:8], names[8:]
    assert table[first].isna().mean().mean() == pytest.approx(0.1, abs=0.03)
    assert table[second].isna().mean().mean() == pytest.approx(0.55, abs=0.05)
    # A block goes as a whole: in about half of the rows nothing of it is left.
    assert table[second].isna().all(axis=1).mean() == pytest.approx(0.45, abs=0.08)


def test_positives_instead_of_labels():
    made = cut(known_positives=0.5, overlap=0.8)
    assert list(made.tables) == ["A", "B", "C"]
    assert list(made.tables["A"]) == ["id"]
    assert set(made.labels.values()) == {None}
    assert all("target" not in table for table in made.tables.values())
    rare = made.truth["target"].value_counts().index[-1]
    known = made.truth.set_index("id").loc[made.tables["A"]["id"], "target"]
    assert (known == rare).all()
    assert len(known) == round(0.5 * (made.truth["target"] == rare).sum())


def test_one_of_several_classes_as_the_positive_one():
    made = cut("wine", known_positives=1.0, positive=2)
    known = made.truth.set_index("id").loc[made.tables["A"]["id"], "target"]
    assert set(known) == {2}
    with pytest.raises(ConfigError, match="must name a class of 'wine', which has 3"):
        cut("wine", known_positives=1.0)
    with pytest.raises(ConfigError, match=r"must be a class of 'wine'. Got 7 instead"):
        cut("wine", known_positives=1.0, positive=7)


def test_columns_as_the_user_deals_them():
    made = cut("iris", columns={"A": ["petal width (cm)"], "B": [], "C": ["sepal width (cm)"]})
    assert list(made.tables["A"]) == ["id", "petal width (cm)", "target"]
    assert list(made.tables["B"]) == ["id"]
    assert list(made.tables["C"]) == ["id", "sepal width (cm)"]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"columns": {"B": [], "C": []}}, "must name A, who holds the label. Got B, C instead"),
        ({"columns": {"A": ["target"], "B": []}}, "gives 'target' to A, which is the label"),
        ({"columns": {"A": ["x"], "B": []}}, "gives 'x' to A, which is not a column"),
        (
            {"columns": {"A": [], "B": []}, "known_positives": 0.5, "positive": 1},
            "must not name A, who holds ids",
        ),
        ({"rows": 9999}, "at most the 150 rows of 'iris'. Got 9,999 instead"),
        ({"rows": 3}, "rows parameter of parties must be a whole number of at least 10"),
        ({"overlap": 1.5}, "overlap parameter of parties must be a number from 0 to 1"),
        ({"test": 1.0}, "must leave two rows to learn from"),
        ({"remainders": "some"}, "remainders parameter of parties must be one of"),
    ],
)
def test_mistakes_are_one_sentence(how, sentence):
    with pytest.raises(ConfigError, match=sentence):
        cut("iris", **how)


def test_pictures_are_cut_in_the_middle_in_the_order_that_a_cnn_reads():
    pixels = np.arange(12 * 2 * 4 * 3, dtype=np.uint8).reshape(12, 2, 4, 3)
    images = Images(pixels.shape, lambda: lambda rows: pixels[rows])
    frame = pd.DataFrame({"label": np.arange(12) % 2})
    kinds = {"label": Kind.LABEL}
    made = cut(Dataset("tiny", frame, "label", "binary", kinds, "here", images=images), overlap=1.0)
    table = made.tables["B"]
    row = made.rows["B"].loc[table["id"].iloc[0]]
    true = made.truth.iloc[row]
    original = np.flatnonzero(
        (
            pixels[:, :, 2:].transpose(0, 3, 1, 2).reshape(12, -1)
            == table.iloc[0, 1:].to_numpy(float)
        ).all(axis=1)
    )
    assert len(original) == 1
    assert true["label"] == original[0] % 2
    assert [len(names) for names in made.columns.values()] == [12, 12]


def test_a_set_that_was_published_in_halves_stays_so():
    from vfsl.data import PartyTable

    guest = pd.DataFrame({"id": list("abcd") * 3, "x0": range(12), "y": [0, 1] * 6})
    guest["id"] = [f"{n}" for n in range(12)]
    host = pd.DataFrame({"id": guest["id"], "x0": range(12), "x1": range(12)})
    sides = {
        "guest": PartyTable.from_frame(guest, party="guest", id="id", label="y"),
        "host": PartyTable.from_frame(host, party="host", id="id"),
    }
    frame = pd.DataFrame(
        {"guest_x0": range(12), "host_x0": range(12), "x1": range(12), "y": [0, 1] * 6}
    )
    kinds = dict.fromkeys(["guest_x0", "host_x0", "x1"], Kind.NUMERIC) | {"y": Kind.LABEL}
    made = cut(Dataset("twice", frame, "y", "binary", kinds, "here", tables=sides))
    assert made.columns == {"A": ["guest_x0"], "B": ["host_x0", "x1"]}


def test_the_tables_federate():
    made = cut(rows=200, overlap=0.6, test=0.2, missing=0.05)
    how = {"labels": made.labels, "kinds": made.kinds, "scheme": "plain"}
    fed = vfsl.simulate(made.tables, **how)
    plan = fed.align(protocol="ecdh")
    assert len(plan.overlap) == len(made.overlap)
    model = vfsl.estimators.XGB(n_estimators=3, max_depth=2).fit(fed, ("A", made.label))
    unseen = vfsl.simulate(made.test, **how)
    unseen.align(protocol="ecdh")
    assert model.predict_proba(unseen).shape == (40, 2)


@pytest.mark.data
@pytest.mark.parametrize("name", ["fate-breast", "credit", "criteo", "mnist"])
def test_real_sets_are_cut(name):
    if name not in datasets.available():
        pytest.skip(f"the files of {name} are not here")
    made = cut(name, rows=300, overlap=0.5)
    fed = vfsl.simulate(made.tables, labels=made.labels, kinds=made.kinds)
    assert fed.tables["A"].labels == [made.label]
    assert [len(table.features) for table in fed.tables.values()] == [
        len(names) for names in made.columns.values()
    ]


def test_the_examples_in_docstrings_run():
    from vfsl.datasets import cut as module

    assert doctest.testmod(module).failed == 0
