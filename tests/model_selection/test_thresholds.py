"""Thresholds: each rule against brute force, judged on rows that did not choose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, precision_score, recall_score

from vfsl.errors import ConfigError
from vfsl.estimators import LinearRegression, LogisticRegression, load_model, save_model
from vfsl.model_selection import Rule, choose_threshold
from vfsl.model_selection.thresholds import count_by_threshold, list_thresholds, tell_threshold

ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 10)), min_size=1, max_size=40)


def split(rows):
    return np.array([row[0] for row in rows]), np.array([row[1] / 10 for row in rows])


def every_set(scores):
    """All sets of rows that a threshold can flag."""
    return [scores >= limit for limit in [*np.unique(scores), 2.0]]


@given(ROWS, st.floats(0.1, 20))
def test_cost_is_the_least_of_all(rows, cost):
    positive, scores = split(rows)

    def price(flagged):
        return (flagged & ~positive).sum() + cost * (positive & ~flagged).sum()

    found = scores >= Rule(cost=cost).choose(positive, scores)
    assert price(found) == pytest.approx(min(price(one) for one in every_set(scores)))


@given(ROWS, st.floats(0.05, 1))
def test_precision_is_reached_with_the_most_recall(rows, wanted):
    positive, scores = split(rows)
    found = scores >= Rule(precision=wanted).choose(positive, scores)
    sets = [one for one in every_set(scores) if one.any()]
    good = [one for one in sets if positive[one].mean() >= wanted]
    if good:
        assert positive[found].mean() >= wanted
        assert (found & positive).sum() == max((one & positive).sum() for one in good)
    elif positive.any():
        assert positive[found].mean() == max(positive[one].mean() for one in sets)


@given(ROWS, st.floats(0.01, 0.99))
def test_top_flags_as_near_as_ties_allow(rows, top):
    positive, scores = split(rows)
    found = (scores >= Rule(top=top).choose(positive, scores)).sum()
    nearest = min(abs(one.sum() - top * len(scores)) for one in every_set(scores))
    assert abs(found - top * len(scores)) == pytest.approx(nearest)


def test_a_number_of_top_rows_is_out_of_the_predicted_ones():
    scores = np.arange(100) / 100
    rule = Rule.read({"top": 50}).out_of(1000)
    assert rule == Rule(top=0.05)
    assert (scores >= rule.choose(scores > 0.5, scores)).sum() == 5
    assert Rule(cost=2).out_of(10) == Rule(cost=2)
    assert Rule(top=50).out_of(10) == Rule(top=1.0)


@given(ROWS)
def test_thresholds_flag_what_they_count(rows):
    positive, scores = split(rows)
    limits, hits, alarms = count_by_threshold(positive, scores)
    for limit, hit, alarm in zip(limits, hits, alarms, strict=True):
        flagged = scores >= limit
        assert (flagged & positive).sum() == hit
        assert (flagged & ~positive).sum() == alarm


def test_no_rows_choose_one_half():
    assert Rule(cost=2).choose(np.zeros(0, bool), np.zeros(0)) == 0.5


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"cost": 2, "top": 0.1}, "exactly one of"),
        ({}, "Got none instead"),
        ({"costs": 2}, "Got 'costs' instead"),
        (1.5, "a number from 0 to 1"),
        ("high", "a number"),
        ({"precision": 0}, "above 0 and at most 1"),
    ],
)
def test_wrong_rules_are_refused_in_a_sentence(value, words):
    with pytest.raises(ConfigError, match=words):
        Rule.read(value)


def test_figures_of_a_rule_are_honest():
    """Scores that say nothing: the best of many thresholds looks cheap, judged elsewhere not."""
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(40):
        positive, scores = rng.random(60) < 0.5, rng.random(60)
        rule = Rule(cost=1)
        same = scores >= rule.choose(positive, scores)
        honest = rule.flag_honestly(positive, scores, rng)
        gains.append((positive != same).mean() - (positive != honest).mean())
    assert np.mean(gains) < -0.05  # what choosing on the judged rows would have flattered by
    at = Rule(at=0.3)
    assert (at.flag_honestly(positive, scores, rng) == (scores >= 0.3)).all()


def test_the_table_of_thresholds_is_scikit_learns():
    positive, scores = np.arange(50) % 3 == 0, np.linspace(0, 1, 50)
    lines = list_thresholds(positive, scores, 0.37, cost=3)
    assert len(lines) == 20
    (chosen,) = [line for line in lines if line["chosen"]]
    assert chosen["threshold"] == 0.37
    [[left, alarms], [misses, hits]] = confusion_matrix(positive, scores >= 0.37)
    assert [chosen[name] for name in ("rightly left", "false alarms", "misses", "hits")] == [
        left,
        alarms,
        misses,
        hits,
    ]
    assert chosen["precision"] == pytest.approx(precision_score(positive, scores >= 0.37))
    assert chosen["recall"] == pytest.approx(recall_score(positive, scores >= 0.37))
    assert chosen["cost"] == alarms + 3 * misses
    assert "cost" not in list_thresholds(positive, scores, 0.37)[0]


def test_a_model_predicts_and_scores_by_its_threshold_and_keeps_it(fed, tmp_path):
    model = LogisticRegression().fit(fed, ("A", "bad"))
    plain, chances = model.predict(fed), model.predict_proba(fed)[:, 1]
    assert model.threshold_ is None
    found = choose_threshold(model, fed, cost=5)
    assert model.threshold_ == found["threshold"] < 0.5
    predicted = model.predict(fed)
    assert (predicted == np.where(chances >= found["threshold"], "yes", "no")).all()
    assert (predicted == "yes").sum() > (plain == "yes").sum()
    assert model.score(fed) == (predicted == fed.tables["A"].column("bad").to_numpy()).mean()
    counted = sum(found[name] for name in ("hits", "false alarms", "misses", "rightly left"))
    assert counted == len(predicted)
    said = tell_threshold(model.held_share, "bad")
    assert said.startswith("Predicted is bad = yes from probability 0.")
    assert said.endswith("on: cost = 5, chosen on 240 rows.")
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.threshold_ == found["threshold"]
    assert (again.predict(fed) == predicted).all()
    choose_threshold(model, fed, at=0.4)
    assert model.threshold_ == 0.4
    assert tell_threshold(model.held_share, "bad").endswith("from probability 0.4 on, as given.")
    assert tell_threshold(again.shares_["B"], "bad") == ""


def test_a_threshold_needs_two_classes(fed):
    model = LinearRegression().fit(fed, ("A", "amount"))
    with pytest.raises(ConfigError, match="with two classes"):
        choose_threshold(model, fed, cost=2)
