"""The work of the trees experiment: trainings, scores, times beside pooled peers, and quality.

Every function takes a case, plain values that its result depends on, and gives one row of figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from benchmarks.linear import Cost, of_ids, parties, split, timed
from benchmarks.memory import PeakMemory
from benchmarks.shares_work import DEALER, weigh
from benchmarks.wan import add_up
from vfsl.align import RowPlan, RowShare
from vfsl.channel.transcript import Entry
from vfsl.data import PartyTable, halves
from vfsl.datasets import load
from vfsl.estimators import LGB, XGB, ModelShare
from vfsl.estimators.trees import TreeModel
from vfsl.federation import Federation, simulate
from vfsl.values import Array

Tables = Mapping[str, PartyTable]
Label = tuple[str, str]

DEPTH, BINS, THREADS = 5, 32, 2
_JITTER = 0.01  # of drawn rows, in deviations of the column
_SCORED_TREES_ROWS = 3_000  # that the trees of scored rows are grown on


def make_models(trees: int) -> dict[str, TreeModel]:
    settings: dict[str, Any] = {"n_estimators": trees, "max_depth": DEPTH, "max_bins": BINS}
    return {"XGB": XGB(**settings), "LGB": LGB(**settings)}


def align(tables: Tables, scheme: str) -> Federation:
    """A federation of tables whose rows are the same people in the same order."""
    fed = simulate(tables, scheme=scheme)
    nobody = np.empty(0, dtype=np.int64)
    fed.plan = RowPlan(
        {
            party: RowShare(party, "all", np.arange(len(table)), nobody)
            for party, table in tables.items()
        }
    )
    return fed


def draw_rows(
    tables: Tables, holder: str, rows: int, rng: np.random.Generator
) -> dict[str, PartyTable]:
    """Common rows drawn with replacement, with jitter of a hundredth of the deviation."""
    ids = tables[holder].ids
    drawn = rng.integers(len(ids), size=rows)
    made = {}
    for party, table in tables.items():
        frame = of_ids(table, ids).frame.iloc[drawn].reset_index(drop=True)
        for name in table.features:
            if pd.api.types.is_numeric_dtype(frame[name].dtype):
                values = frame[name].to_numpy(dtype=np.float64)
                frame[name] = values + rng.normal(scale=_JITTER * values.std(), size=rows)
        frame.insert(0, "id", np.arange(rows).astype(str))
        made[party] = PartyTable.from_frame(
            frame, party=party, id="id", label=table.labels[0] if table.labels else False
        )
    return made


def describe_size(tables: Tables, holder: str) -> str:
    """Rows, and columns of each party."""
    columns = " + ".join(str(len(table.features)) for table in tables.values())
    return f"{len(tables[holder]):,} × ({columns})"


def best_of(repeats: int, work: Callable[[], Any]) -> tuple[Any, Cost]:
    """The last result, and the cost of the fastest run."""
    costs = []
    for _ in range(repeats):
        result, cost = timed(work)
        costs.append(cost)
    return result, min(costs, key=lambda cost: cost.wall)


# ---- whole trainings -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """XGB on the first rows of the data without the test fifth, or on as many drawn rows."""

    rows: int
    trees: int
    drawn: bool
    compared: bool  # with the trees of plain
    scheme: str = "auto"


def train(case: Training) -> dict[str, Any]:
    """What a whole training took, all parties and the dealer."""
    if case.drawn:
        tables, label, _ = parties(30_000)
        chosen = draw_rows(tables, label[0], case.rows, np.random.default_rng(0))
    else:
        tables, label, _ = parties(case.rows)
        chosen = split(tables, label[0])["train"]
    fed, model = align(chosen, case.scheme), make_models(case.trees)["XGB"]
    with PeakMemory() as memory:
        fitted, runs, core, wall = weigh(lambda: model.fit(fed, label))
    traffic = add_up(runs)
    once = count_before_trees(fed.transcript.entries) / 1e6
    row = {
        "work": f"XGB, {describe_size(chosen, label[0])}",
        "scheme": ", ".join(str(step.settings.get("scheme")) for step in fed.steps),
        "rows": len(chosen[label[0]]),
        "trees": case.trees,
        "MB": traffic.megabytes,
        "of the dealer": traffic.sent.get(DEALER, 0) / 1e6,
        "MB once": once,
        "MB per tree": (traffic.megabytes - once) / case.trees,
        "core-s": core,
        "core-s per tree": core / case.trees,
        "rounds": traffic.rounds,
        "WAN s": traffic.seconds,
        "wall s": wall,
        "peak MB": memory.megabytes,
    }
    if case.compared:
        plain = make_models(case.trees)["XGB"].fit(align(chosen, "plain"), label)
        row["same trees as plain"] = same_trees(fitted.shares_, plain.shares_)
    return row


def count_before_trees(entries: list[Entry]) -> int:
    """Bytes that left before the first trees were announced."""
    first = min(entry.sequence for entry in entries if entry.message == "trees")
    return sum(entry.bytes for entry in entries if entry.sequence < first)


def same_trees(one: Mapping[str, ModelShare], two: Mapping[str, ModelShare]) -> bool:
    """Whether all parties' shares are equal, leaf values to the last digit."""
    return all(one[party].state == two[party].state for party in two)


# ---- scores of new rows --------------------------------------------------------------------------


@dataclass(frozen=True)
class Scoring:
    """Scores of new rows by trees of so many data holders; one row is scored alone."""

    holders: int
    rows: int
    trees: int


def deal_columns(tables: Tables, holder: str, count: int) -> dict[str, PartyTable]:
    """The other party's columns, dealt to ``count`` − 1 parties."""
    (other,) = (party for party in tables if party != holder)
    table = tables[other]
    made = {holder: tables[holder]}
    for place in range(count - 1):
        names = table.features[place :: count - 1]
        frame = table.frame[list(names)].assign(id=table.ids)
        party = f"{other}-{place + 1}"
        made[party] = PartyTable.from_frame(frame, party=party, id="id", label=False)
    return made


def score(case: Scoring) -> dict[str, Any]:
    """What the scores of a batch took, per row, and those of one row alone."""
    tables, label, _ = parties(_SCORED_TREES_ROWS + case.rows)
    shared = deal_columns(tables, label[0], case.holders)
    ids = shared[label[0]].ids
    known = {party: of_ids(table, ids[case.rows :]) for party, table in shared.items()}
    new = {party: of_ids(table, ids[: case.rows]) for party, table in shared.items()}
    model = make_models(case.trees)["XGB"].fit(align(known, "plain"), label)
    figures: dict[str, Any] = {
        "work": f"{case.trees} trees, holders: {case.holders}",
        "holders": case.holders,
        "rows": case.rows,
    }
    fed = align(new, "auto")
    _, runs, core, wall = weigh(lambda: model.decision_function(fed))
    traffic = add_up(runs)
    figures |= {
        "KB per row": 1e3 * traffic.megabytes / case.rows,
        "MB": traffic.megabytes,
        "core-s": core,
        "rounds": traffic.rounds,
        "WAN s": traffic.seconds,
        "wall s": wall,
    }
    alone = align({party: of_ids(table, ids[:1]) for party, table in shared.items()}, "auto")
    _, runs, _, _ = weigh(lambda: model.decision_function(alone))
    single = add_up(runs)
    return figures | {"KB of one row": 1e3 * single.megabytes, "WAN s of one row": single.seconds}


# ---- plain beside pooled peers -------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """The fastest of several fits of one model."""

    fit: str
    rows: int
    trees: int
    drawn: bool
    repeats: int


PIP = {"xgboost": "xgboost-cpu", "lightgbm": "lightgbm"}
PEER_OF = {"XGB": "xgboost", "LGB": "lightgbm"}


def time_fit(case: Timing) -> dict[str, Any]:
    """A plain training of all parties, or a peer on the pooled columns."""
    tables, label, _ = parties(30_000 if case.drawn else case.rows)
    if case.drawn:
        chosen = draw_rows(tables, label[0], case.rows, np.random.default_rng(0))
    else:
        chosen = split(tables, label[0])["train"]
    if case.fit in PIP:
        name, columns, target = f"{case.fit}, pooled", pool(chosen), target_of(chosen, label)
        # Threads that wait for each other on a busy machine must not make a peer look slow.
        costs = [
            best_of(
                case.repeats,
                partial(make_peer(case.fit, case.trees, threads).fit, columns, target),
            )[1]
            for threads in range(1, THREADS + 1)
        ]
    else:
        name, fed = f"vfsl {case.fit}, plain", align(chosen, "plain")
        fit = partial(make_models(case.trees)[case.fit].fit, fed, label)
        costs = [best_of(case.repeats, fit)[1]]
    cost = Cost(min(one.wall for one in costs), min(one.core for one in costs))
    return {
        "fit": name,
        "rows": len(chosen[label[0]]),
        "trees": case.trees,
        "wall s": cost.wall,
        "core-s": cost.core,
    }


def make_peer(name: str, trees: int, threads: int) -> Any:
    """A pooled peer with the settings of ours; ImportError where it is not installed."""
    if name == "xgboost":
        import xgboost

        return xgboost.XGBClassifier(
            n_estimators=trees,
            max_depth=DEPTH,
            max_bin=BINS,
            learning_rate=XGB().learning_rate,
            tree_method="hist",
            enable_categorical=True,
            max_cat_to_onehot=1000,
            n_jobs=threads,
        )
    import lightgbm

    return lightgbm.LGBMClassifier(
        n_estimators=trees,
        max_depth=DEPTH,
        num_leaves=LGB().max_leaves,
        max_bin=BINS,
        learning_rate=LGB().learning_rate,
        min_child_samples=LGB().min_rows,
        max_cat_to_onehot=1000,
        n_jobs=threads,
        verbose=-1,
    )


def pool(tables: Tables) -> pd.DataFrame:
    """All parties' columns side by side, texts as categories, under names without signs."""
    frames = [table.frame[list(table.features)] for table in tables.values()]
    columns = [name for frame in frames for name in frame]
    pooled = pd.concat(frames, axis=1)
    pooled.columns = pd.Index([f"x{place}" for place in range(len(columns))])
    texts = [c for c in pooled if not pd.api.types.is_numeric_dtype(pooled[c].dtype)]
    return pooled.astype(dict.fromkeys(texts, "category"))


def target_of(tables: Tables, label: Label) -> Array:
    return np.asarray(pd.factorize(tables[label[0]].column(label[1]), sort=True)[0])


# ---- quality -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quality:
    """Ours and the pooled peer on one split of one set, cut to ``most`` rows."""

    data: str
    model: str
    seed: int
    trees: int
    most: int


def compare(case: Quality) -> dict[str, Any]:
    """The AUC of both on the test fifth."""
    tables, label = two_parties(case.data)
    rows = len(tables[label[0]])
    order = np.random.RandomState(case.seed).permutation(rows)[: case.most]
    cut = -(-len(order) // 5)
    train, test = (
        {party: table.take(at) for party, table in tables.items()}
        for at in (order[cut:], order[:cut])
    )
    model = make_models(case.trees)[case.model].fit(align(train, "plain"), label)
    truth = target_of(test, label)
    ours = model.decision_function(align(test, "plain"))[:, 0]
    # Categories of both parts, so that their codes agree.
    columns = pool({party: table.take(order) for party, table in tables.items()})
    peer = make_peer(PEER_OF[case.model], case.trees, 1)
    peer.fit(columns.iloc[cut:], target_of(train, label))
    theirs = np.asarray(peer.predict_proba(columns.iloc[:cut]))[:, 1]
    return {
        "rows": len(order) - cut,
        "ours": float(roc_auc_score(truth, ours)),
        "peer": float(roc_auc_score(truth, theirs)),
    }


def two_parties(name: str) -> tuple[dict[str, PartyTable], Label]:
    """A data set at two parties with the same rows in one order; without parties, in halves."""
    data = load(name)
    if data.tables:
        ids = data.tables["guest"].ids
        tables = {party: of_ids(table, ids) for party, table in data.tables.items()}
        return tables, ("guest", data.label)
    frame = data.frame.drop(columns=[c for c in data.frame if c == "id"])
    one, two = halves([str(name) for name in frame if name != data.label])
    ids = np.arange(len(frame)).astype(str)
    made = {"A": frame[[*one, data.label]], "B": frame[two]}
    return {
        party: PartyTable.from_frame(
            part.assign(id=ids), party=party, id="id", label=data.label if party == "A" else False
        )
        for party, part in made.items()
    }, ("A", data.label)
