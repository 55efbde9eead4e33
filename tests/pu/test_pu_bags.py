"""Bags: exactly the sets that are defined, by property; folds, votes, means and spies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.errors import DataError
from vfsl.pu.bags import (
    average_sums,
    average_votes,
    choose_spies,
    deal_folds,
    draw_negatives,
    find_negatives,
    find_out_of_bag,
    make_batch,
    match_scale,
    weigh_bags,
    weigh_fold,
    weigh_sides,
)


@st.composite
def sets(draw):
    """Known positives, promoted rows and at least as many unlabelled rows, shuffled."""
    known = draw(st.integers(2, 12))
    promoted = draw(st.integers(0, 4))
    unlabelled = draw(st.integers(known + promoted, 40))
    kinds = np.repeat([0, 1, 2], [known, promoted, unlabelled])
    kinds = np.random.default_rng(draw(st.integers(0, 99))).permutation(kinds)
    return kinds == 0, kinds == 1


@settings(max_examples=60, deadline=None)
@given(sets(), st.integers(1, 6), st.integers(2, 4), st.integers(0, 5))
def test_the_sets_of_a_bag(marked, bags, folds, seed):
    known, promoted = marked
    positive, unlabelled = known | promoted, ~(known | promoted)
    folds = min(folds, int(known.sum()))
    rng = np.random.default_rng(seed)
    batch = make_batch(known, promoted, unlabelled, bags=bags, folds=folds, rng=rng)
    weights, votes = batch.weights[:, :bags], batch.voters[:, :bags]
    # |N| = |P| draws, all of them from U, each counted as often as it was drawn.
    assert (weights[positive] == 1).all()
    assert (weights[unlabelled].sum(axis=0) == positive.sum()).all()
    assert (weights == np.rint(weights)).all()
    # O = U − N: whoever was not drawn votes, nobody else; a row in every bag has all of them.
    never = unlabelled & (weights > 0).all(axis=1)
    assert (votes[unlabelled & ~never] == (weights[unlabelled & ~never] == 0)).all()
    assert votes[never].all()
    assert not votes[positive].any()
    # No row is lost: one value for each unlabelled row and each known positive.
    assert (batch.voters.any(axis=1) == ~promoted).all()


@settings(max_examples=40, deadline=None)
@given(sets(), st.integers(2, 4), st.integers(0, 5))
def test_known_positives_are_held_out_once(marked, folds, seed):
    known, promoted = marked
    folds = min(folds, int(known.sum()))
    rng = np.random.default_rng(seed)
    batch = make_batch(known, promoted, ~(known | promoted), bags=2, folds=folds, rng=rng)
    checks, held = batch.weights[:, 2:], batch.held_out
    assert (batch.voters[known].sum(axis=1) == 1).all()
    assert (held[~promoted].sum(axis=1) == 1).all()
    assert not held[:, :2].any()
    # Who is held out of a model does not train it; the others make a bag: as many draws.
    assert (checks[held[:, 2:]] == 0).all()
    assert (checks[promoted] == 1).all()
    positive = known | promoted
    assert (checks[known] == ~held[known, 2:]).all()
    assert (checks == np.rint(checks)).all()
    np.testing.assert_array_equal(checks[positive].sum(axis=0), checks[~positive].sum(axis=0))


def test_draws_are_with_replacement_and_differ():
    pool = np.arange(10) >= 4
    draws = draw_negatives(pool, 30, 3, np.random.default_rng(0))
    assert (draws.sum(axis=0) == 30).all()
    assert draws[:4].sum() == 0
    assert draws.max() > 1
    assert not np.array_equal(draws[:, 0], draws[:, 1])


def test_a_bag_by_hand():
    positive = np.array([True, False, False, False])
    draws = np.array([[0, 0], [2, 1], [0, 3], [0, 0]])
    assert weigh_bags(positive, draws).tolist() == [[1, 1], [2, 1], [0, 3], [0, 0]]
    free = find_out_of_bag(~positive, draws)
    # Row 1 is in both bags, so both score it.
    assert free.tolist() == [[0, 0], [1, 1], [1, 0], [1, 1]]
    means = average_votes(np.array([[1.0, 2.0], [1.0, 2.0], [5.0, 9.0], [0.0, 4.0]]), free)
    np.testing.assert_array_equal(means, [np.nan, 1.5, 5.0, 2.0])
    np.testing.assert_array_equal(average_sums(np.array([0, 3, 5, 4.0]), free), means)


def test_the_preliminary_model_votes_only_for_rows_that_it_did_not_see():
    known = np.arange(20) < 3
    pool = np.arange(20) >= 12
    rng = np.random.default_rng(1)
    batch = make_batch(known, ~known & known, pool, bags=4, folds=3, rng=rng, preliminary=True)
    assert batch.weights.shape == (20, 8)
    assert (batch.weights[:12, 4] == np.where(known[:12], 1, 0)).all()
    np.testing.assert_allclose(batch.weights[pool, 4], 3 / 8)
    assert batch.voters[:, 4].tolist() == [False] * 3 + [True] * 9 + [False] * 8
    # Pseudo-negatives come from the pool only, those of the held-out bags as well.
    assert batch.weights[3:12, :4].sum() == 0
    assert batch.weights[3:12, 5:].sum() == 0
    assert (batch.weights[pool, 5:].sum(axis=0) == 2).all()


def test_a_pool_of_two_rows_is_never_in_one_fold():
    known, pool = np.arange(9) < 3, np.isin(np.arange(9), (4, 7))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        batch = make_batch(known, ~known & known, pool, bags=1, folds=2, rng=rng)
        np.testing.assert_array_equal(
            batch.weights[pool, 1:].sum(axis=0), batch.weights[known, 1:].sum(axis=0)
        )


def test_folds_are_even():
    folds = deal_folds(np.arange(13) >= 2, 4, np.random.default_rng(0))
    assert (folds[:2] == -1).all()
    assert sorted(np.bincount(folds[2:])) == [2, 3, 3, 3]
    rng = np.random.default_rng(1)
    weights = weigh_fold(np.arange(13) < 5, np.arange(13) >= 5, folds, 0, rng)
    assert (weights[folds == 0] == 0).all()
    assert weights[:5].sum() == weights[5:].sum()


def test_scales_are_matched_by_rank():
    alone, mean = np.array([-4.0, 0.0, 8.0]), np.array([-1.0, 0.5, 2.0])
    got = match_scale(np.array([0.0, 4.0, 99.0]), alone, mean)
    assert got.tolist() == pytest.approx([0.5, 1.25, 2.0])


def test_spies_are_a_fraction_and_never_all():
    known = np.arange(40) < 20
    spies = choose_spies(known, 0.15, np.random.default_rng(0))
    assert spies.sum() == 3
    assert not spies[20:].any()
    assert choose_spies(known[:21], 1.0, np.random.default_rng(0)).sum() == 19
    assert choose_spies(np.array([True, True, False]), 0.0, np.random.default_rng(0)).sum() == 1
    weights = weigh_sides(known & ~spies, ~known | spies)
    assert weights[known & ~spies].sum() == pytest.approx(weights[~known | spies].sum())


def test_reliable_negatives_by_hand():
    scores = np.array([9.0, 1.0, 2.0, 3.0, 0.5, 0.9, 1.5, 2.5])
    spies = np.array([0, 1, 1, 1, 0, 0, 0, 0], dtype=bool)
    unlabelled = np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=bool)
    assert find_negatives(scores, unlabelled, spies, 0.0).tolist() == [False] * 4 + [1, 1, 0, 0]
    assert find_negatives(scores, unlabelled, spies, 0.5).tolist() == [False] * 4 + [1, 1, 1, 0]
    with pytest.raises(DataError, match=r"^0 unlabelled rows .* no reliable negatives"):
        find_negatives(scores + 9.0 * unlabelled, unlabelled, spies, 0.0)
    with pytest.raises(DataError, match=r"^1 unlabelled rows "):
        find_negatives(scores + 0.2 * unlabelled, unlabelled, spies, 0.0)
