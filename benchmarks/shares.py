"""Results only, in megabytes: whole runs of all parties, their bytes, rounds and core-seconds.

One line per work, under the scheme that "auto" picks, beside its goal. Quality is that of the same
runs, beside a reference that has all columns in one place. The last tables are of others: SPU
on this machine, and as they published them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from benchmarks.cells import Cells
from benchmarks.figures import Panels
from benchmarks.linear import parties
from benchmarks.peers import PeerMissing
from benchmarks.shares_peers import PUBLISHED, spu_rows
from benchmarks.shares_work import DEALER, Case, Delayed, Judged, Measured, delay, measure, split
from benchmarks.table import Outcome, judged

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """How much is measured: rows and runs by work, of which each run has other draws."""

    rows: Mapping[str, int]
    seeds: Mapping[str, int]
    delayed: int  # rows of what is sent through a slow line
    epochs: tuple[int, ...]  # of the peer; none: no peer


FULL = Sizes(
    rows={
        "demo": 0,  # its tables have their own size
        "ridge": 30_000,
        "logistic": 30_000,
        "wide": 125_000,
        "bags": 30_000,
        "bags of three": 30_000,
        "bags of four": 30_000,
        "bag prediction": 3_750,
        "completion": 30_000,
        "prediction": 3_750,  # a fifth of them are predicted
        "association": 30_000,
    },
    seeds=dict.fromkeys(("demo", "wide", "prediction", "association"), 1)
    | dict.fromkeys(("bags of three", "bags of four", "bag prediction"), 1)
    | dict.fromkeys(("ridge", "logistic", "bags", "completion"), 3),
    delayed=1_000,
    epochs=(1, 3, 10),
)
QUICK = Sizes(
    rows={"ridge": 1_500, "logistic": 1_500, "bags": 400, "completion": 600, "prediction": 3_750}
    | {"bags of three": 400, "bags of four": 400, "bag prediction": 400, "association": 1_500},
    seeds=dict.fromkeys(FULL.seeds, 1),
    delayed=0,
    epochs=(),
)

TITLES = {
    "demo": "demo, {}",
    "ridge": "ridge, {}",
    "logistic": "logistic, {}",
    "wide": "logistic, made-up, {}",
    "bags": "VFPU lr, 25 models, {}",
    "bags of three": "VFPU lr, 25 models, {}, three data holders",
    "bags of four": "VFPU lr, 25 models, {}, four data holders",
    "bag prediction": "prediction by VFPU, {}",
    "completion": "completion, {}, two rounds",
    "prediction": "prediction, {}",
    "association": "association, {}",
}


@dataclass(frozen=True)
class Goal:
    """What one work may cost, what it cost before shares, and how good it must be."""

    most: Mapping[str, float] = field(default_factory=dict)  # by column of the table
    before: Mapping[str, float] = field(default_factory=dict)
    # By measure: the largest distance from the reference, as such or as a fraction of it.
    within: Mapping[str, float] = field(default_factory=dict)
    fraction: Mapping[str, float] = field(default_factory=dict)

    def distance(self, one: Judged) -> float | None:
        """How far a measure may be from its reference; None where that is no goal."""
        if one.measure in self.fraction and one.reference is not None:
            return self.fraction[one.measure] * one.reference
        return self.within.get(one.measure)


GOALS = {
    "demo": Goal({"MB": 30, "core-s": 25}, {"MB": 801, "core-s": 31}),
    "ridge": Goal(
        {"MB": 5, "core-s": 0.5},
        {"MB": 150, "core-s": 4.2},
        {
            "largest error of a prediction / deviation": 1e-4,
            "typical error of a prediction / deviation": 1e-4,
            "largest error of a weight": 1e-3,
        },
    ),
    "logistic": Goal(
        {"MB": 40, "core-s": 1.5, "rounds": 150},
        {"MB": 277, "core-s": 7.2},
        {"test AUC": 0.0005},
        {"test log-loss": 0.005},
    ),
    "wide": Goal(),
    "bags": Goal({"MB": 60, "core-s": 10, "rounds": 250}, {"MB": 3840, "core-s": 118}),
    "bags of three": Goal({"MB": 60}),
    "bags of four": Goal(),
    "bag prediction": Goal({"MB": 0.05}),
    "completion": Goal({"MB": 60, "core-s": 12}, {"MB": 1330, "core-s": 34}),
    "prediction": Goal({"MB": 0.05}, {"MB": 5.26, "core-s": 0.05}),
    "association": Goal(before={"MB": 21.4, "core-s": 0.9}),
}


def run(quick: bool, say: Say) -> Outcome:
    """The works at their full sizes, three runs of most; small ones without peers if quick."""
    return measure_all(QUICK if quick else FULL, say, judge=not quick)


def measure_all(
    sizes: Sizes, say: Say, *, judge: bool, scheme: str = "auto", name: str = "shares"
) -> Outcome:
    """Everything of these sizes under one scheme."""
    # Times are not kept. Each run has a process of its own, with one thread.
    cells = Cells("shares", 0, say, keep=False)
    found: dict[str, list[Measured]] = {}
    for work, size in sizes.rows.items():
        cases = {
            f"{work}, {scheme}, run {seed + 1}": Case(work, scheme, size, seed)
            for seed in range(sizes.seeds[work])
        }
        found[work] = [cell["result"] for cell in cells.all(_measure, cases)]
    goals_of = GOALS if judge else dict.fromkeys(GOALS, Goal())  # they are of the full sizes
    rows: list[Mapping[str, Any]] = [
        cost_row(work, runs, goals_of[work]) for work, runs in found.items()
    ]
    for work, runs in found.items():
        rows += quality_rows(work, runs, goals_of[work])
    rows += [line for runs in found.values() for line in step_rows(runs[0])]
    if sizes.delayed:
        for work in ("ridge", "logistic"):
            case = Case(work, scheme, sizes.delayed, 0)
            cell = cells.get(f"{work} through a slow line, {scheme}", _delay, case)
            rows.append(delayed_row(case, cell["result"]))
    *_, notes = parties(max(sizes.rows.values()))
    notes += _NOTES
    notes += [_BEFORE_NOTE] if judge else []
    notes += [_DELAY_NOTE] if sizes.delayed else []
    if sizes.epochs and scheme == "auto":
        rows += peer_rows(sizes, say, notes)
        rows += PUBLISHED
        notes += _PEER_NOTES
    notes += goals(rows) if judge else ["Goals are judged in the full form only."]
    panels = [Panels("MB", ("work",), ("what",)), Panels("WAN s", ("work",), ("what",))]
    title = "Results only, in megabytes" if scheme == "auto" else f"The same work under {scheme}"
    return Outcome(name, title, rows, notes, panels)


def _measure(case: Case) -> dict[str, Measured]:
    return {"result": measure(case)}


def _delay(case: Case) -> dict[str, Delayed]:
    return {"result": delay(case)}


# ---- rows of the tables --------------------------------------------------------------------------


def cost_row(work: str, runs: Sequence[Measured], goal: Goal) -> dict[str, Any]:
    """What a whole run took, on average, beside its goal."""
    first = runs[0]
    row: dict[str, Any] = {
        "what": "cost of a whole run",
        "work": TITLES[work].format(first.size),
        "scheme": first.scheme,
    }
    figures = {
        "MB": fmean(one.traffic.megabytes for one in runs),
        "of the dealer": fmean(one.traffic.sent.get(DEALER, 0) / 1e6 for one in runs),
        "core-s": fmean(one.core for one in runs),
        "rounds": max(one.traffic.rounds for one in runs),
        "WAN s": fmean(one.traffic.seconds for one in runs),
    }
    for column, figure in figures.items():
        row[column] = figure
        if column in ("MB", "core-s", "rounds"):
            row[f"goal {column}"] = goal.most.get(column)
        if column in ("MB", "core-s"):
            row[f"{column} before"] = goal.before.get(column)
    return row | {"wall s": fmean(one.wall for one in runs), "runs": len(runs)}


def quality_rows(work: str, runs: Sequence[Measured], goal: Goal) -> list[dict[str, Any]]:
    """Each measure of quality, on average, and its distance from the reference."""
    rows = []
    for place, first in enumerate(runs[0].judged):
        every = [one.judged[place] for one in runs]
        limit = goal.distance(first)
        row = {
            "what": "quality of the same runs",
            "work": TITLES[work].format(runs[0].size),
            "measure": first.measure,
            "ours": spread(one.ours for one in every),
            "beside": None if first.reference is None else first.of,
            "reference": None
            if first.reference is None
            else spread(one.reference for one in every if one.reference is not None),
            "difference": spread(one.gap for one in every),
            "worst": max((one.gap for one in every), key=abs),
            "goal": limit,
            "reached": None
            if limit is None
            else all(abs(one.gap) <= (goal.distance(one) or 0) for one in every),
            "runs": len(every),
        }
        rows.append(row)
    return rows


def spread(values: Iterable[float]) -> str:
    """Mean ± deviation; the value alone if there is one."""
    numbers = list(values)
    mean = f"{fmean(numbers):.4g}"
    return mean if len(numbers) == 1 else f"{mean} ± {stdev(numbers):.2g}"


def step_rows(one: Measured) -> list[dict[str, Any]]:
    """The steps of a job, if it has several."""
    return [
        {
            "what": "the demo, step by step",
            "work": title,
            "MB": traffic.megabytes,
            "of the dealer": traffic.sent.get(DEALER, 0) / 1e6,
            "rounds": traffic.rounds,
            "WAN s": traffic.seconds,
        }
        for title, traffic in one.steps
    ]


def delayed_row(case: Case, one: Delayed) -> dict[str, Any]:
    """A run through a line that really delays, beside the calculation."""
    return {
        "what": "measured through a delaying line",
        "work": f"{case.work}, {case.rows * 4 // 5:,} rows",
        "MB": one.traffic.megabytes,
        "rounds": one.traffic.rounds,
        "network s, calculated": one.traffic.seconds,
        "core-s": one.core,
        "seconds, measured": one.wall,
        "measured / (network + core)": one.wall / one.expected,
    }


def peer_rows(sizes: Sizes, say: Say, notes: list[str]) -> list[dict[str, Any]]:
    """SPU on the first split of the logistic work, or a note of why it is not here."""
    say("SPU")
    try:
        return spu_rows(split(Case("logistic", "auto", sizes.rows["logistic"], 0)), sizes.epochs)
    except PeerMissing as error:
        notes.append(f"SPU is left out: {error}")
        return []


def goals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was to be reached, and whether it was."""
    lines = []
    for row in rows:
        if row["what"] == "cost of a whole run":
            for column in ("MB", "core-s", "rounds"):
                limit = row[f"goal {column}"]
                if limit is not None:
                    text = f"{row['work']}: {column} ≤ {limit:g}"
                    lines.append(judged(text, row[column] <= limit, f"{row[column]:.3g}"))
        elif row["what"] == "quality of the same runs" and row["goal"] is not None:
            text = f"{row['work']}: {row['measure']} within {row['goal']:.2g}"
            lines.append(judged(text, row["reached"], f"at worst {row['worst']:+.2g}"))
    return lines


_NOTES = (
    "MB is what left all parties, the dealer (the key holder, where a scheme has keys) included, "
    "before it is sealed, which adds 16 bytes per message and 96 per pair of parties. Linear "
    "models, VFPU and completion start from aligned rows; the demo includes its alignment.",
    "core-s is the processor time of all parties, which run on this machine in one process, on "
    "average over the runs.",
    "rounds are the longest chain of messages of which each was sent after the one before had "
    "come. WAN s is by calculation, of the network alone: 50 ms from party to party, and 20 Mbit/s "
    "out of each party, whose messages leave one after the other.",
    "Linear models and association: these rows, a fifth of them for the test, another fifth in "
    "each run (the first by RandomState(42)). VFPU: made-up parties, 30 % of the positives known, "
    "20 bags and 5 models for held-out positives. Completion: made-up numbers of five common "
    "factors.",
    "difference is ours minus the reference in the same run; an error is its own difference. "
    "association rounds its result to two decimals, an error of up to 0.005.",
)
_BEFORE_NOTE = (
    "Figures before shares are of the same work under bfv, once, on a machine like this one; "
    "vfsl bench run shares-bfv measures them again."
)
_DELAY_NOTE = (
    "measured through a delaying line: every message is handed over no earlier than it would "
    "arrive on that line. Parties partly compute at the same time as others wait or send, and all "
    "share the cores of this machine."
)
_PEER_NOTES = (
    "Published figures are copied from the sources named, with the hardware they name; neither "
    "says how many bytes were sent. They are of other machines, and most of other sizes: no ratio "
    "is formed. The logistic run of made-up parties has the rows and columns of FATE's.",
    "SPU: mini-batch descent with the defaults of SecretFlow's SS-SGD (batches of 1,024 rows, rate "
    "0.1, no penalty, a straight line for the sigmoid), both parties in one process, compilation "
    "not counted. MB is by its own profile, without the shares of the columns, and without a "
    "dealer: its first party makes the randomness and could read all. rounds are its send actions, "
    "an upper bound; its log-loss is by the true sigmoid of its scores.",
)
