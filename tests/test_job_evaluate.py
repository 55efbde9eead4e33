"""Measures, bootstrap bounds, baselines and rows held out, each against an independent value."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score, root_mean_squared_error

from vfsl.data import PartyTable
from vfsl.job.alone import OWN_LINEAR, OWN_TREES, PRIOR, order_chances, predict_alone
from vfsl.job.evaluate import judge_ranking
from vfsl.job.judging import Interval, Ranked, Scores, auc, measure_answer, measures_for
from vfsl.job.verdict import Way, ask_all, give_headline, judge_gain
from vfsl.parts import Part


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=60))
def test_auc_is_that_of_scikit_learn(rows):
    positive = np.array([row[0] for row in rows])
    scores = np.array([float(row[1]) for row in rows])
    if positive.all() or not positive.any():
        assert np.isnan(auc(positive, scores))
    else:
        assert auc(positive, scores) == pytest.approx(roc_auc_score(positive, scores))
    # Each row any number of times, as in a bootstrap sample.
    times = np.arange(len(rows)) % 3
    again = np.repeat(np.arange(len(rows)), times)
    expected = auc(positive[again], scores[again])
    assert Ranked(positive, scores).auc(times.astype(float)) == pytest.approx(expected, nan_ok=True)


def test_measures_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 80)
    chances = rng.dirichlet(np.ones(3), 80)
    assert measure_answer("accuracy", truth, chances) == accuracy_score(
        truth, chances.argmax(axis=1)
    )
    assert measure_answer("log loss", truth, chances) == pytest.approx(log_loss(truth, chances))
    numbers, guess = rng.normal(size=80), rng.normal(size=80)
    assert measure_answer("RMSE", numbers, guess) == pytest.approx(
        root_mean_squared_error(numbers, guess)
    )
    assert measures_for(None) == ("RMSE",)
    assert measures_for(2)[0] == "AUC"
    assert "AUC" not in measures_for(3)


def test_a_class_without_chance_costs_much_but_not_everything():
    truth, chances = np.array([0, 1]), np.array([[1.0, 0.0], [1.0, 0.0]])
    assert measure_answer("log loss", truth, chances) == pytest.approx(-np.log(1e-15) / 2)


def test_bounds_hold_the_true_value_about_as_often_as_they_say():
    """The mean of squares of normal numbers: 90 % bounds of RMSE, 200 times."""
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        truth = rng.normal(size=100)
        found = Scores(truth, {"0": np.zeros(100)}, ("RMSE",), 200, 0.9, rng).interval("0", "RMSE")
        inside += found.low <= 1.0 <= found.high
    assert 165 <= inside <= 195


def test_gains_are_paired_and_positive_is_better():
    rng = np.random.default_rng(2)
    truth = rng.normal(size=300)
    near, far = truth + 0.1, truth + 0.5
    told = []
    answers = {"near": near, "far": far}
    scores = Scores(
        truth, answers, ("RMSE",), 200, 0.95, rng, lambda done, total: told.append((done, total))
    )
    assert told == [(0, 200), (50, 200), (100, 200), (150, 200)]
    gain = scores.gain("near", "far", "RMSE")
    assert gain.value == pytest.approx(0.4)
    assert gain.low == pytest.approx(0.4)  # the difference is the same on any rows
    assert gain.high == pytest.approx(0.4)
    assert scores.gain("far", "near", "RMSE").value == pytest.approx(-0.4)
    assert scores.best(["far", "near"], "RMSE") == "near"


def scores_of(rng, truth, noises):
    """Answers that see the truth through so much noise each."""

    def chances(noise):
        score = 1 / (1 + np.exp(-(2.0 * truth - 1 + noise)))
        return np.column_stack([1 - score, score])

    return Scores(truth, {n: chances(v) for n, v in noises.items()}, ("AUC",), 200, 0.95, rng)


WAYS = {
    "logistic": Way("logistic", "common"),
    "with completed rows": Way("logistic", "completed"),
    "risa": Way("risa", "all"),
}


def test_every_question_is_answered_and_the_headline_names_the_simple_way():
    rng = np.random.default_rng(3)
    rows = 3000
    truth = rng.integers(0, 2, rows)
    noise = rng.normal(size=rows)
    worse = 3 * noise + 2 * rng.normal(size=rows)
    alike = {"logistic": noise, "with completed rows": noise, "risa": worse, "own": worse}
    scores = scores_of(rng, truth, alike)
    found = ask_all(scores, WAYS, ["own"], "AUC", rows)
    assert [(one.about, one.over, one.verdict) for one in found] == [
        ("logistic", "own", "helps"),
        ("with completed rows", "logistic", "does not help"),
        ("risa", "logistic", "hurts"),
    ]
    text, tone = give_headline(found, scores, "A", "AUC")
    assert tone == "helps"
    assert text.startswith("Use “logistic”: held-out AUC 0.")
    assert "“with completed rows” adds AUC +0.000 (+0.000 to +0.000): not worth it." in text
    assert found[0].text.startswith("Do the other parties' columns help? Yes: AUC +0.")
    assert "on 3,000 held-out rows, “logistic” beside “own”." in found[0].text

    scores = scores_of(rng, truth, {**alike, "with completed rows": noise / 9, "logistic": worse})
    found = ask_all(scores, WAYS, ["own"], "AUC", rows)
    text, tone = give_headline(found, scores, "A", "AUC")
    assert tone == "does not help"
    assert text.startswith("Stay with what A has alone (“own”)")

    scores = scores_of(rng, truth, {**alike, "with completed rows": noise / 9, "own": 3 * worse})
    found = ask_all(scores, WAYS, ["own"], "AUC", rows)
    assert give_headline(found, scores, "A", "AUC")[0].startswith("Use “with completed rows”")

    few = truth[:30]
    unsure = scores_of(rng, few, {"logistic": 2 * rng.normal(size=30), "own": worse[:30]})
    found = ask_all(unsure, {"logistic": WAYS["logistic"]}, ["own"], "AUC", 30)
    assert found[0].verdict == "cannot tell"
    assert "Hold out more rows" in give_headline(found, unsure, "A", "AUC")[0]


def test_what_bounds_say():
    assert judge_gain(Interval(0.02, 0.001, 0.04), 0.01) == "helps"
    assert judge_gain(Interval(-0.02, -0.04, -0.001), 0.01) == "hurts"
    assert judge_gain(Interval(0.0, -0.1, 0.009), 0.01) == "does not help"
    assert judge_gain(Interval(0.002, 0.001, 0.004), 0.01) == "does not help"  # sure, but too small
    assert judge_gain(Interval(0.0, -0.1, 0.011), 0.01) == "cannot tell"


def test_vfpu_is_judged_by_rows_that_it_did_not_learn_from():
    """A ranking that knows the other party's column beats own columns; a random one does not."""
    rng = np.random.default_rng(5)
    rows = 600
    own, other = rng.normal(size=(2, rows))
    truth = own + 2 * other > 0.5
    marked = truth & (rng.random(rows) < 0.3)
    frame = pd.DataFrame({"id": range(rows), "x": own, "y": np.where(truth, "yes", "no")})
    table = PartyTable.from_frame(frame, party="A", id="id", label="y")
    part = Part(table, np.arange(rows), frame["y"].to_numpy(dtype=object))
    places = np.flatnonzero(~marked)
    ranking = 1 / (1 + np.exp(-(own + 2 * other)))[places]
    found = judge_ranking(part, places, ranking, marked, 200, 0.95, rng)
    assert found.verdict == "helps"
    assert found.rows == len(places)
    chance = judge_ranking(part, places, rng.random(len(places)), marked, 200, 0.95, rng)
    assert chance.verdict == "hurts"
    assert judge_ranking(part, places[:9], ranking[:9], marked, 200, 0.95, rng) is None


def test_baselines_see_own_columns_only_and_the_prior_sees_none():
    rng = np.random.default_rng(4)
    x = rng.normal(size=300)
    frame = pd.DataFrame({"id": [str(i) for i in range(300)], "x": x, "c": ["u", "v"] * 150})
    table = PartyTable.from_frame(frame, party="A", id="id")
    train, test = np.arange(200), np.arange(200, 300)
    classes = (x > 0).astype(int)
    found = predict_alone(table, train, classes[:200], test, ["n", "y"], rng)
    assert list(found) == [OWN_TREES, OWN_LINEAR, PRIOR]
    for name in (OWN_TREES, OWN_LINEAR):
        assert measure_answer("AUC", classes[200:], found[name]) > 0.98
        np.testing.assert_allclose(found[name].sum(axis=1), 1.0)
    np.testing.assert_allclose(found[PRIOR][:, 1], classes[:200].mean())
    numbers = predict_alone(table, train, x[:200] * 3, test, None, rng)
    assert measure_answer("RMSE", x[200:] * 3, numbers[OWN_LINEAR]) < 0.2
    assert measure_answer("RMSE", x[200:] * 3, numbers[OWN_TREES]) < 0.8
    np.testing.assert_allclose(numbers[PRIOR], (x[:200] * 3).mean())


def test_classes_that_a_model_never_saw_get_no_chance():
    whole = order_chances(np.array([[0.4, 0.6]]), [0, 2], 3)
    np.testing.assert_allclose(whole, [[0.4, 0.0, 0.6]])
