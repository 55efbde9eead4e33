"""Rough times and bytes of steps, from rates that the benchmarks and small runs measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vfsl.crypto import choose_scheme
from vfsl.data import Kind, PartyTable
from vfsl.job.common import clean_ids
from vfsl.job.schema import Job
from vfsl.job.steps import AlignStep, CompleteTerms, CountStep, EvaluateStep, PuTerms, TrainStep

BYTES_PER_SECOND = 20e6 / 8  # a line of 20 Mbit/s
# `vfsl bench run psi`, docs/benchmarks/psi.md: ids of both lists per second.
IDS_PER_SECOND = {("ecdh", 128): 12_000, ("ecdh", 112): 12_000}
IDS_PER_SECOND |= {("blind-rsa", 112): 1_770, ("blind-rsa", 128): 615}
IDS_PER_SECOND |= {("aided", 128): 600_000, ("aided", 112): 600_000}
# Ledgers of `vfsl demo`: bytes per id of both lists.
BYTES_PER_ID = {"ecdh": 44, "blind-rsa": 400, "aided": 13}
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
# Ledgers of runs on shares with 500 and 2,000 common rows and 8 and 16 columns of numbers, half of
# them at each of two parties: bytes per cell, and per pair of columns.
BYTES_ON_SHARES = {"logistic": (205, 9_600), "linear": (6.3, 2_500), "complete": (107, 12_500)}
# And per cell and per column of each tree.
BYTES_PER_TREE = {"rf": (190, 35_000), "boosted": (45, 75_000)}
BYTES_PER_ROW_AND_BAG, SECONDS_PER_ROW_AND_BAG = 183, 72e-6  # the same runs with VFPU
BYTES_PER_ROW_AND_EPOCH, SECONDS_PER_ROW_AND_EPOCH = 50, 1e-4  # RISA, there and in `vfsl demo`
SECONDS_PER_CELL_COMPLETED = 1e-5
BYTES_PER_SCORE, SECONDS_PER_JUDGED_ROW = 8, 2.5e-5  # 1,000,000 rows, three models, 1,000 samples
_LEAST = 1.0  # below a second nobody waits


@dataclass(frozen=True)
class Estimate:
    """About how long a step takes on two cores, and how much it sends; None: not known."""

    seconds: float | None = None
    bytes: float | None = None

    @property
    def on_the_line(self) -> float | None:
        """Seconds that the bytes take at 20 Mbit/s."""
        return None if self.bytes is None else self.bytes / BYTES_PER_SECOND


@dataclass(frozen=True)
class _Sizes:
    """What a step works on."""

    common: int  # rows that are learned from
    held_out: int
    rest: int  # rows that only one party has, of all parties
    widths: tuple[int, ...]  # columns of each party once categories are written as numbers

    @property
    def width(self) -> int:
        return sum(self.widths)

    @property
    def cells(self) -> int:
        return self.common * self.width


def estimate(number: int, job: Job, tables: Mapping[str, PartyTable]) -> Estimate:
    """Of step ``number``, from 1."""
    step = job.steps[number - 1]
    if isinstance(step, AlignStep | CountStep):
        return _estimate_ids(step, job, tables)
    sizes = _measure(number, job, tables)
    if isinstance(step, PuTerms):
        method = step.method()
        rows = (sizes.common + sizes.held_out) * method.rounds * (method.outer or 1)
        return _rounded(rows * SECONDS_PER_ROW_AND_BAG, rows * BYTES_PER_ROW_AND_BAG)
    if isinstance(step, CompleteTerms):
        per_cell, per_pair = BYTES_ON_SHARES["complete"]
        # Only columns of the given party with those of the missing one.
        sent = per_cell * sizes.cells + per_pair * 4 * sizes.widths[0] * sizes.widths[1]
        return _rounded(sizes.cells * SECONDS_PER_CELL_COMPLETED, sent)
    if isinstance(step, TrainStep):
        return _estimate_training(step, job, sizes)
    if isinstance(step, EvaluateStep):
        models = len(step.models or step.place.trained)
        judged = sizes.held_out + sizes.common
        seconds = judged * SECONDS_PER_JUDGED_ROW * step.bootstrap / 1000
        return _rounded(seconds, sizes.held_out * models * BYTES_PER_SCORE)
    return Estimate()


def _rounded(seconds: float | None, sent: float | None) -> Estimate:
    return Estimate(None if seconds is None else max(seconds, _LEAST), sent)


def _estimate_ids(
    step: AlignStep | CountStep, job: Job, tables: Mapping[str, PartyTable]
) -> Estimate:
    ids = [len(tables[party]) for party in step.parties or list(tables)]
    protocol = step.protocol if isinstance(step, AlignStep) else "aided"
    # The last party asks each of the others with its whole list.
    asked = sum(ids[:-1]) + ids[-1] * (len(ids) - 1)
    rate = IDS_PER_SECOND.get((protocol, job.run.security))
    each = BYTES_PER_ID.get(protocol)
    return _rounded(None if rate is None else asked / rate, None if each is None else asked * each)


def _measure(number: int, job: Job, tables: Mapping[str, PartyTable]) -> _Sizes:
    parties = job.aligned_before(number)
    ids = [set(clean_ids(tables[party], job.ids.normalise())) for party in parties]
    common = len(set.intersection(*ids))
    share = 0.0 if job.test is None or job.test.share is None else job.test.share
    held_out = round(share * common)
    rest = sum(len(tables[party]) - common for party in parties)
    widths = tuple(_width(tables[party]) for party in job.concerned_in(number))
    return _Sizes(common - held_out, held_out, rest, widths)


def _width(table: PartyTable) -> int:
    return sum(
        1 if table.kinds[name] is Kind.NUMERIC else table.column(name).nunique()
        for name in table.features
    )


def _on_shares(work: str, sizes: _Sizes) -> float:
    per_cell, per_pair = BYTES_ON_SHARES[work]
    return per_cell * sizes.cells + per_pair * sizes.width**2


def _estimate_training(step: TrainStep, job: Job, sizes: _Sizes) -> Estimate:
    model = step.estimator()
    if step.estimator_type.uses_all_rows:
        rows = (sizes.common + sizes.rest) * int(getattr(model, "epochs", 1))
        return _rounded(rows * SECONDS_PER_ROW_AND_EPOCH, rows * BYTES_PER_ROW_AND_EPOCH)
    if step.rows == "completed" and step.place.completed is not None:
        sizes = _Sizes(sizes.common + sizes.rest, sizes.held_out, 0, sizes.widths)
    rounds, work = model.rounds_planned(), model.work(1)
    kind = work.split()[0]
    scheme = choose_scheme(work, job.run.scheme)
    rate = SECONDS_PER_CELL.get(kind, {}).get(scheme)
    seconds = None if rate is None or rounds is None else rate * sizes.cells * rounds
    sent: float | None = None
    if scheme == "shares" and kind == "trees" and rounds is not None:
        per_cell, per_column = BYTES_PER_TREE["rf" if step.model == "rf" else "boosted"]
        sent = (per_cell * sizes.cells + per_column * sizes.width) * rounds
    elif scheme == "shares" and step.model in BYTES_ON_SHARES:
        sent = _on_shares(step.model, sizes)
    return _rounded(seconds, sent)
