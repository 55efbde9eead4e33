"""Probabilities of classes from sums of scores: those of a logistic model that sees the rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from vfsl.completion import class_sums
from vfsl.completion.class_sums import (
    ClassErrors,
    ClassModel,
    Counted,
    ScoreSums,
    draw_classes,
    draw_halves,
    find_margins,
    fit_to_sums,
    number_cells,
)
from vfsl.completion.columns import losses, make_target, merge_rare, skill
from vfsl.data import PartyTable


def scored(rows=1500, classes=4, seed=0, signal=1.0, levels=None):
    """A category, indicator scores of its rows as a linear model has them, and of other rows."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_t(4, size=(2 * rows, 3))
    logits = signal * hidden @ rng.normal(size=(3, classes)) + rng.normal(size=classes)
    codes = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    hot = np.eye(classes)[codes][:, 1:]
    design = np.column_stack([hidden, np.ones(2 * rows)])
    scores = design @ np.linalg.lstsq(design, hot, rcond=None)[0]
    names = np.array(levels or [f"c{i}" for i in range(classes)])[codes]
    frame = pd.DataFrame({"x": names[:rows], "id": np.arange(rows).astype(str)})
    target = make_target(PartyTable.from_frame(frame, party="B", id="id"), "x")
    # By frequency or name, the table has an order of its own.
    order = [target.levels.index(name) for name in (levels or [f"c{i}" for i in range(classes)])]
    own = np.zeros((2 * rows, classes))
    own[:, order] = np.column_stack([1 - scores.sum(axis=1), scores])
    truth = np.array(order)[codes]
    return target, own[:, 1:], truth


def sums_of(target, scores, halves):
    rows, classes = len(target.filled), target.width + 1
    errors = scores[:rows] - np.eye(classes)[target.grouped][:, 1:]
    cells = number_cells(target.grouped, halves, target.known, classes)
    by_cell = np.eye(2 * classes)[cells].T @ errors
    return ClassErrors(by_cell.reshape(2, classes, -1), errors.T @ errors)


def test_a_model_of_sums_is_the_model_of_the_rows():
    target, scores, truth = scored()
    rows = len(target.filled)
    inside = (scores[:rows] - scores[:rows].mean(axis=0)) / scores[:rows].std(axis=0)
    hot = np.eye(4)[truth[:rows]]
    found = fit_to_sums(hot.T @ inside / rows, hot.mean(axis=0), inside, 1 / rows)
    model = LogisticRegression(max_iter=5000, tol=1e-10).fit(inside, truth[:rows])
    logits = inside @ found[:-1] + found[-1]
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(chances, model.predict_proba(inside), atol=2e-3)


@pytest.mark.parametrize("classes", [2, 4, 8])
def test_scores_of_other_rows_are_as_good(classes):
    target, scores, truth = scored(classes=classes, seed=classes)
    rows, rng = len(target.filled), np.random.default_rng(0)
    halves = draw_halves(target.grouped, classes, rng)
    model = ClassModel.fit(
        target, sums_of(target, scores, halves), halves, scores[rows:], 4 / rows, rng
    )
    seen = LogisticRegression(max_iter=2000).fit(scores[:rows], truth[:rows])
    hot = np.eye(classes)[truth[rows:]]
    base = ((hot.mean(axis=0) - hot) ** 2).sum()
    ours, theirs = (
        1 - ((chances - hot) ** 2).sum() / base
        for chances in (model.scale.chances(scores[rows:]), seen.predict_proba(scores[rows:]))
    )
    assert ours > 0.95 * theirs > 0.1
    said, error = skill(model.hold_out(rng))
    assert said == pytest.approx(ours, abs=4 * error)


def test_scores_that_say_nothing_are_judged_so():
    """Measured means of many classes differ by chance; that must not look like skill."""
    target, scores, _ = scored(rows=400, classes=8, signal=0.0, seed=3)
    rows, rng = 400, np.random.default_rng(0)
    scores = 0.02 * rng.normal(size=scores.shape) + scores.mean(axis=0)
    halves = draw_halves(target.grouped, 8, rng)
    model = ClassModel.fit(
        target, sums_of(target, scores, halves), halves, scores[rows:], 4 / rows, rng
    )
    assert skill(model.hold_out(rng))[0] < 0.03
    assert skill(draw_classes(target, sums_of(target, scores, halves), halves, rng))[0] < 0.03


def test_what_leaving_out_makes_is_no_skill():
    """Directions in which only held-out scores vary tell a row's class, and nothing of new rows."""
    target, scores, _ = scored(rows=600, classes=4, signal=0.3)
    rows, rng = 600, np.random.default_rng(0)
    line = scores.mean(axis=0) + np.outer(rng.normal(size=2 * rows), [0.1, 0.05, -0.1])
    held = line.copy()
    held[:rows] -= 0.01 * np.eye(4)[target.grouped][:, 1:]  # as a leverage of 0.01 does
    halves = draw_halves(target.grouped, 4, rng)
    sums = sums_of(target, held, halves)
    model = ClassModel.fit(target, sums, halves, line[rows:], 0.01, rng)
    chances = model.scale.chances(line[rows:])
    assert np.abs(chances - target.frequencies()).max() < 0.15
    with pytest.MonkeyPatch.context() as patch:  # the control
        patch.setattr(class_sums, "_LEAST_RATIO", 0.0)
        noise = 1e-4 * rng.normal(size=(rows, 3))
        spoilt = ClassModel.fit(target, sums, halves, line[rows:] + noise, 0.0, rng)
    assert np.abs(spoilt.every.weights).max() > 10 * np.abs(model.every.weights).max()


def test_drawn_scores_have_the_measured_squared_error():
    target, scores, _ = scored(rows=700)
    rng = np.random.default_rng(0)
    halves = draw_halves(target.grouped, 4, rng)
    fold = draw_classes(target, sums_of(target, scores, halves), halves, rng)
    groups = np.column_stack([1 - scores.sum(axis=1), scores])[:700]
    expected = ((groups - np.eye(4)[target.grouped]) ** 2).sum(axis=1)
    assert losses(fold)[0].mean() == pytest.approx(expected.mean(), rel=1e-6)
    for code in range(4):  # not the rows' own ones
        here = target.grouped == code
        assert abs(np.corrcoef(losses(fold)[0][here], expected[here])[0, 1]) < 0.45


def test_rows_are_drawn_with_margins_as_counted():
    target, scores, _ = scored(rows=1000)
    rng = np.random.default_rng(0)
    halves = draw_halves(target.grouped, 4, rng)
    model = ClassModel.fit(
        target, sums_of(target, scores, halves), halves, scores[1000:], 0.004, rng
    )
    counted = Counted(np.array([-1.0, 0.0, 2.0]), np.array([0.1, 0.35, 0.8]))
    fold = model.hold_out(rng, counted)
    margins = find_margins(np.log(fold.chances))[np.arange(1000), target.filled.astype(int)]
    found = [(margins <= edge).mean() for edge in counted.margins]
    np.testing.assert_allclose(found, counted.within, atol=0.04)
    assert (fold.predicted == target.filled).mean() == pytest.approx(0.35, abs=0.04)


def test_few_rows_of_a_class_are_not_divided_and_rare_classes_share_a_group():
    names = np.repeat(["a", "b", "c", "d"], [60, 30, 15, 4])
    frame = pd.DataFrame({"x": names, "id": np.arange(len(names)).astype(str)})
    target = merge_rare(make_target(PartyTable.from_frame(frame, party="B", id="id"), "x"), 10)
    rng = np.random.default_rng(0)
    halves = draw_halves(target.grouped, 3, rng)
    counts = np.bincount(number_cells(target.grouped, halves, target.known, 3), minlength=6)
    assert (counts[counts > 0] >= class_sums.LEAST_OF_CLASS - 1).all()
    assert sorted(counts.tolist()) in ([0, 15, 19, 30, 30, 15], sorted([30, 30, 15, 15, 19, 0]))
    errors = rng.normal(size=(len(names), 2)) * 0.1
    by_cell = np.eye(6)[number_cells(target.grouped, halves, target.known, 3)].T @ errors
    sums = ScoreSums.of(
        ClassErrors(by_cell.reshape(2, 3, 2), errors.T @ errors),
        target.grouped,
        halves,
        target.known,
    )
    assert sums.counts.sum() == len(names)
    scores = errors + np.eye(3)[target.grouped][:, 1:]
    np.testing.assert_allclose(sums.mean, scores.mean(axis=0))
    np.testing.assert_allclose(sums.covariance, np.cov(scores.T, bias=True), atol=1e-12)


@given(seed=st.integers(0, 99), classes=st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_margins_are_of_the_best_other_class(seed, classes):
    logits = np.random.default_rng(seed).normal(size=(20, classes))
    found = find_margins(logits)
    for row in range(20):
        for code in range(classes):
            others = np.delete(logits[row], code)
            assert found[row, code] == others.max() - logits[row, code]
