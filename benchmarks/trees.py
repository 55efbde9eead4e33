"""Federated trees on shares: whole trainings and scores, beside pooled and federated peers.

One table for each question: what a training costs, how it grows with rows, what scores of new rows
cost, how fast plain trees are beside pooled xgboost and lightgbm, how good the models are beside
them, and what others need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.cells import Cells
from benchmarks.figures import Panels
from benchmarks.linear import parties
from benchmarks.shares import spread
from benchmarks.table import Outcome, judged
from benchmarks.trees_peers import PUBLISHED, peer_rows
from benchmarks.trees_work import (
    BINS,
    DEPTH,
    PEER_OF,
    PIP,
    THREADS,
    Quality,
    Scoring,
    Timing,
    Training,
    compare,
    score,
    time_fit,
    train,
)
from vfsl.datasets import available
from vfsl.parallel import call_apart

Row = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """How much is measured; numbers of rows have the test fifth in them, except drawn ones."""

    rows: int
    trees: int
    growth: tuple[int, ...]  # drawn rows on shares
    growth_trees: int
    holders: tuple[int, ...]
    scored: int  # new rows
    drawn: tuple[int, ...]  # drawn rows of plain trees beside peers
    repeats: int
    data: tuple[str, ...]
    splits: int
    most: int  # rows of a data set
    peers: bool


FULL = Sizes(
    rows=30_000,
    trees=50,
    growth=(10_000, 30_000, 100_000, 300_000),
    growth_trees=5,
    holders=(2, 3, 4),
    scored=2_000,
    drawn=(300_000,),
    repeats=3,
    data=("fate-default_credit", "census", "bank"),
    splits=5,
    most=1_000_000,
    peers=True,
)
QUICK = Sizes(
    rows=3_000,
    trees=10,
    growth=(1_000, 3_000),
    growth_trees=1,
    holders=(2,),
    scored=200,
    drawn=(),
    repeats=1,
    data=("fate-default_credit",),
    splits=1,
    most=2_000,
    peers=False,
)

COST = "a whole training on shares"
GROWTH = "growth with rows on shares, drawn rows"
SCORES = "scores of new rows on shares"
PLAIN = "plain trees beside pooled peers"
QUALITY = "test AUC beside pooled peers"

_MOST_MB, _MOST_CORE, _MOST_KB = 100, 40, 3
_MOST_TIMES = {False: 5.0, True: 3.0}  # as many rows as the data has; drawn rows
_MOST_BELOW = 0.002
_MOST_GROWTH = 1.1  # times as fast as rows; a tenth for what chance does to times


def run(quick: bool, say: Say) -> Outcome:
    """50 trees at 24,000 rows on shares, up to 300,000 rows, peers; 2,400 rows if quick."""
    return measure_all(QUICK if quick else FULL, say, judge=not quick)


def measure_all(sizes: Sizes, say: Say, *, judge: bool) -> Outcome:
    """Everything of these sizes."""
    # Times are not kept. Each training has a process of its own, with one thread.
    cells = Cells("trees", 0, say, keep=False)
    case = Training(sizes.rows, sizes.trees, drawn=False, compared=True)
    rows: list[Mapping[str, Any]] = [
        {"what": COST, **cells.get(f"shares, {sizes.trees} trees", train, case)}
    ]
    rows += _BEFORE if judge else ()
    growth = {
        f"shares, {count:,} rows": Training(count, sizes.growth_trees, True, False)
        for count in sizes.growth
    }
    rows += [{"what": GROWTH, **row} for row in cells.all(train, growth)]
    scoring = {
        f"scores, {holders} holders": Scoring(holders, sizes.scored, sizes.trees)
        for holders in sizes.holders
    }
    rows += [{"what": SCORES, **row} for row in cells.all(score, scoring)]
    *_, notes = parties(sizes.rows)
    rows += plain_rows(sizes, say, notes)
    rows += quality_rows(sizes, cells, notes)
    notes += _NOTES
    if sizes.peers:
        found, missing = peer_rows(sizes.rows, sizes.trees, say)
        rows += [*found, *PUBLISHED]
        notes += [*_PEER_NOTES, *missing]
    notes += goals(rows) if judge else ["Goals are judged in the full form only."]
    panels = [
        Panels("MB", ("work",), ("what",)),
        Panels("core-s per tree", ("work", "rows"), ("what",)),
    ]
    return Outcome("trees", "Federated trees", rows, notes, panels)


# ---- rows of the tables --------------------------------------------------------------------------


def plain_rows(sizes: Sizes, say: Say, notes: list[str]) -> list[Row]:
    """Plain trainings and pooled peers, each in a process of its own, with ratios."""
    rows: list[Row] = []
    for count, drawn in [(sizes.rows, False), *((count, True) for count in sizes.drawn)]:
        here: list[Row] = []
        for fit in (*PIP, *PEER_OF):
            say(f"{fit}, {count:,} rows")
            case = Timing(fit, count, sizes.trees, drawn, sizes.repeats)
            try:
                here.append({"what": PLAIN, **call_apart(time_fit, case), "drawn": drawn})
            except ImportError:
                note = f"{fit} is not installed: pip install {PIP[fit]} adds its row."
                notes += [] if note in notes else [note]
        rows += add_ratios(here)
    return rows


def add_ratios(rows: Sequence[Row]) -> list[Row]:
    """How many times as long as the slower pooled peer each plain training takes."""
    peers = [row for row in rows if row["fit"].endswith("pooled")]
    if not peers:
        return list(rows)
    slower = {name: max(peer[name] for peer in peers) for name in ("wall s", "core-s")}
    return [
        row
        if row in peers
        else row
        | {"wall / slower peer": row["wall s"] / slower["wall s"]}
        | {"core / slower peer": row["core-s"] / slower["core-s"]}
        for row in rows
    ]


def quality_rows(sizes: Sizes, cells: Cells, notes: list[str]) -> list[Row]:
    """AUC of ours and of the pooled peer: mean ± deviation over splits, and the difference."""
    rows = []
    for data in sizes.data:
        if data not in available():
            notes.append(f"The data set {data} is not here; its rows are left out.")
            continue
        for model, peer in PEER_OF.items():
            if any(note.startswith(f"{peer} is not installed") for note in notes):
                continue
            cases = {
                f"{model} on {data}, split {seed + 1}": Quality(
                    data, model, seed, sizes.trees, sizes.most
                )
                for seed in range(sizes.splits)
            }
            rows.append(quality_row(data, model, cells.all(compare, cases)))
    return rows


def quality_row(data: str, model: str, runs: Sequence[Mapping[str, Any]]) -> Row:
    differences = [one["ours"] - one["peer"] for one in runs]
    return {
        "what": QUALITY,
        "data": data,
        "rows": runs[0]["rows"],
        "model": model,
        "ours": spread(one["ours"] for one in runs),
        "beside": PEER_OF[model],
        "pooled": spread(one["peer"] for one in runs),
        "difference": spread(differences),
        "mean difference": fmean(differences),
        "splits": len(runs),
    }


# ---- judging -------------------------------------------------------------------------------------


def goals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was to be reached, and whether it was."""
    by_what: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_what.setdefault(row["what"], []).append(row)
    cost = by_what[COST][0]
    lines = [
        judged(f"{cost['work']}: ≤ {_MOST_MB} MB", cost["MB"] <= _MOST_MB, f"{cost['MB']:.3g}"),
        judged(
            f"{cost['work']}: ≤ {_MOST_CORE} core-s",
            cost["core-s"] <= _MOST_CORE,
            f"{cost['core-s']:.3g}",
        ),
        judged("the same trees as plain", cost["same trees as plain"], "shares compared"),
    ]
    lines += judge_growth(by_what.get(GROWTH, []))
    for row in by_what.get(SCORES, []):
        if row["holders"] == 2:
            text = f"{row['work']}: ≤ {_MOST_KB} KB per row"
            lines.append(judged(text, row["KB per row"] <= _MOST_KB, f"{row['KB per row']:.3g}"))
    for row in by_what.get(PLAIN, []):
        if row["fit"] == "vfsl XGB, plain" and "wall / slower peer" in row:
            most, times = _MOST_TIMES[row["drawn"]], row["wall / slower peer"]
            text = f"plain XGB at {row['rows']:,} rows: ≤ {most:g} × the slower pooled peer"
            figure = f"{times:.3g} × by wall time, {row['core / slower peer']:.3g} × by core-s"
            lines.append(judged(text, times <= most, figure))
    for row in by_what.get(QUALITY, []):
        text = (
            f"{row['model']} on {row['data']}: AUC within {_MOST_BELOW} of pooled {row['beside']}"
        )
        reached = row["mean difference"] >= -_MOST_BELOW
        lines.append(judged(text, reached, f"{row['mean difference']:+.2g} on average"))
    return lines


def judge_growth(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether bytes and core-seconds grow no faster than rows, from the fewest to the most."""
    if len(rows) < 2:
        return []
    few, many = rows[0], rows[-1]
    factor = many["rows"] / few["rows"]
    lines = []
    for name in ("MB", "core-s"):
        times = many[name] / few[name]
        text = f"{name} from {few['rows']:,} to {many['rows']:,} rows, {factor:g} × as many: linear"
        lines.append(judged(text, times <= _MOST_GROWTH * factor, f"{times:.3g} ×"))
    return lines


# As measured before trees were on shares, on a machine like this one.
_BEFORE = (
    {
        "what": COST,
        "work": "XGB, 24,000 × (13 + 10), as measured before",
        "scheme": "bfv, by name",
        "rows": 24_000,
        "trees": 5,
        "MB per tree": 98.7,
        "core-s": 16.0,
        "core-s per tree": 3.2,
        "same trees as plain": True,
    },
)
_NOTES = (
    f"Depth {DEPTH}, {BINS} bins, learning rates 0.3 (XGB, xgboost) and 0.1 (LGB, lightgbm), "
    "sides of at least one row (lightgbm too; xgboost knows no such limit). Rows are aligned "
    "beforehand; the test fifth is chosen by RandomState(42), in quality by the number of the "
    "split.",
    "MB is what left all parties, the dealer included; once is what left before the first tree, "
    "mostly the encrypted bins. core-s is the processor time of all parties, which run on this "
    "machine in one process. rounds and WAN s are by calculation, of the network alone: 50 ms from "
    "party to party and 20 Mbit/s out of each party.",
    "Drawn rows are drawn with replacement from the same data, with jitter of a hundredth of the "
    "deviation added to numbers, so that bins fill.",
    "Scores: the columns of the second party are dealt to as many parties as there are holders "
    "less one. One row alone has the same rounds.",
    "Plain and pooled times are the best of several fits and include binning; wall s and core-s of "
    f"peers are their best with one to {THREADS} threads each. vfsl's parties are threads of one "
    "process. Quality is that of plain trees, which those on shares equal.",
)
_PEER_NOTES = (
    "Published figures are copied from the sources named, with the hardware they name; none says "
    "how many bytes were sent. They are of other machines and other sizes: no ratio is formed.",
    "xgboost's federated training sends gradients in the clear to all workers; core-s is that of "
    "its workers, one thread each. SecretFlow's SGB runs all parties in one process (debug mode); "
    "core-s per tree is the difference of two trainings, without keys and compilation. Neither "
    "counts its bytes there.",
)
