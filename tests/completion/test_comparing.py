"""Gains with bounds: against scikit-learn, the delta method by hand, and repeated draws."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

from vfsl.completion.comparing import bounds, compare_ways, gain, judge, verdict


def error(judged):
    return float(np.sqrt((judged[1] ** 2).sum()))


def draw(rng, rows=400, strength=1.0):
    codes = rng.integers(0, 2, rows)
    base = rng.normal(size=rows) + codes
    return codes, base[:, None], (base + strength * codes * rng.normal(1, 1, rows))[:, None]


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    codes, one, _ = draw(rng)
    assert judge(one.round(1), codes, 2)[0] == pytest.approx(
        roc_auc_score(codes, one.round(1)[:, 0])
    )
    numbers = rng.normal(size=50)
    assert judge(one[:50], numbers, None)[0] == pytest.approx(r2_score(numbers, one[:50, 0]))
    logits, several = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    right = accuracy_score(several, logits.argmax(axis=1))
    assert judge(logits, several, 3)[0] == pytest.approx(right)


def test_delong_by_hand():
    """Placements of positives 1, .5, 1 and of negatives 1, 2/3 by counting pairs."""
    scores, codes = np.array([[4.0], [2.0], [3.0], [1.0], [2.5]]), np.array([1, 1, 1, 0, 0])
    auc, parts = judge(scores, codes, 2)
    assert auc == pytest.approx(5 / 6)
    expected = np.array([1, 0.5, 1, 1, 2 / 3]) - 5 / 6
    np.testing.assert_allclose(parts, expected / [3, 3, 3, 2, 2])


@pytest.mark.parametrize("classes", [2, 3, None])
def test_errors_are_those_of_repeated_samples(classes):
    """The error of a score and of a gain against the deviation over fresh samples."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(300):
        truth, one, two = draw(rng)
        if classes == 3:
            one, two = (np.hstack([1 - s, s, s - 2]) for s in (one, two))
        if classes is None:
            truth = truth + 0.1 * rng.normal(size=len(truth))
        judged = judge(one, truth, classes), judge(two, truth, classes)
        more = gain(judged[1], judged[0])
        found.append(
            (judged[0][0], error(judged[0]), more["gain"], more["gain high"] - more["gain"])
        )
    scores, errors, gains, widths = np.array(found).T
    assert errors.mean() == pytest.approx(scores.std(), rel=0.15)
    assert widths.mean() == pytest.approx(1.96 * gains.std(), rel=0.15)


def test_a_way_against_itself_gains_nothing_for_sure():
    codes, one, _ = draw(np.random.default_rng(2))
    judged = judge(one, codes, 2)
    assert gain(judged, judged) == {"gain": 0.0, "gain low": 0.0, "gain high": 0.0}
    around = bounds(judged)
    assert around["high"] - around["score"] == pytest.approx(1.96 * error(judged))


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.008, 0.016, "Completion adds 0.012 ± 0.004 AUC over nothing."),
        (-0.016, -0.008, "Completion costs 0.012 ± 0.004 AUC against nothing: do without."),
        (-0.01, 0.002, "does not help here: −0.004 ± 0.006 AUC over nothing may be chance."),
    ],
)
def test_verdicts(low, high, words):
    found = {"gain": (low + high) / 2, "gain low": low, "gain high": high}
    assert words in verdict(found, "AUC", "Completion", "nothing")


def test_a_comparison_of_ways():
    codes, one, two = draw(np.random.default_rng(3), strength=2.0)
    ways = {"alone": one, "gaps": one + 0.0, "filled": two, "blend": two}
    names = {"alone": "alone", "missing": "gaps", "completed": "filled", "best": "blend"}
    found = compare_ways(ways, codes, 2, **names, measure="AUC", parties=("A", "B"))
    assert [line["way"] for line in found["ways"]] == list(ways)
    assert "gain" not in found["ways"][0]
    assert found["ways"][1]["gain"] == 0
    first, second = found["verdicts"]
    assert first["text"].startswith("Learning with B adds")
    assert second["text"].startswith("Completion adds")
    assert first["low"] > 0
    nothing = compare_ways(
        {"alone": one, "blend": one}, codes, 2, **names, measure="AUC", parties=("A", "B")
    )
    assert [one["text"] for one in nothing["verdicts"]] == [
        "Learning with B does not help here: +0.000 ± 0.000 AUC over A's own columns alone may be "
        "chance. Use A's own columns only."
    ]


def test_one_class_has_no_score():
    score, parts = judge(np.zeros((4, 1)), np.ones(4), 2)
    assert np.isnan(score)
    assert np.isnan(parts).all()
    assert np.isnan(judge(np.zeros((4, 1)), np.ones(4), None)[0])
