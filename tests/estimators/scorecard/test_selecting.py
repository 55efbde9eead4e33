"""Correlations on shares, and choices from them, beside numpy and regressions."""

from functools import partial

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

from vfsl.channel import run_together
from vfsl.crypto.shares import Session
from vfsl.estimators.scorecard.selecting import (
    DISCLOSURES,
    drop_correlated,
    find_p_values,
    open_correlations,
    select_stepwise,
)

PARTIES = ("A", "B", "C")


def play(channel, columns):
    inner = channel.within("selection", DISCLOSURES)
    with Session.join(inner, PARTIES, "K") as session:
        return open_correlations(session, "A", columns.get(channel.me))


def draw_columns(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(rows, 5))
    base[:, 3] = base[:, 0] + 0.1 * base[:, 3]
    target = (base[:, 0] + base[:, 2] + rng.normal(size=rows) > 0).astype(float)
    return base, target


def test_correlations_are_those_of_all_columns_in_one_place():
    base, target = draw_columns()
    held = {"A": np.column_stack([base[:, :2], target]), "B": base[:, 2:3], "C": base[:, 3:]}
    found = run_together(dict.fromkeys((*PARTIES, "K"), partial(play, columns=held)), timeout=60)
    matrix, counts = found.pop("A")
    assert counts == {"A": 2, "B": 1, "C": 2}
    expected = np.corrcoef(np.column_stack([base, target]).T)
    np.testing.assert_allclose(matrix, expected, atol=2.0**-10)
    assert set(found.values()) == {None}


def test_of_two_columns_alike_the_weaker_goes():
    base, target = draw_columns()
    correlations = np.corrcoef(np.column_stack([base, target]).T)
    strength = np.abs(correlations[-1])
    weaker = min((0, 3), key=lambda column: strength[column])
    assert drop_correlated(correlations, 0.9) == [at for at in range(5) if at != weaker]
    assert drop_correlated(correlations, 1.0) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("columns", [[0], [0, 1, 2], [4, 2, 0]])
def test_p_values_are_those_of_least_squares(columns):
    base, target = draw_columns()
    correlations = np.corrcoef(np.column_stack([base, target]).T)
    x = base[:, columns]
    model = LinearRegression().fit(x, target)
    free = len(x) - len(columns) - 1
    variance = ((target - model.predict(x)) ** 2).sum() / free
    centred = x - x.mean(axis=0)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(centred.T @ centred)))
    expected = 2 * stats.t.sf(np.abs(model.coef_ / errors), free)
    np.testing.assert_allclose(find_p_values(correlations, len(x), columns), expected, rtol=1e-6)


def test_stepwise_selection_takes_what_matters_and_nothing_twice():
    base, target = draw_columns(rows=2000)
    correlations = np.corrcoef(np.column_stack([base, target]).T)
    kept = select_stepwise(correlations, 2000, range(5))
    assert {2} < set(kept)
    assert len({0, 3} & set(kept)) >= 1
    chances = find_p_values(correlations, 2000, kept)
    assert chances.max() <= 0.1
    for other in set(range(5)) - set(kept):
        assert find_p_values(correlations, 2000, [*kept, other])[-1] >= 0.05
