"""Marks, controls, and the risks of released tables against values that are known."""

import numpy as np
import pytest
from scipy.stats import binomtest

from vfsl.audit.columns import count_directions
from vfsl.audit.findings import INVALID, RED, Marks, at_chance, open_door
from vfsl.audit.probe import Probe
from vfsl.audit.released import distance_ratio, find_risk, link, membership_auc, wilson
from vfsl.audit.run import Audit

MARKS = Marks(0.1, 0.5)
PROBE = Probe("a probe", "?", "a number", MARKS, lambda case, probe: iter(()))


def test_marks():
    assert [MARKS.judge(value) for value in (0.1, 0.3, 0.5, 0.6)] == [
        "green",
        "amber",
        "amber",
        "red",
    ]


@pytest.mark.parametrize(
    ("opened", "closed", "mark"), [(0.9, 0.0, "green"), (0.4, 0.0, INVALID), (0.9, 0.4, INVALID)]
)
def test_a_failed_control_makes_an_audit_invalid_and_never_green(opened, closed, mark):
    controls = [open_door("open", opened, MARKS), at_chance("closed", closed, MARKS)]
    finding = PROBE.finding("B", "C", 0.0, 0.0, controls)
    red = PROBE.finding("B", "C", 0.9, 0.0, controls)
    assert finding.mark == mark
    assert red.mark == (INVALID if mark == INVALID else RED)
    audit = Audit((finding,), 0.0)
    assert audit.fails("red") == (mark == INVALID)
    assert ("not valid" in audit.tell()) == (mark == INVALID)


def test_a_finding_needs_both_controls():
    assert PROBE.finding("B", "C", 0.0, 0.0, [open_door("open", 1.0, MARKS)]).mark == INVALID


@pytest.mark.parametrize(("hits", "tries"), [(0, 20), (7, 20), (300, 300)])
def test_rates_are_wilson_intervals(hits, tries):
    low, high = binomtest(hits, tries).proportion_ci(method="wilson")
    rate = wilson(hits, tries)
    np.testing.assert_allclose([rate.value - rate.error, rate.value + rate.error], [low, high])


def test_risk_is_what_the_release_tells_beyond_people_in_general():
    half, whole = np.arange(400) < 200, np.ones(400, dtype=bool)
    assert find_risk(half, half).value == 0.0
    assert find_risk(whole, half).value > 0.95
    risk = find_risk(np.arange(400) < 300, half)
    assert risk.low < 0.5 < risk.high


def test_a_release_of_the_training_rows_is_found_and_one_of_other_rows_is_not():
    rows = np.random.default_rng(0).normal(size=(900, 6))
    training, held_out, others = np.split(rows, 3)
    assert distance_ratio(training, training, held_out) == 0.0
    assert membership_auc(training, training, held_out) == 1.0
    assert link(training, training, 3).mean() > 0.99
    assert 0.9 < distance_ratio(others, training, held_out) < 1.1
    assert abs(membership_auc(others, training, held_out) - 0.5) < 0.07
    assert link(others, training, 3).mean() < 0.3


def test_scores_show_as_many_directions_as_there_are_independent_ones():
    rng = np.random.default_rng(0)
    theirs, own = rng.normal(size=(300, 5)), rng.normal(size=(300, 2))
    for count in (1, 3, 5):
        scores = theirs @ rng.normal(size=(5, count)) + own @ rng.normal(size=(2, count))
        assert count_directions(scores, theirs, own) == (count, 5)
    noise = rng.normal(size=(300, 4))
    assert count_directions(noise, theirs, own) == (0, 5)
