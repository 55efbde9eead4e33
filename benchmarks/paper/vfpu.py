"""VFPU as its text has it, over five bases, and by the numbers of iterations M and of bags T."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.cells import Cells
from benchmarks.figures import Panels
from benchmarks.paper.common import average, find_data
from benchmarks.paper.sizes import VfpuSizes
from benchmarks.pu import vfpu
from benchmarks.pu_trials import dataset, trial
from benchmarks.table import Outcome
from vfsl.errors import VfslError
from vfsl.estimators import Estimator
from vfsl.pu import BASES, VFPU

# Raise this when a change of code changes results, so that older kept cells are not used.
EDITION = 1
METRICS = ("test AUC", "hidden AP", "precision of reliable", "precision at k", "reliable")


@dataclass(frozen=True)
class VfpuCase:
    """Everything that the result of one cell depends on."""

    data: str
    rows: int
    labelled: float
    seed: int
    base: str
    outer: int
    rounds: int
    promote: float
    trees: int


def vfpu_cell(case: VfpuCase) -> dict[str, Any]:
    """One search between two parties without encryption, judged by the truth."""
    one = trial(case.data, dataset(case.data), case.rows, case.labelled, case.seed)
    model = VFPU(
        base=make_base(case.base, case.trees),
        preset="paper",
        outer=case.outer,
        rounds=case.rounds,
        promote=case.promote,
    )
    try:
        return vfpu(model, one)
    except VfslError as error:
        return {"refused": str(error)}


def make_base(name: str, trees: int) -> str | Estimator:
    """A base by name; trees with this many of them, unless 0."""
    if name == "lr" or not trees:
        return name
    made: Estimator = BASES.find(name)(n_estimators=trees)  # type: ignore[call-arg]
    return made


def points(sizes: VfpuSizes, data: str) -> list[tuple[int, int]]:
    """The pairs of M and T: a line along each where curves are asked for."""
    if data not in (sizes.curves or sizes.data):
        return [(sizes.outer, sizes.rounds)]
    along = [(outer, sizes.rounds) for outer in sizes.outers]
    across = [(sizes.outer, rounds) for rounds in sizes.many_rounds]
    return sorted({(sizes.outer, sizes.rounds), *along, *across})


def run(name: str, sizes: VfpuSizes, say: Callable[[str], None], keep: bool) -> Outcome:
    """All bases on all data, at M and T and along both."""
    notes: list[str] = []
    groups = [
        (data, base, outer, rounds)
        for data in find_data(sizes.data, notes)
        for base in sizes.bases
        for outer, rounds in points(sizes, data)
    ]
    cases = {
        f"{data}, {base}, M = {outer}, T = {rounds}, seed {seed}": VfpuCase(
            data,
            sizes.rows,
            sizes.labelled,
            seed,
            base,
            outer,
            rounds,
            sizes.promote,
            sizes.trees,
        )
        for data, base, outer, rounds in groups
        for seed in sizes.seeds
    }
    found = Cells("paper-vfpu", EDITION, say, keep=keep, lasting=True).all(vfpu_cell, cases)
    by_case = dict(zip(cases.values(), found, strict=True))
    rows = []
    for data, base, outer, rounds in groups:
        mine = [
            result
            for case, result in by_case.items()
            if (case.data, case.base, case.outer, case.rounds) == (data, base, outer, rounds)
        ]
        kinds = []
        if (outer, rounds) == (sizes.outer, sizes.rounds):
            kinds.append("bases")
        curves = data in (sizes.curves or sizes.data)
        if curves and rounds == sizes.rounds and outer in sizes.outers:
            kinds.append("by M")
        if curves and outer == sizes.outer and rounds in sizes.many_rounds:
            kinds.append("by T")
        refused = [one["refused"] for one in mine if "refused" in one]
        notes += [
            f"{data}, {base}, M = {outer}, T = {rounds}: {len(refused)} of {len(mine)} seeds were "
            f"refused: {text}"
            for text in sorted(set(refused))
        ]
        facts = {"set": data, "base": base, "M": outer, "T": rounds}
        measured = average(mine, (*METRICS, "core-s"))
        rows += [{"what": kind, **facts, **measured} for kind in kinds]
    rows.sort(key=lambda row: ("bases", "by M", "by T").index(row["what"]))
    panels = [
        Panels("test AUC", ("base", "M", "T"), ("what", "set"), "test AUC ±"),
        Panels("hidden AP", ("base", "M", "T"), ("what", "set"), "hidden AP ±"),
    ]
    title = "VFPU over five bases, and by M and T"
    return Outcome(name, title, rows, [*notes, *_notes(sizes)], panels, command="paper")


def _notes(sizes: VfpuSizes) -> list[str]:
    return [
        "The text announces experiments and has none: there is no figure of its own to stand "
        "beside ours.",
        f"preset='paper': exactly M iterations, {sizes.promote:.0%} of the unlabelled rows are "
        "promoted in each, pseudo-negatives come from reliable negatives by spies, rows of each "
        "bag are told. Where the text is silent (promoted fraction, how negatives are found), "
        "docs/pu.md says what was chosen.",
        f"{sizes.labelled:.0%} of the positives are known; there are as many test rows as training "
        "rows, up to "
        f"{sizes.rows:,}. Two parties have half of the columns each, without encryption, which "
        "changes no figure.",
        "hidden AP, precision at k: among unlabelled rows, k is how many positives are hidden "
        "there. precision of reliable: of R, all rows that were promoted.",
    ]
