"""What the report shows of a completion: the same figures as the quality table, and baselines."""

import numpy as np
import pytest

from tests.completion.psg_cases import federation
from vfsl.completion.completed import baselines, confidence_by_round, distribution, picture
from vfsl.completion.fedpsg import FedPSG


@pytest.fixture(scope="module")
def case():
    fed, _ = federation(common=200, rest=150)
    return fed, FedPSG(rounds=3).fit_complete(fed, given="A", missing="B")


def test_the_step_has_the_picture(case):
    fed, done = case
    step = fed.steps[-1]
    assert step.name == "completion"
    assert step.details == {"given": "A", "missing": "B", **picture(done)}
    assert step.metrics["columns"] == 4
    assert step.seconds >= 0
    # All else was said in the parts: here the missing party orders them.
    assert {flow.message for flow in step.flows} == {"size", "resume", "order"}
    assert not step.shown
    assert sum(step.details["verdicts"].values()) == 4


def test_quality_is_that_of_the_completion(case):
    _, done = case
    lines = {line["column"]: line for line in picture(done)["quality"]}
    for name, expected in done.quality.iterrows():
        for measure in ("skill", "skill error", "coverage", "shape"):
            assert lines[name][measure] == pytest.approx(expected[measure])
        assert lines[name]["verdict"] == expected["verdict"]


def test_baselines_are_what_one_would_measure(case):
    """Mean and hot-deck of the common rows, by doing it many times."""
    _, done = case
    lines = {line["method"]: line for line in baselines(done.columns)}
    rng = np.random.default_rng(0)
    ratios, right = [], []
    for column in done.columns.values():
        truth = column.target.filled[column.target.known]
        guesses = rng.choice(truth, (200, len(truth)))
        if column.target.classes:
            right.append((guesses == truth).mean())
        else:
            ratios.append(np.sqrt(((guesses - truth) ** 2).mean()) / truth.std())
    assert lines["hot-deck"]["rmse / deviation"] == pytest.approx(np.mean(ratios), rel=0.02)
    assert lines["hot-deck"]["accuracy"] == pytest.approx(np.mean(right), abs=0.02)
    assert lines["mean and mode"]["rmse / deviation"] == 1.0
    assert lines["mean and mode"]["skill"] == 0.0
    assert lines["this run"]["skill"] == pytest.approx(done.quality["skill"].mean())
    assert lines["mean and mode"]["shape"] < lines["this run"]["shape"] < 1


def test_distributions_count_every_cell(case):
    _, done = case
    for column in done.columns.values():
        found = distribution(column)
        assert [sum(counts) for counts in found["counts"]] == [200, 150]
        assert all(n == 0 or n >= 10 for counts in found["counts"] for n in counts)
    assert set(distribution(done.columns["colour"])["levels"]) == {"red", "blue"}


def test_confidence_by_round_counts_every_routed_cell(case):
    _, done = case
    found = confidence_by_round(done.columns)
    routed = [one for one in done.columns.values() if (one.round > 0).any()]
    assert sum(line["cells"] for line in found) == 150 * len(routed)
    assert [line["round"] for line in found][-1] == "0"
    assert all(line["low"] <= line["high"] <= 1 for line in found)
    assert all(line["cells"] >= 10 for line in found)
