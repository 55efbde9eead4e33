"""Which splits may be offered: nothing that is shown, nor any difference, tells of few rows."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vfsl.estimators.trees.candidates import (
    LEAST_ROWS,
    LEFT,
    RIGHT,
    Candidates,
    lone_groups,
    merged_ends,
    rule_sides,
    run_sums,
)

from vfsl.estimators.trees.binning import Bins, Column

SIZES = st.sampled_from([0, 0, 1, 2, 5, 9, 10, 11, 15, 40])


def column(size, *, ordered, missing, name="x"):
    return Column(name, [], [f"l{i}" for i in range(size)], ordered, missing)


@st.composite
def parties(draw):
    """Columns of all kinds, and the counts of rows of some nodes of the same total."""
    columns, counts = [], []
    width = draw(st.integers(2, 8))
    for at in range(draw(st.integers(1, 4))):
        missing = draw(st.booleans())
        size = draw(st.integers(1 if missing else 2, width))
        columns.append(column(size, ordered=draw(st.booleans()), missing=missing, name=f"x{at}"))
        codes = draw(st.lists(SIZES, min_size=size + missing, max_size=size + missing))
        counts.append(codes)
    most = max(sum(codes) for codes in counts)
    bins = Bins(tuple(columns))
    table = np.zeros((len(columns), bins.width), dtype=np.int64)
    for at, codes in enumerate(counts):
        codes[draw(st.integers(0, len(codes) - 1))] += most - sum(codes)
        table[at, : len(codes)] = codes
    return bins, table


def members(candidates, at):
    """The places of the flattened counts that a candidate sends to the left."""
    places = set(range(candidates.start[at], candidates.stop[at]))
    return places | ({int(candidates.extra[at])} if candidates.extra[at] >= 0 else set())


@settings(max_examples=400)
@given(parties())
def test_no_offer_and_no_difference_of_offers_describes_few_rows(case):
    """Brute force over sets of bins: offers, complements, and differences within a column."""
    bins, counts = case
    candidates = Candidates.of(bins)
    shown = np.flatnonzero(candidates.allowed(counts[None])[0])
    flat = counts.ravel()

    def rows(places):
        return sum(int(flat[place]) for place in places)

    for at, each in enumerate(bins.columns):
        every = set(range(at * bins.width, at * bins.width + each.size + 1))
        offers = [members(candidates, c) for c in shown if candidates.column[c] == at]
        for offer in offers:
            assert offer <= every
            assert rows(offer) >= LEAST_ROWS
            assert rows(every - offer) >= LEAST_ROWS
        for one, two in combinations(offers, 2):
            # Sums of disjoint sets tell no less apart; nested ones tell of what lies between.
            assert rows(one - two) == 0 or rows(one - two) >= LEAST_ROWS
            assert rows(two - one) == 0 or rows(two - one) >= LEAST_ROWS
        if not each.ordered and offers:
            left_over = rows(every) - sum(rows(offer) for offer in offers)
            # With all but one group known, their rest must not be few rows either.
            assert left_over == 0 or left_over >= LEAST_ROWS


@settings(max_examples=200)
@given(parties())
def test_ordered_columns_offer_each_boundary_once(case):
    bins, counts = case
    candidates = Candidates.of(bins)
    shown = candidates.allowed(counts[None])[0]
    left = run_sums(counts.reshape(1, -1), candidates)[0]
    for at, each in enumerate(bins.columns):
        if each.ordered:
            mine = shown & (candidates.column == at) & (candidates.missing == RIGHT)
            assert len(set(left[mine])) == mine.sum()


@settings(max_examples=200)
@given(parties())
def test_rules_send_the_counted_rows_left(case):
    """Rules on rows that are made after the counts, against the counted sums."""
    bins, counts = case
    candidates = Candidates.of(bins)
    codes = np.column_stack([np.repeat(np.arange(bins.width), one) for one in counts])
    left = run_sums(counts.reshape(1, -1), candidates)[0]
    for at in range(len(candidates)):
        rule = candidates.rule(at)
        assert rule_sides(bins, *rule, codes[:, rule[0]]).sum() == left[at]


def test_enough_splits_are_offered_where_nothing_is_small():
    """The rule must not forbid what is harmless."""
    bins = Bins(
        (
            column(4, ordered=True, missing=True),
            column(3, ordered=False, missing=True),
            column(2, ordered=False, missing=False),
        )
    )
    candidates = Candidates.of(bins)
    counts = np.array([[30, 30, 30, 30, 30], [50, 50, 25, 25, 0], [75, 75, 0, 0, 0]])
    assert candidates.allowed(counts[None]).all()
    # 3 boundaries with missing cells either way, known against missing; 4 groups; 1 of 2 groups.
    assert len(candidates) == 7 + 4 + 1


def test_merged_ends_by_hand():
    counts = np.array([[[4, 6, 0, 9, 1, 20, 3, 99], [5, 5, 5, 5, 5, 5, 5, 99]]])
    ends = merged_ends(counts, np.array([7, 4]), 10)
    assert ends[0, 0].tolist() == [False, True, False, False, True, False, False, False]
    assert ends[0, 1].tolist() == [False, True, False, False, False, False, False, False]


@pytest.mark.parametrize(
    ("counts", "fine"),
    [
        ([20, 30, 40], [True, True, True]),
        ([9, 30, 40], [False, False, True]),  # 30 is withheld, or 9 rows would be left over
        ([9, 30, 0], [False, False, False]),
        ([9, 9, 40], [False, False, True]),
        ([5, 5, 40], [False, False, True]),  # together they are ten
        ([0, 0, 40], [False, False, False]),
        ([0, 20, 20], [False, True, True]),
    ],
)
def test_lone_groups_by_hand(counts, fine):
    assert lone_groups(np.array([[counts]]), 10)[0, 0].tolist() == fine


def test_missing_cells_go_left_only_if_they_are_many():
    bins = Bins((column(2, ordered=True, missing=True),))
    candidates = Candidates.of(bins)
    nodes = np.array([[[20, 20, 9]], [[20, 20, 10]]])
    few, many = candidates.allowed(nodes)
    kinds = list(zip(candidates.code.tolist(), candidates.missing.tolist(), strict=True))
    assert kinds == [(0, RIGHT), (0, LEFT), (1, RIGHT)]
    assert few.tolist() == [True, False, False]
    assert many.tolist() == [True, True, True]


def test_more_rows_may_be_asked_for():
    bins = Bins((column(3, ordered=True, missing=False),))
    counts = np.array([[[12, 12, 12, 0]]])
    candidates = Candidates.of(bins)
    assert candidates.allowed(counts, 10)[0].tolist() == [True, True]
    assert candidates.allowed(counts, 13)[0].tolist() == [False, False]


def test_sides_of_missing_cells_and_categories():
    bins = Bins((column(3, ordered=True, missing=True), column(3, ordered=False, missing=True)))
    codes = np.array([[0, 0], [1, 1], [2, 2], [3, 3]])
    assert rule_sides(bins, 0, 1, RIGHT, codes[:, 0]).tolist() == [True, True, False, False]
    assert rule_sides(bins, 0, 1, LEFT, codes[:, 0]).tolist() == [True, True, False, True]
    assert rule_sides(bins, 0, 2, RIGHT, codes[:, 0]).tolist() == [True, True, True, False]
    assert rule_sides(bins, 1, 1, RIGHT, codes[:, 1]).tolist() == [False, True, False, False]
    assert rule_sides(bins, 1, 3, RIGHT, codes[:, 1]).tolist() == [False, False, False, True]


def test_no_columns_no_candidates():
    candidates = Candidates.of(Bins(()))
    assert len(candidates) == 0
    assert candidates.allowed(np.zeros((2, 0, 1), dtype=np.int64)).shape == (2, 0)
