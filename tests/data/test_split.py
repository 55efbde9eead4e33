"""split_vertically: overlap, truth and privacy of the row order are as asked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.data import Split, halves, split_vertically
from vfsl.errors import InputError

COLUMNS = {"A": ["a", "b"], "B": ["c"], "C": ["d"]}


def pooled(rows: int = 100, ids: bool = True) -> pd.DataFrame:
    frame = pd.DataFrame({name: np.arange(rows) * 10 + place for place, name in enumerate("abcd")})
    if ids:
        frame.insert(0, "id", [f"p{row:04}" for row in range(rows)])
    return frame


def split(frame: pd.DataFrame, **options: object) -> Split:
    given_options = {"id": "id", "rng": np.random.default_rng(0), **options}
    return split_vertically(frame, given_options.pop("columns", COLUMNS), **given_options)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 60),
    overlap=st.floats(0, 1),
    parties=st.integers(2, 4),
    remainders=st.sampled_from(["all", "disjoint"]),
    ids=st.booleans(),
)
def test_every_row_is_where_it_should_be(
    rows: int, overlap: float, parties: int, remainders: str, ids: bool
):
    frame = pooled(rows, ids)
    columns = {name.upper(): [name] for name in "abcd"[:parties]}
    dealt = split(frame, columns=columns, overlap=overlap, remainders=remainders)
    shared = set.intersection(*(set(table["id"]) for table in dealt.tables.values()))
    assert len(shared) == len(dealt.overlap) == round(overlap * rows)
    held: list[int] = []
    for party, (name,) in columns.items():
        table, truth = dealt.tables[party], dealt.truth[party]
        assert table["id"].is_unique
        # The truth map leads from each id to the pooled row that its cells came from.
        assert truth[table["id"]].tolist() == (table[name] // 10).tolist()
        assert set(truth[list(shared)]) == set(dealt.overlap)
        held += truth[~truth.index.isin(list(shared))].tolist()
    if remainders == "disjoint":
        assert sorted(held) == sorted(set(range(rows)) - set(dealt.overlap))
    else:
        assert len(held) == parties * (rows - len(dealt.overlap))
    pairs = [set(table["id"]) for table in dealt.tables.values()]
    assert all(left & right == shared for left in pairs for right in pairs if left is not right)


def test_own_ids_are_kept_where_they_may_link():
    frame = pooled()
    dealt = split(frame, overlap=0.3, remainders="all")
    names = set(frame["id"])
    for table in dealt.tables.values():
        assert len(table) == 100
        assert len(set(table["id"]) & names) == 30
    disjoint = split(frame, overlap=0.3, remainders="disjoint")
    assert all(set(table["id"]) <= names for table in disjoint.tables.values())
    sizes = [len(table) for table in disjoint.tables.values()]
    assert sum(sizes) == 3 * 30 + 70
    assert max(sizes) - min(sizes) <= 1


def test_tables_hold_only_their_columns_in_orders_of_their_own():
    dealt = split(pooled(), overlap=1.0)
    assert {party: list(table.columns) for party, table in dealt.tables.items()} == {
        "A": ["id", "a", "b"],
        "B": ["id", "c"],
        "C": ["id", "d"],
    }
    orders = [tuple(table["id"]) for table in dealt.tables.values()]
    assert len({*orders, tuple(sorted(orders[0]))}) == 4


def test_the_same_seed_gives_the_same_tables():
    first, second = split(pooled(ids=False)), split(pooled(ids=False))
    other = split(pooled(ids=False), rng=np.random.default_rng(1))
    for party in COLUMNS:
        pd.testing.assert_frame_equal(first.tables[party], second.tables[party])
    assert not first.tables["A"].equals(other.tables["A"])


def test_a_party_may_hold_ids_only():
    dealt = split(pooled(), columns={"A": [], "B": ["a"]}, overlap=0.5)
    assert list(dealt.tables["A"].columns) == ["id"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": {"A": ["a"]}}, "at least two parties. Got 1"),
        ({"columns": {"A": ["a"], "B": ["zz"]}}, "'zz', asked for party B, is not in the pooled"),
        ({"columns": {"A": ["a"], "B": ["id"]}}, "'id', asked for party B, is the id"),
        ({"columns": {"A": ["a", "a"], "B": ["b"]}}, "party A must be a list of different names"),
        ({"columns": {"A": "a", "B": ["b"]}}, "party A must be a list"),
        ({"overlap": 1.5}, "overlap parameter .* Got 1.5 instead"),
        ({"overlap": float("nan")}, "overlap parameter"),
        ({"remainders": "some"}, "remainders parameter .* Got 'some' instead"),
        ({"rng": 3}, "rng parameter .* Got int instead"),
    ],
)
def test_wrong_parameters_are_refused(options: dict[str, object], says: str):
    with pytest.raises(InputError, match=says):
        split(pooled(), **options)


def test_wrong_pooled_tables_are_refused():
    with pytest.raises(InputError, match="has no rows"):
        split(pooled(0))
    with pytest.raises(InputError, match="has repeated ids"):
        split(pooled().assign(id="x"))


def test_halves_divide_columns():
    assert halves(["a", "b", "c"]) == (["a", "b"], ["c"])
    names = [f"c{place}" for place in range(20)]
    left, right = halves(names, np.random.default_rng(0))
    assert sorted(left + right) == sorted(names)
    assert len(left) == len(right) == 10
    assert left != names[:10]
    assert left == sorted(left, key=names.index)
    with pytest.raises(InputError, match="at least two different names"):
        halves(["a"])
    with pytest.raises(InputError, match="at least two different names"):
        halves(["a", "a"])
