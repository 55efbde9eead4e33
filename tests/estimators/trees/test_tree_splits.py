"""Splits: nothing that is offered, nor a difference, tells of few rows; gains and ties by hand."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vfsl.crypto.fixed import fold, unfold
from vfsl.estimators.trees.binning import Bins, Column
from vfsl.estimators.trees.splits import (
    FOLD_BITS,
    LEAST_ROWS,
    LEFT,
    RIGHT,
    Candidates,
    Penalty,
    compute_gains,
    find_best,
    find_lone_groups,
    find_sides,
    merge_bins,
    quantise,
    row_bound,
    row_limit,
)

SMALL = st.floats(-1e6, 1e6, allow_subnormal=False)
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
    left = candidates.sum_left(counts.reshape(1, -1))[0]
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
    left = candidates.sum_left(counts.reshape(1, -1))[0]
    for at in range(len(candidates)):
        rule = candidates.rule(at)
        assert find_sides(bins, rule, codes, np.arange(len(codes))).sum() == left[at]


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
    ends = merge_bins(counts, np.array([7, 4]), 10)
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
    assert find_lone_groups(np.array([[counts]]), 10)[0, 0].tolist() == fine


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
    codes, everyone = np.array([[0, 0], [1, 1], [2, 2], [3, 3]]), np.arange(4)
    assert find_sides(bins, (0, 1, RIGHT), codes, everyone).tolist() == [True, True, False, False]
    assert find_sides(bins, (0, 1, LEFT), codes, everyone).tolist() == [True, True, False, True]
    assert find_sides(bins, (0, 2, RIGHT), codes, everyone).tolist() == [True, True, True, False]
    assert find_sides(bins, (1, 1, RIGHT), codes, everyone).tolist() == [False, True, False, False]
    assert find_sides(bins, (1, 3, RIGHT), codes, everyone).tolist() == [False, False, False, True]


def test_no_columns_no_candidates():
    candidates = Candidates.of(Bins(()))
    assert len(candidates) == 0
    assert candidates.allowed(np.zeros((2, 0, 1), dtype=np.int64)).shape == (2, 0)


# ---- gains ----


def gain_of(left, total, penalty, scale=(1.0, 1.0)):
    left, total = np.array([left]), np.array([total])
    return float(compute_gains(left, total, np.broadcast_to(scale, left.shape), penalty)[0])


def test_gains_by_hand():
    """G_L = 2, H_L = 1, G_R = −4, H_R = 3: with λ = 1, ½ (4/2 + 16/4 − 4/5)."""
    assert gain_of((2, 1), (-2, 4), Penalty(l2=1.0)) == pytest.approx(0.5 * (2 + 4 - 0.8))
    assert gain_of((2, 1), (-2, 4), Penalty(l2=0.0)) == pytest.approx(0.5 * (4 + 16 / 3 - 1))
    # The same with ten steps to 1 in g and a hundred in h.
    assert gain_of((20, 100), (-20, 400), Penalty(l2=1.0), (10.0, 100.0)) == pytest.approx(2.6)


def test_a_side_that_is_too_light_gains_nothing():
    assert gain_of((2, 1), (-2, 4), Penalty(least_weight=1.5)) == -np.inf
    assert gain_of((2, 3), (-2, 4), Penalty(least_weight=1.5)) == -np.inf
    assert gain_of((2, 2), (-2, 4), Penalty(least_weight=1.5)) > 0
    assert gain_of((0, 0), (-2, 4), Penalty(l2=0.0, least_weight=0.0)) == -np.inf
    assert gain_of((0, 0), (0, 0), Penalty(l2=0.0, least_weight=0.0)) == -np.inf


@given(
    arrays(np.int64, (6, 2), elements=st.integers(0, 1000)),
    arrays(np.int64, (6, 2), elements=st.integers(0, 1000)),
    st.floats(0, 10),
    st.floats(0, 50),
)
def test_gains_are_the_drop_of_the_penalised_loss(left, right, l2, least):
    """min over w of G w + ½ (H + λ) w² is −½ G² / (H + λ): the gain is what two leaves save."""
    steps = np.broadcast_to((3.0, 7.0), left.shape)
    found = compute_gains(left, left + right, steps, Penalty(l2, 0, least))

    def best(g, h):
        return -0.5 * (g / 3) ** 2 / (h / 7 + l2)

    for one, two, gain in zip(left, right, found, strict=True):
        if min(one[1], two[1]) / 7 < least or min(one[1], two[1]) / 7 + l2 <= 0:
            assert gain == -np.inf
        else:
            saved = best(*(one + two)) - best(*one) - best(*two)
            assert gain == pytest.approx(saved, rel=1e-9, abs=1e-9)


@example(np.array([[255, 0], [0, 0]]), 3.6e-304)  # passes the largest float where h is nothing
@given(arrays(np.int64, (2, 2), elements=st.integers(0, 10**6)), st.floats(0, 10))
def test_mirrored_splits_tie_exactly(sides, l2):
    """A split and its mirror image must not differ by rounding, or plain and encrypted could."""
    one, two = sides
    assert gain_of(one, one + two, Penalty(l2)) == gain_of(two, one + two, Penalty(l2))


def test_the_best_of_each_group_with_empty_ones_and_ties():
    values = np.array([1.0, 3.0, 3.0, -np.inf, 2.0])
    best, ties = find_best(values, np.array([0, 0, 3, 4, 5]))
    assert best.tolist() == [-np.inf, 3.0, -np.inf, 2.0, -np.inf]
    assert ties.tolist() == [False, True, True, True, True]
    best, ties = find_best(np.zeros(0), np.array([0, 0]))
    assert best.tolist() == [-np.inf, -np.inf]
    assert len(ties) == 0


@given(st.lists(st.lists(st.integers(-3, 3), max_size=5), min_size=1, max_size=6))
def test_the_best_of_each_group_against_a_loop(runs):
    values = np.array([value for run in runs for value in run], dtype=float)
    lengths = np.array([len(run) for run in runs])
    best, ties = find_best(values, np.cumsum(lengths) - lengths)
    assert best.tolist() == [max(run, default=-np.inf) for run in runs]
    assert ties.tolist() == [value == max(run) for run in runs for value in run]


@given(
    arrays(np.float64, st.integers(1, 40), elements=SMALL),
    st.integers(0, 2**32 - 1),
)
def test_integer_gradients_fit_and_fold_exactly(g, seed):
    """Whatever rows are summed, two numbers of 29 bits come back from one."""
    h = np.random.default_rng(seed).random(len(g))
    values, scale = quantise(g, h, len(g))
    # Half a step each, and the division by a scale that is itself rounded.
    assert np.abs(values[:, 0] / scale.g - g).max() <= 0.51 / scale.g
    assert np.abs(values[:, 1] / scale.h - h).max() <= 0.51 / scale.h
    assert np.abs(values).sum(axis=0).max() < 1 << (FOLD_BITS - 1)
    folded = fold(values, FOLD_BITS)
    assert np.abs(folded).max() <= row_bound(len(g))
    bag = np.random.default_rng(seed).random(len(g)) < 0.5
    for rows in (slice(None), bag, ~bag):
        total = folded[rows].sum(keepdims=True)
        assert unfold(total, 2, FOLD_BITS)[0].tolist() == values[rows].sum(axis=0).tolist()


def test_the_largest_sums_fit():
    for rows in (1, 3, 1000, 1 << 20):
        g = np.full(rows, -1.0)
        values, _ = quantise(g, np.ones(rows), rows)
        total = fold(values, FOLD_BITS).sum(keepdims=True)
        assert unfold(total, 2, FOLD_BITS)[0].tolist() == values.sum(axis=0).tolist()
        assert values[0, 1] >= (1 << (FOLD_BITS - 1)) // rows - 1  # the space is used


def test_gradients_are_rounded_to_the_nearest_and_nothing_is_drawn():
    """Halves go to the even neighbour; rounding at random would differ from call to call."""
    rows = (1 << 20) - 1
    assert row_limit(rows) == 256  # so that halves are exact
    g = np.zeros(rows)
    g[:8] = np.array([256, 0.5, 1.5, 2.5, -0.5, -1.5, 0.49, -255.51]) / 256
    first, scale = quantise(g, np.abs(g), rows)
    again, _ = quantise(g, np.abs(g), rows)
    assert scale.g == 256
    assert first[:8, 0].tolist() == [256, 0, 2, 2, 0, -2, 0, -256]
    assert (first == again).all()
    turned, _ = quantise(g[::-1], np.abs(g)[::-1], rows)
    assert (turned[::-1] == first).all()  # a row's integers do not depend on its place


def test_zero_gradients_stay_zero():
    values, scale = quantise(np.zeros(5), np.zeros(5), 5)
    assert not values.any()
    assert np.isfinite(scale).all()
