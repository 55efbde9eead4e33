"""Rough times of steps, from rates that the benchmarks measured on two cores."""

from __future__ import annotations

from collections.abc import Mapping

from vfsl.crypto import SCHEME_FOR
from vfsl.data import PartyTable
from vfsl.estimators.linear import LinearModel
from vfsl.estimators.trees import TreeModel
from vfsl.evidence import RISA
from vfsl.job.schema import AlignStep, AnyStep, EvaluateStep, Job, TrainStep

# `vfsl bench run psi`, docs/benchmarks/psi.md: ids of both lists a second.
IDS_A_SECOND = {("ecdh", 128): 12_000, ("ecdh", 112): 12_000}
IDS_A_SECOND |= {("blind-rsa", 112): 1_770, ("blind-rsa", 128): 615}
# `vfsl bench run linear`, docs/benchmarks/linear.md, refine=4: 10.4 s (bfv) and 0.304 s (plain) for
# 24,000 rows, 23 columns and 25 rounds; seconds a cell and round.
LINEAR_CELL_ROUND = {
    "bfv": 10.4 / (24_000 * 23 * 25),
    "plain": 0.304 / (24_000 * 23 * 25),
}
# `vfsl bench run trees`, docs/benchmarks/trees.md, depth 5: seconds a cell and tree.
TREE_CELL = {
    "bfv": 25.4 / (24_000 * 23 * 5),
    "paillier": 87.3 / (24_000 * 23),
    "plain": 2.71 / (24_000 * 23 * 50),
}
_LEAST = 1.0  # below a second nobody waits


def seconds(step: AnyStep, job: Job, tables: Mapping[str, PartyTable]) -> float | None:
    """About how long a step takes on two cores; None where no benchmark gives a rate."""
    if isinstance(step, AlignStep):
        parties = step.parties or list(tables)
        ids = [len(tables[party]) for party in parties]
        # The last party asks each of the others with its whole list.
        asked = sum(ids[:-1]) + ids[-1] * (len(ids) - 1)
        return max(asked / IDS_A_SECOND[step.protocol, job.run.security], _LEAST)
    if isinstance(step, EvaluateStep):
        return None
    if isinstance(step, TrainStep):
        return _training(step, job, tables)
    return None


def _training(step: TrainStep, job: Job, tables: Mapping[str, PartyTable]) -> float | None:
    model = step.estimator()
    if isinstance(model, RISA) or step.rows == "completed":
        return None
    scheme = SCHEME_FOR[model.work(1)] if job.run.scheme == "auto" else job.run.scheme
    # How many rows are common is not known before the alignment: at most so many.
    rows = min(len(table) for table in tables.values() if table.columns)
    cells = rows * sum(len(table.features) for table in tables.values())
    if isinstance(model, TreeModel):
        rate = TREE_CELL.get(scheme)
        return None if rate is None else max(rate * cells * model.n_estimators, _LEAST)
    rate = LINEAR_CELL_ROUND.get(scheme)
    if rate is None or not isinstance(model, LinearModel):
        return None
    return max(rate * cells * model.max_rounds, _LEAST)
