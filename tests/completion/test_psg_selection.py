"""The loop of VFPU-M in numbers, against values worked out by hand."""

import numpy as np
import pytest
from vfsl.completion.selection import (
    Moves,
    class_confidence,
    confident,
    spread_confidence,
    step,
    top_share,
    value_confidence,
)

from vfsl.errors import DataError


def test_class_confidence_is_the_largest_probability():
    chances = np.array([[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]])
    assert class_confidence(chances).tolist() == [0.5, 0.9]


def test_value_confidence_uses_mean_and_population_deviation():
    # Mean 4, squared distances 9, 1, 1, 9: population variance 5, not 20/3.
    found = value_confidence(np.array([1.0, 3.0, 5.0, 7.0]))
    near, far = 1 - 1 / np.sqrt(5), 1 - 3 / np.sqrt(5)
    np.testing.assert_allclose(found, [far, near, near, far])
    assert far < 0


@pytest.mark.parametrize("values", [[2.5] * 4, [0.1 + 0.2, 0.3, 0.3], [0.0, 0.0], [7.0]])
def test_equal_predictions_are_all_at_the_mean(values):
    assert value_confidence(np.array(values)).tolist() == [1.0] * len(values)


def test_no_predictions_have_no_confidence():
    assert value_confidence(np.zeros(0)).tolist() == []


def test_spread_confidence_is_bounded():
    assert spread_confidence(np.array([0.0, 1.0, 2.0, 9.0]), 4.0).tolist() == [1, 0.75, 0.5, 0]
    assert spread_confidence(np.array([0.5]), 0.0).tolist() == [0.5]


def test_candidates_have_at_least_alpha():
    assert confident(np.array([0.79, 0.8, 0.95]), 0.8).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("among", "share", "size"),
    [
        (10, 0.1, 1),
        (30, 0.1, 3),
        (11, 0.1, 2),
        (1, 0.1, 1),
        (7, 1.0, 7),
        (0, 0.1, 0),
        (20, 0.05, 1),
    ],
)
def test_the_top_share_is_rounded_up(among, share, size):
    confidence = np.linspace(0.8, 1.0, among)
    chosen = top_share(confidence, np.arange(among), share)
    assert chosen.tolist() == list(range(among - size, among))


def test_ties_go_to_the_lower_place():
    confidence = np.array([0.9, 0.9, 0.95, 0.9])
    assert top_share(confidence, np.arange(4), 0.5).tolist() == [0, 2]


def test_rounds_move_rows_once_and_keep_their_order():
    """Six rows, α 0.8, k 0.5: worked out by hand."""
    moves = Moves.none(6, classes=False)
    first = step(
        moves,
        1,
        np.array([10.0, 11.0, 12.0, 13.0, 14.0, 15.0]),
        np.array([0.1, 0.9, 0.85, 0.8, 0.2, 0.95]),
        alpha=0.8,
        share=0.5,
    )
    assert first.candidates.tolist() == [1, 2, 3, 5]
    assert first.chosen.tolist() == [1, 5]
    assert moves.waiting.tolist() == [0, 2, 3, 4]
    second = step(
        moves,
        2,
        np.array([20.0, 22.0, 23.0, 24.0]),
        np.array([0.1, 0.9, 0.7, 0.2]),
        alpha=0.8,
        share=0.5,
    )
    assert second.chosen.tolist() == [2]
    nobody = step(moves, 3, np.zeros(3), np.zeros(3), alpha=0.8, share=0.5)
    assert not len(nobody.candidates)
    assert not len(nobody.chosen)
    np.testing.assert_array_equal(moves.values, [np.nan, 11, 22, np.nan, np.nan, 15])
    assert moves.round.tolist() == [0, 1, 2, 0, 0, 1]
    np.testing.assert_array_equal(moves.confidence, [np.nan, 0.9, 0.9, np.nan, np.nan, 0.95])
    assert moves.moved.tolist() == [False, True, True, False, False, True]


def test_a_row_moves_only_once():
    moves = Moves.none(3, classes=True)
    moves.take(1, np.array([1]), np.array([2]), np.array([0.9]))
    with pytest.raises(DataError, match="cannot be given another"):
        moves.take(2, np.array([1]), np.array([0]), np.array([0.9]))
    assert moves.values.tolist() == [-1, 2, -1]
