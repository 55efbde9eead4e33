"""The RISA experiment: its splits, its kept cells, its tables and goals, and a tiny run."""

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks import risa, risa_time
from benchmarks import risa_data as data_sets
from benchmarks.risa import (
    METHODS,
    RICHER,
    WIDER,
    Plan,
    RisaOutcome,
    beside_two_encoders,
    cases_of,
    goals,
    summarise,
    time_goals,
    validation,
    with_twice_the_rows,
)
from benchmarks.risa_data import Task, make_case, split_rows
from vfsl.datasets import available, load

DIGITS = Task("digits", 300, 200, epochs=2)


def test_a_case_has_the_same_people_in_the_overlap_only():
    case = make_case(DIGITS, 0.1, 0)
    problem = case.problem
    assert problem.overlap == 30
    assert [len(view.inputs) for view in problem.views] == [300, 300]
    assert problem.classes == 10
    assert len(case.truth) == len(case.judged[0]) == len(case.judged[1]) == 200
    whole = make_case(DIGITS, 1.0, 0).problem.views
    kept = [
        (one.inputs.numbers == other.inputs.numbers).all(dim=1).numpy()
        for one, other in zip(problem.views, whole, strict=True)
    ]
    assert kept[0].all()
    assert kept[1][:30].all()
    assert kept[1][30:].mean() < 0.1


def test_validation_rows_are_never_test_rows():
    content = load("digits")
    splits = {
        judge: [split_rows(content, task, seed, np.random.default_rng(seed)) for seed in range(3)]
        for judge, task in (("test", DIGITS), ("validation", validation(DIGITS)))
    }
    tested = {row for _, judged in splits["test"] for row in judged}
    for train, judged in splits["validation"]:
        assert not tested & set(judged)
        assert not tested & set(train)
        assert not set(train) & set(judged)


@pytest.mark.data
def test_criteo_folds_cover_every_row_once():
    if "criteo" not in available():
        pytest.skip("criteo is not here")
    content = load("criteo")
    task = Task("criteo", 6_400, 1_600, epochs=1)
    folds = [split_rows(content, task, seed, np.random.default_rng(seed))[1] for seed in range(5)]
    assert sorted(np.concatenate(folds).tolist()) == list(range(len(content.frame)))


def lines(**scores):
    """Two seeds of all methods in two cells; scores of "both" by method, 80 for the others."""
    return [
        {
            "data": data,
            "overlap": overlap,
            "seed": seed,
            "method": name,
            "metric": "accuracy",
            "both": scores.get(name.replace(" ", "_").replace("+", "_"), 80.0) + seed,
            "A alone": 70.0,
            "B alone": 60.0,
            "seconds": 2.0,
        }
        for data, overlap in (("mnist", 0.01), ("census", 0.1))
        for seed in (0, 1)
        for name in (*METHODS, "IMP")
    ]


def test_rows_have_means_deviations_and_paired_gaps():
    rows = summarise(lines(RISA_plus=82.0, FedCVT=81.0))
    assert len(rows) == 2 * (len(METHODS) + 1)
    plus = next(row for row in rows if row["method"] == "RISA plus")
    assert (plus["both"], plus["both ±"], plus["seeds"]) == (82.5, 0.5, 2)
    assert plus["gap to best rival"] == 1.0
    assert next(row for row in rows if row["method"] == "Local")["gap to best rival"] == -1.0


def test_goals_reached_and_missed():
    good = goals(lines(RISA_plus=82.0, VFL=60.0))
    assert len(good) == 7
    assert all(line.endswith(": reached.") for line in good), good
    worse = goals(lines(RISA_plus=78.0, VFL=77.0, IMP=85.0))
    missed = [place for place, line in enumerate(worse) if "NOT reached" in line]
    assert missed == [0, 1, 2, 3, 4, 5, 6]


def test_latex_has_the_best_in_bold(tmp_path):
    outcome = RisaOutcome("risa", "title", summarise(lines(RISA_plus=82.0)))
    outcome.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "risa.csv",
        "risa.json",
        "risa.md",
        "risa.tex",
    ]
    text = (tmp_path / "risa.tex").read_text()
    assert text.count("\\textbf{82.50 $\\pm$ 0.50}") == 2
    assert text.count("\\textbf") == 2
    assert "mnist 1\\% & census 10\\%" in text


@pytest.mark.slow
def test_a_tiny_run(monkeypatch, tmp_path):
    monkeypatch.setenv("VFSL_BENCH_CACHE", str(tmp_path))
    plan = Plan(
        ((DIGITS, (0.2,), (0,)), (Task("nothing", 1, 1, 1), (0.1,), (0,))), timed=("digits",)
    )
    monkeypatch.setattr(risa, "QUICK", plan)
    monkeypatch.setitem(risa_time.TASKS, "digits", Task("digits", 200, 50, epochs=3, batch_size=32))
    heard = []
    outcome = risa.run(True, heard.append)
    named = [row["method"] for row in outcome.rows if "method" in row]
    assert named == [*METHODS, *RICHER]
    assert all(row["both"] > 10 for row in outcome.rows if "method" in row)
    assert "nothing was left out" in outcome.notes[0]
    assert outcome.rows[-1]["ratio"] > 0
    assert outcome.rows[-1]["MB an epoch"] > 0
    assert not list(tmp_path.iterdir())  # a quick run keeps nothing


def test_twice_the_rows_are_as_many_steps():
    problem = make_case(DIGITS, 0.1, 0).problem
    more = with_twice_the_rows(problem)
    assert more.learning.batch_size == 2 * problem.learning.batch_size
    assert abs(more.steps - problem.steps) <= problem.learning.epochs


def test_a_wider_plus_stands_beside_the_rival_with_two_encoders(monkeypatch):
    monkeypatch.setattr(data_sets, "require", lambda task: None)
    plan = Plan(tuple((Task(name, 9, 9, 1, width=8), (0.1,), (0,)) for name in ("mnist", "census")))
    cases = list(cases_of(plan, []).values())
    assert [(case.task.data, case.task.width) for case in cases if case.method == WIDER] == [
        ("mnist", 12)
    ]
    scores = {"FedCVT": 90.0, WIDER: 90.5}
    lines = [
        {"data": "mnist", "overlap": 0.1, "seed": 0, "method": name, "both": both}
        for name, both in scores.items()
    ]
    assert beside_two_encoders(lines) == [
        "RISA plus, wider, compared with FedCVT on mnist 10%: +0.50 points."
    ]
    assert beside_two_encoders(lines[:1]) == []


def test_epochs_are_judged_by_the_kind_of_network():
    rows = [{"data": "census", "ratio": 1.9}, {"data": "mnist", "ratio": 1.9}, {"data": "digits"}]
    assert time_goals(rows) == [
        "Goal, an epoch over a channel ≤ 2.0 × one graph, census: 1.90 ×: reached.",
        "Goal, an epoch over a channel ≤ 1.3 × one graph, mnist: 1.90 ×: NOT reached.",
    ]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    "task",
    [Task("mnist", 2_000, 2_000, epochs=15, width=8), Task("criteo", 6_400, 1_600, epochs=6)],
    ids=lambda task: task.data,
)
def test_without_its_three_parts_risa_is_vfl(task):
    """As in the paper's ablation; before rows had the same steps, 30 points were between them."""
    if task.data not in available():
        pytest.skip(f"{task.data} is not here")
    gaps = []
    for seed in range(5, 10):
        case = make_case(task, 0.1, seed)
        both = [risa.measure(name, case)["both"] for name in (risa.NONE, "VFL")]
        gaps.append(both[0] - both[1])
    assert abs(np.mean(gaps)) <= 1.5
