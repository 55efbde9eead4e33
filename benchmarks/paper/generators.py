"""The nine generators and imputers, and the papers' claim that TabDDPM and VF-GAIN are best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import generators
from benchmarks.cells import Cells
from benchmarks.figures import Panels
from benchmarks.generators import completion_rows, fidelity_rows
from benchmarks.paper.common import find_data
from benchmarks.paper.sizes import GeneratorSizes
from benchmarks.table import Outcome

# The nine by the names of their rows; the others are there to be compared with.
NINE = {
    "CTGAN, mean of draws",
    "TableGAN, mean of draws",
    "CTAB-GAN, mean of draws",
    "VAE, mean of draws",
    "TVAE, mean of draws",
    "TabDDPM, mean of draws",
    "GAIN",
    "VGAIN",
    "VF-GAIN",
}
CLAIMED = ("TabDDPM, mean of draws", "VF-GAIN")


def run(name: str, sizes: GeneratorSizes, say: Callable[[str], None], keep: bool) -> Outcome:
    """Fidelity and time, completion, ranks, and the claim."""
    notes: list[str] = []
    measured = generators.Sizes(
        sizes.rows,
        sizes.completed_rows,
        sizes.seeds,
        tuple(find_data(sizes.data, notes)),
        peers=False,
        settings=generators.QUICK.settings if sizes.small else {},
    )
    cells = Cells("generators", generators.EDITION, say, keep=keep)
    rows, more = fidelity_rows(measured, cells)
    completed = completion_rows(measured, cells)
    ranks = rank_methods(completed)
    rows += [*completed, *ranks]
    claim = "The claim is judged in the full form only." if sizes.small else judge_claim(ranks)
    notes += [*more, claim, *_NOTES]
    panels = [
        Panels("shape + pair", ("method",), ("data",)),
        Panels("RMSE", ("method",), ("data",), "RMSE ±"),
        Panels("mean rank", ("method",), ("what",)),
    ]
    title = "The nine generators and imputers"
    return Outcome(name, title, rows, notes, panels, command="paper")


def rank_methods(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The mean rank of each of the nine over data sets and measures, the best first."""
    places: dict[str, list[int]] = {}
    for data in dict.fromkeys(row["data"] for row in rows):
        here = [row for row in rows if row["data"] == data and row["method"] in NINE]
        for measure, sign in (("RMSE", 1), ("accuracy", -1)):
            known = [row for row in here if row[measure] is not None]
            known.sort(key=lambda row: sign * row[measure])
            for place, row in enumerate(known, start=1):
                places.setdefault(row["method"], []).append(place)
    means = {method: float(np.mean(found)) for method, found in places.items()}
    return [
        {"what": "ranks", "method": method, "mean rank": mean, "of": len(means)}
        for method, mean in sorted(means.items(), key=lambda pair: pair[1])
    ]


def judge_claim(ranks: Sequence[Mapping[str, Any]]) -> str:
    """Whether the two that the text calls best are the first two."""
    order = [row["method"] for row in ranks]
    found = ", ".join(f"{name} is number {order.index(name) + 1}" for name in CLAIMED)
    holds = set(order[:2]) == set(CLAIMED)
    return (
        "The text says that TabDDPM and VF-GAIN are usually best. By the mean rank of completion "
        f"errors of {len(order)} methods {found}: the claim {'holds' if holds else 'does NOT hold'}"
        " here."
    )


_NOTES = (
    "The text prints no figure for its claim; there is nothing to stand beside ours.",
    "Completion: 40 % of the rows lack all columns of B. RMSE is standardised. VF-GAIN is "
    "federated; the other eight have A's columns too, in one place, which is an advantage.",
    "mean rank: over data sets, of RMSE and of accuracy, among the nine.",
)
