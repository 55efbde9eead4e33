"""RISA's three tables: its own figures beside ours, by the cells of the risa benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import risa
from benchmarks.cells import Cells
from benchmarks.figures import Panels
from benchmarks.paper.common import average, find_data, put_beside
from benchmarks.paper.sizes import OVERLAPS, RisaSizes
from benchmarks.risa import ABLATIONS, METHODS, NONE, RisaCase, risa_cell
from benchmarks.risa_data import PICTURES, Task
from benchmarks.table import Outcome, judged
from vfsl.data.checks import check_choice
from vfsl.evidence.risa import need_torch

TABLES = {
    "risa-table1": "RISA, table I: CIFAR-10",
    "risa-table2": "RISA, table II: Criteo",
    "risa-table3": "RISA, table III: the ablation",
}
# As printed, at 1, 10, 20, 30, 40 and 50 % overlap. SSL+VFL has the same row in both tables.
_SSL = (74.11, 75.42, 75.98, 76.08, 76.61, 76.33)
PRINTED: dict[str, dict[str, tuple[float, ...]]] = {
    "cifar10": {
        "Local": (81.78,) * 6,
        "VFL": (38.58, 70.47, 78.11, 81.78, 83.97, 85.45),
        "Local+VFL": (85.36, 86.11, 86.14, 87.85, 89.47, 89.39),
        "Random Match": (83.53, 84.08, 84.96, 85.48, 85.87, 86.41),
        "SSL+VFL": _SSL,
        "SFHTL-style": (85.47, 85.89, 86.05, 86.56, 86.92, 87.76),
        "FedCVT": (85.93, 86.85, 86.99, 87.23, 87.77, 88.38),
        "Few-shot VFL": (82.17, 86.13, 86.43, 86.55, 87.02, 87.12),
        "RISA paper": (87.62, 88.65, 88.97, 89.03, 89.55, 89.82),
    },
    "criteo": {
        "Local": (68.03,) * 6,
        "VFL": (67.96, 70.43, 73.99, 74.56, 74.89, 75.43),
        "Local+VFL": (73.46, 76.30, 76.63, 77.10, 77.05, 77.27),
        "Random Match": (73.43, 73.58, 74.42, 74.67, 75.18, 75.84),
        "SSL+VFL": _SSL,
        "SFHTL-style": (74.28, 75.48, 75.81, 76.02, 76.25, 76.08),
        "FedCVT": (74.37, 74.94, 75.73, 75.65, 76.03, 76.51),
        "Few-shot VFL": (72.85, 73.79, 74.75, 74.96, 75.72, 75.94),
        "RISA paper": (75.67, 77.36, 77.62, 77.81, 77.87, 77.89),
    },
}
# At 10 %, in the order of the paper's rows.
PRINTED_ABLATION = {
    "cifar10": dict(zip(ABLATIONS, (70.47, 82.19, 85.01, 85.13, 88.65), strict=True)),
    "criteo": dict(zip(ABLATIONS, (70.43, 71.17, 74.45, 74.38, 77.36), strict=True)),
}


def printed(data: str, method: str, overlap: float, ablation: bool) -> float | None:
    """The figure that the paper has for a cell."""
    if ablation:
        return PRINTED_ABLATION.get(data, {}).get(method) if overlap == 0.1 else None
    row = PRINTED.get(data, {}).get(method)
    return None if row is None or overlap not in OVERLAPS else row[OVERLAPS.index(overlap)]


def run(name: str, sizes: RisaSizes, say: Callable[[str], None], keep: bool) -> Outcome:
    """One of the three tables."""
    need_torch(f"The experiment {name}")
    ablation = name == "risa-table3"
    notes: list[str] = []
    known = (*ABLATIONS, "VFL") if ablation else METHODS
    methods = sizes.methods or known
    for method in methods:
        check_choice(name, "methods", method, known)
    groups = [
        (data, overlap, method)
        for data in find_data(sizes.data, notes)
        for overlap in sizes.overlaps
        for method in methods
    ]
    cases = {
        f"{data}, overlap {overlap:.0%}, seed {seed}: {method}": RisaCase(
            task_of(data, sizes), overlap, seed, method
        )
        for data, overlap, method in groups
        for seed in sizes.seeds
    }
    results = Cells("risa", risa.EDITION, say, keep=keep, lasting=True).all(risa_cell, cases)
    found = dict(zip(cases.values(), results, strict=True))
    rows = []
    for data, overlap, method in groups:
        mine = [
            result
            for case, result in found.items()
            if (case.task.data, case.overlap, case.method) == (data, overlap, method)
        ]
        facts = {"data": data, "overlap": overlap, "method": method, "metric": mine[0]["metric"]}
        row = facts | average(mine, ("both", "A alone", "B alone", "seconds"))
        rows.append(put_beside(row, printed(data, method, overlap, ablation), "both"))
    notes += [*_notes(sizes), *(judge_none(rows) if keep and ablation else [])]
    panels = [
        Panels("both", ("method",), ("data", "overlap"), "both ±"),
        Panels("paper", ("method",), ("data", "overlap")),
    ]
    return Outcome(name, TABLES[name], rows, notes, panels, command="paper")


def task_of(data: str, sizes: RisaSizes) -> Task:
    """The task of a data set; in the table of both, Criteo has its own size."""
    if data == "criteo" and len(sizes.data) > 1:
        return Task(data, 6_400, 1_600, 6, sizes.width)
    return Task(data, sizes.rows, sizes.judged, sizes.epochs, sizes.width)


def judge_none(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether RISA without its three parts is VFL, as in the paper."""
    found = {(row["data"], row["overlap"], row["method"]): row["both"] for row in rows}
    lines = []
    for (data, overlap, method), value in found.items():
        if method == NONE and (data, overlap, "VFL") in found:
            gap = value - found[data, overlap, "VFL"]
            text = f"{NONE} within 1.5 points of VFL, {data} {overlap:.0%}"
            lines.append(judged(text, abs(gap) <= 1.5, f"{gap:+.2f}"))
    return lines


def _notes(sizes: RisaSizes) -> list[str]:
    pictures = any(data in PICTURES for data in sizes.data)
    lines = [
        "paper: the figure that is printed in Zeng et al., Reliable Imputed-Sample Assisted "
        "Vertical Federated Learning. both: ours, with both parties at prediction.",
        f"What differs: {sizes.rows:,} training rows and {sizes.judged:,} test rows per seed (the "
        "paper: 50,000 and 10,000 pictures; 9,000,000 and 1,000,000 rows of Criteo). --set rows=…, "
        "--set judged=… and --set epochs=… run larger ones.",
        "The paper does not say which encoders it has, nor how long it trains.",
        "Every rival takes as many steps as Local, every row of the ablation as many as VFL; RISA "
        "takes as many epochs over all rows that it uses.",
        "SSL+VFL is printed with the same six figures in tables I and II, so at least one of the "
        "two rows is a mistake of the paper.",
        "Criteo has five folds: seed 0 to 4. RISA plus is not in the paper.",
    ]
    if pictures:
        lines.append(
            f"Pictures go through three convolutions of {sizes.width}, {2 * sizes.width} and "
            f"{4 * sizes.width} channels."
        )
    return lines
