"""Routing: strictly above τ, the best τ, skill with its error."""

import numpy as np
import pandas as pd
import pytest

from vfsl.completion.columns import Fold, make_target, skill
from vfsl.completion.missing import find_best_tau, route_by_association, route_by_skill
from vfsl.data import PartyTable


def test_association_must_be_above_tau_not_equal():
    routes = route_by_association({"a": 0.5, "b": 0.51, "c": 0.2}, 0.5)
    assert [(route.column, route.route) for route in routes] == [
        ("a", "low"),
        ("b", "high"),
        ("c", "low"),
    ]
    assert {route.by for route in routes} == {"association"}
    assert [route.measure for route in routes] == [0.5, 0.51, 0.2]


def test_skill_must_exceed_its_error():
    routes = route_by_skill(
        {"a": (0.1, 0.05), "b": (0.02, 0.05), "c": (-0.2, 0.05), "d": (0.0, 0.0)}
    )
    assert [route.route for route in routes] == ["high", "low", "low", "low"]


def test_the_best_tau_leaves_out_what_is_worse_than_the_mean():
    strengths = {"a": 0.6, "b": 0.4, "c": 0.3, "d": 0.1}
    skills = {"a": (0.5, 0.1), "b": (0.1, 0.1), "c": (-0.3, 0.1), "d": (-0.1, 0.1)}
    assert find_best_tau(strengths, skills) == 0.3  # a and b are above it, c is not
    assert find_best_tau(strengths, {name: (-0.1, 0.1) for name in strengths}) == 1.0
    assert find_best_tau(strengths, {name: (0.1, 0.1) for name in strengths}) == 0.0


def test_skill_by_hand():
    table = PartyTable.from_frame(_frame([0.0, 2.0, 4.0, 6.0]), party="B", id="id")
    target = make_target(table, "x")
    predicted, mean = np.array([1.0, 2.0, 4.0, 5.0]), np.full(4, 3.0)
    value, error = skill(Fold(target, predicted, mean))
    assert value == pytest.approx(1 - 2 / 20)  # squared errors 1, 0, 0, 1 against 9, 1, 1, 9
    gaps = np.array([1 - 0.9, -0.1, -0.1, 1 - 0.9])
    assert error == pytest.approx(gaps.std(ddof=1) / (5 * 2))


def test_brier_skill_by_hand():
    table = PartyTable.from_frame(_frame(["u", "v", "v", "u"]), party="B", id="id")
    target = make_target(table, "x")
    chances = np.array([[0.8, 0.2], [0.4, 0.6], [0.4, 0.6], [0.8, 0.2]])
    half = np.full((4, 2), 0.5)
    value, _ = skill(Fold(target, chances.argmax(axis=1).astype(float), half, chances))
    assert value == pytest.approx(1 - (2 * 0.08 + 2 * 0.32) / (4 * 0.5))


def _frame(values):
    return pd.DataFrame({"id": [str(n) for n in range(len(values))], "x": values})
