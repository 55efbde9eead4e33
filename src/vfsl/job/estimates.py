"""Rough times of steps, from rates that the benchmarks measured on two cores."""

from __future__ import annotations

from collections.abc import Mapping

from vfsl.crypto import choose_scheme
from vfsl.data import PartyTable
from vfsl.job.schema import Job
from vfsl.job.steps import AlignStep, Step, TrainStep

# `vfsl bench run psi`, docs/benchmarks/psi.md: ids of both lists per second.
IDS_PER_SECOND = {("ecdh", 128): 12_000, ("ecdh", 112): 12_000}
IDS_PER_SECOND |= {("blind-rsa", 112): 1_770, ("blind-rsa", 128): 615}
# `vfsl bench run shares`: 1.0 s for 24,000 rows and 23 columns. `vfsl bench run linear`,
# docs/benchmarks/linear.md, refine=4: 10.4 s (bfv) and 0.304 s (plain) for the same in 25 rounds.
# `vfsl bench run trees`, docs/benchmarks/trees.md, depth 5: seconds per cell and tree.
SECONDS_PER_CELL: dict[str, dict[str, float]] = {  # and round, or tree
    "linear": {
        "shares": 1.0 / (24_000 * 23 * 25),
        "bfv": 10.4 / (24_000 * 23 * 25),
        "plain": 0.304 / (24_000 * 23 * 25),
    },
    "trees": {
        "shares": 18.2 / (24_000 * 23 * 50),
        "bfv": 25.4 / (24_000 * 23 * 5),
        "paillier": 87.3 / (24_000 * 23),
        "plain": 2.71 / (24_000 * 23 * 50),
    },
}
_LEAST = 1.0  # below a second nobody waits


def seconds(step: Step, job: Job, tables: Mapping[str, PartyTable]) -> float | None:
    """About how long a step takes on two cores; None where no benchmark gives a rate."""
    if isinstance(step, AlignStep):
        parties = step.parties or list(tables)
        ids = [len(tables[party]) for party in parties]
        # The last party asks each of the others with its whole list.
        asked = sum(ids[:-1]) + ids[-1] * (len(ids) - 1)
        rate = IDS_PER_SECOND.get((step.protocol, job.run.security))
        return None if rate is None else max(asked / rate, _LEAST)
    if isinstance(step, TrainStep) and step.rows == "common":
        return _estimate_training(step, job, tables)
    return None


def _estimate_training(step: TrainStep, job: Job, tables: Mapping[str, PartyTable]) -> float | None:
    model = step.estimator()
    rounds, work = model.rounds_planned(), model.work(1)
    kind = work.split()[0]
    if rounds is None or kind not in SECONDS_PER_CELL:
        return None
    scheme = choose_scheme(work, job.run.scheme)
    rate = SECONDS_PER_CELL[kind].get(scheme)
    # How many rows are common is not known before the alignment: at most so many.
    rows = min(len(table) for table in tables.values() if table.columns)
    cells = rows * sum(len(table.features) for table in tables.values())
    return None if rate is None else max(rate * cells * rounds, _LEAST)
