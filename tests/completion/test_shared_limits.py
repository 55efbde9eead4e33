"""Limits of the last models' errors, by counts on shares: intervals and sets cover enough."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.completion.psg_cases import run
from tests.completion.test_shared_roles import COLUMNS, SHARES, tables
from vfsl.channel import Transcript, run_together
from vfsl.completion import shared_roles
from vfsl.completion.calibration import quantile
from vfsl.completion.columns import shrink, skill
from vfsl.completion.crossfit import CrossFit
from vfsl.completion.shared_limits import (
    Search,
    expect_squares,
    find_largest,
    fit_parabola,
)
from vfsl.completion.vfpum import VFPUM
from vfsl.crypto.shares import DISCLOSURES, Session


@pytest.fixture(scope="module")
def judged():
    both, truth = tables(common=500, rest=900, seed=5)
    folds = run(CrossFit(spread=True), both, COLUMNS, SHARES)
    return both, truth, folds, run(VFPUM(), both, COLUMNS, SHARES, own={"folds": folds}).found


def test_new_rows_are_covered_as_often_as_asked(judged):
    _, truth, _, found = judged
    for name, one in found.items():
        known = truth[name].notna().to_numpy()
        if one.target.classes:
            at = np.array([one.target.levels.index(cell) for cell in truth[name]])
            inside = one.inside[np.arange(len(at)), at]
            assert one.inside.sum(axis=1).mean() < len(one.target.levels)
        else:
            inside = np.abs(one.predicted - truth[name].to_numpy(float)) <= one.half
        # Of 500 counted rows and 900 new ones: three standard errors, and what steps leave.
        assert 0.85 < inside[known].mean() < 0.955, name
        if one.target.classes:
            hot = np.eye(len(one.target.levels))[at]
            base = ((hot.mean(axis=0) - hot) ** 2).sum()
            real = 1 - ((one.chances - hot) ** 2).sum() / base
            assert skill(one.fold)[0] == pytest.approx(real, abs=0.12)


def test_intervals_of_what_is_drawn_to_the_mean_are_those_of_what_is_given(judged):
    both, truth, folds, _ = judged
    half = run(VFPUM(), both, ["income"], SHARES, own={"folds": folds, "fraction": lambda f: 0.5})
    one = half.found["income"]
    assert shrink(one.fold, 5)[1] > 0.9
    given = one.target.filler + 0.5 * (one.predicted - one.target.filler)
    inside = np.abs(given - truth["income"].to_numpy()) <= one.half
    assert 0.85 < inside.mean() < 0.955
    assert one.half.mean() > 1.5 * judged[3]["income"].half.mean()


def test_widths_follow_the_expected_error():
    rng = np.random.default_rng(0)
    both, _ = tables(common=600, rest=900, seed=5)
    table = both["B"].table
    wide = np.exp(table.frame["income"].to_numpy() / 300)  # errors grow with the value
    frame = table.frame.assign(
        id=table.ids, income=table.frame["income"] + 8 * wide * rng.normal(size=len(wide))
    )
    both["B"] = type(both["B"])(type(table).from_frame(frame, party="B", id="id"), both["B"].rows)
    folds = run(CrossFit(), both, ["income"], SHARES)
    one = run(VFPUM(), both, ["income"], SHARES, own={"folds": folds}).found["income"]
    upper = one.predicted > np.quantile(one.predicted, 0.8)
    lower = one.predicted < np.quantile(one.predicted, 0.5)
    assert one.half[upper].mean() > 1.3 * one.half[lower].mean()


def test_rounds_that_do_not_help_are_not_taken(judged):
    both, _, folds, direct = judged
    again = run(VFPUM(rounds=3, alpha=0.51, k=0.5), both, COLUMNS, SHARES, own={"folds": folds})
    for name, one in again.found.items():
        if one.stop_reason == "rounds do not lower the error of held-out rows":
            answer = direct[name].predicted
            if not one.target.classes:
                np.testing.assert_allclose(one.predicted, answer, atol=1e-9)
    reasons = [one.stop_reason for one in again.found.values()]
    assert reasons.count("rounds do not lower the error of held-out rows") >= 3


def test_rounds_that_help_are_taken(monkeypatch, judged):
    """With first models that know little, self-trained ones (here: the true ones) are better."""
    both, _, folds, direct = judged
    train = shared_roles.self_train

    def spoil(s, *rest):
        before, _ = train(s, *rest)
        return 0 * before, before

    monkeypatch.setattr(shared_roles, "self_train", spoil)
    own = {"folds": folds}
    found = run(VFPUM(rounds=2), both, ["income", "colour"], SHARES, own=own).found
    assert found["income"].stop_reason == found["colour"].stop_reason == "all rounds"
    np.testing.assert_allclose(found["income"].predicted, direct["income"].predicted, atol=1e-9)


# ---- pieces -------------------------------------------------------------------------------------


@given(seed=st.integers(0, 200), shape=st.sampled_from(["normal", "heavy", "two", "few"]))
@settings(max_examples=40, deadline=None)
def test_a_search_ends_above_the_quantile(seed, shape):
    rng = np.random.default_rng(seed)
    errors = np.abs(
        {
            "normal": rng.normal(size=400),
            "heavy": rng.standard_t(2, size=400),
            "two": rng.choice([0.1, 1.0], size=400, p=[0.95, 0.05]),
            "few": rng.normal(size=8),
        }[shape]
    )
    rms = np.sqrt((errors**2).mean())
    start = np.log(1.64 * rms)
    search = Search(np.array([start]), np.array([0.2]), np.array([len(errors)]), 0.1)
    search.know(np.array([-np.inf]), np.zeros(1, dtype=int))
    for _ in range(6):
        search.take((errors < np.exp(search.limits)).sum(keepdims=True))
    wanted = quantile(errors, 0.1)
    assert np.exp(search.high[0]) >= wanted
    if shape == "normal":
        assert np.exp(search.high[0]) < 1.1 * wanted
    assert np.isinf(search.high[0]) == (shape == "few")


def test_what_is_known_before_narrows_a_search():
    search = Search(np.array([5.0, 0.0]), np.array([1.0, 1.0]), np.array([99, 99]), 0.1)
    search.know(np.array([1.0, 1.0]), np.array([50, 95]))
    assert search.limits.tolist() == [5.0, 0.0]
    search.know(np.array([2.0, -1.0]), np.array([95, 50]))
    assert search.limits.tolist() == [1.5, 0.0]
    assert (search.low.tolist(), search.high.tolist()) == ([1.0, -1.0], [2.0, 1.0])


@given(seed=st.integers(0, 99), m=st.floats(-2, 2), slope=st.floats(0, 2))
@settings(max_examples=30, deadline=None)
def test_a_parabola_is_positive_and_fits(seed, m, slope):
    rng = np.random.default_rng(seed)
    predicted = rng.normal(size=2000)
    variance = 0.3 + slope * (predicted - m) ** 2
    squares = variance * rng.chisquare(1, size=2000)
    sums = np.array([(squares * predicted**power).mean() for power in range(3)])
    factors = fit_parabola(sums, predicted)
    everywhere = expect_squares(factors[:, None], np.linspace(-50, 50, 101)[:, None])
    assert everywhere.min() >= sums[0] / 9 * (1 - 1e-9)
    found = expect_squares(factors[:, None], predicted[:, None])[:, 0]
    flat = ((squares - squares.mean()) ** 2).mean()
    assert ((squares - found) ** 2).mean() <= flat * (1 + 1e-9)


def test_a_parabola_of_nothing_is_flat():
    assert fit_parabola(np.array([2.0, 0.0, 5.0]), np.zeros(500)).tolist() == [2.0, 0.0, 0.0]
    assert fit_parabola(np.array([2.0, 0.0, 5.0]), np.arange(20.0)).tolist() == [2.0, 0.0, 0.0]


@pytest.mark.parametrize("parties", [2, 3])
def test_the_largest_of_each_row_is_found_on_shares(parties):
    rng = np.random.default_rng(0)
    holders = ("A", "B", "C")[:parties]
    arrays = [rng.integers(-(2**20), 2**20, size=(30, width)) for width in (1, 2, 5, 8)]

    def side(channel):
        own = {**DISCLOSURES, "masked": DISCLOSURES["masked"], "largest": DISCLOSURES["goes on"]}
        with Session.join(channel.within("x", own), holders, "K") as s:
            mine = [s.share("A", a if s.me == "A" else None, a.shape, 32) for a in arrays]
            return [one.open(name="largest") for one in find_largest(mine)]

    jobs = {party: partial(side) for party in (*holders, "K")}
    for found, array in zip(run_together(jobs, transcript=Transcript())["B"], arrays, strict=True):
        np.testing.assert_array_equal(found[:, 0], array.max(axis=1))
