"""RISA of the paper by τ_p, τ_0, E and rule of fusion, and what removal finds under label noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.cells import Cells
from benchmarks.figures import Panels
from benchmarks.paper.common import average, find_data
from benchmarks.paper.sizes import RisaSweepSizes
from benchmarks.risa_data import Task, make_case
from benchmarks.table import Outcome
from vfsl.evidence.risa import RISA, need_torch
from vfsl.evidence.rows import UNKNOWN, Numbers
from vfsl.evidence.switches import switches_of

# Raise this when a change of code changes results, so that older kept cells are not used.
EDITION = 1
METRICS = (
    "both",
    "A alone",
    "B alone",
    "pseudo labels",
    "left",
    "wrong among left",
    "wrong before",
    "found of wrong",
    "seconds",
)


@dataclass(frozen=True)
class SweepCase:
    """Everything that the result of one cell depends on."""

    task: Task
    overlap: float
    seed: int
    tau_p: float = RISA.tau_p
    tau_0: float = RISA.tau_0
    every: int = RISA.every
    fusion: str = "sequence"
    removal: str = "uncertainty"
    noise: float = 0.0


def flip(labels: Numbers, classes: int, fraction: float, rng: np.random.Generator) -> Numbers:
    """The labels with a random fraction of the known ones replaced by another class each."""
    known = np.flatnonzero(labels != UNKNOWN)
    chosen = rng.permutation(known)[: round(fraction * len(known))]
    flipped = labels.copy()
    flipped[chosen] = (labels[chosen] + rng.integers(1, classes, len(chosen))) % classes
    return flipped


def sweep_cell(case: SweepCase) -> dict[str, Any]:
    """Train RISA of the paper with these settings; who left is compared with who is wrong."""
    import time

    from benchmarks.rivals.together import Together
    from vfsl.evidence.course import Course

    made = make_case(case.task, case.overlap, case.seed)
    clean, rng = made.problem.labels, np.random.default_rng([case.seed, 77])
    problem = replace(made.problem, labels=flip(clean, made.problem.classes, case.noise, rng))
    risa = RISA(tau_p=case.tau_p, tau_0=case.tau_0, every=case.every)
    changes = {"fusion": case.fusion, "removal": case.removal}
    started = time.process_time()
    together = Together(Course(risa, switches_of("paper", changes), problem.learning))
    fitted = together.fit(problem, rng)
    seconds = time.process_time() - started
    first, second = made.judged
    learned = together.learned_
    wrong = problem.labels != clean
    left = np.array([line["row"] for line in learned.left], dtype=np.int64)
    labelled = left[left < len(wrong)]
    return {
        "both": made.quality(fitted(first, second)),
        "A alone": made.quality(fitted(first, None)),
        "B alone": made.quality(fitted(None, second)),
        "pseudo labels": int(((learned.labels != UNKNOWN) & ~learned.labelled).sum()),
        "left": len(left),
        "wrong among left": float(wrong[labelled].mean()) if len(labelled) else None,
        "wrong before": float(wrong.mean()),
        "found of wrong": float(wrong[labelled].sum() / wrong.sum()) if wrong.any() else None,
        "seconds": seconds,
    }


def run(name: str, sizes: RisaSweepSizes, say: Callable[[str], None], keep: bool) -> Outcome:
    """One setting at a time, then label noise with each score of removal and without."""
    need_torch(f"The experiment {name}")
    notes: list[str] = []
    groups: list[tuple[str, str, str, dict[str, Any]]] = []
    for data in find_data(sizes.data, notes):
        groups += [
            (data, f"by {setting}", f"{value}", {setting: value})
            for setting in ("tau_p", "tau_0", "every")
            for value in getattr(sizes, setting)
        ]
        groups += [(data, "by fusion", rule, {"fusion": rule}) for rule in ("sequence", "dempster")]
        groups += [
            (data, "by label noise", f"{noise:.0%}, {removal}", {"noise": noise} | _by(removal))
            for noise in sizes.noise
            for removal in ("uncertainty", "label", "none", "dempster")
        ]
    cases = {
        f"{data}, {what}, {value}, seed {seed}": SweepCase(
            _task(data, sizes), sizes.overlap, seed, **change
        )
        for data, what, value, change in groups
        for seed in sizes.seeds
    }
    results = Cells("paper-risa", EDITION, say, keep=keep, lasting=True).all(sweep_cell, cases)
    found = dict(zip(cases, results, strict=True))
    rows = []
    for data, what, value, _ in groups:
        mine = [found[f"{data}, {what}, {value}, seed {seed}"] for seed in sizes.seeds]
        rows.append({"what": what, "data": data, "value": value, **average(mine, METRICS)})
    rows.sort(key=lambda row: list(dict.fromkeys(group[1] for group in groups)).index(row["what"]))
    panels = [
        Panels("both", ("value",), ("what", "data"), "both ±"),
        Panels("found of wrong", ("value",), ("what", "data"), "found of wrong ±"),
    ]
    title = "RISA by its settings, and under label noise"
    return Outcome(name, title, rows, [*notes, *_NOTES], panels, command="paper")


def _by(removal: str) -> dict[str, Any]:
    """Switches of a way to remove; Dempster's rule removes by its own uncertainty."""
    return {"fusion": "dempster"} if removal == "dempster" else {"removal": removal}


def _task(data: str, sizes: RisaSweepSizes) -> Task:
    return Task(data, sizes.rows, sizes.judged, sizes.epochs, sizes.width)


_NOTES = (
    "The paper names τ_p, τ_0 and E and says how they matter, but prints neither their values nor "
    "a figure of them; there is nothing to stand beside ours.",
    "variant='paper' with one setting changed: tau_p 0.9, tau_0 0.3 and every (E) 2 otherwise.",
    "label noise: that fraction of A's labels is replaced by another class. wrong among left is "
    "the fraction of the labelled rows that left whose label was wrong; wrong before is that of "
    "all of A's rows. A removal that knows nothing has both alike.",
    "uncertainty is the paper's score, label is 1 − p_label / p_max, dempster is the paper's score "
    "after Dempster's rule, none removes nobody.",
)
