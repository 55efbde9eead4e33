"""Scorecards on shares beside pooled ones, and beside optbinning where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.linear import Cost, of_ids, parties, split, timed
from benchmarks.table import Outcome, judged
from vfsl.align import RowPlan, RowShare
from vfsl.data import PartyTable
from vfsl.estimators import Scorecard
from vfsl.estimators.scorecard.binning import BinTerms, bin_alone, evidence_of
from vfsl.federation import Federation, simulate
from vfsl.values import Array

_SEEDS = (42, 43, 44, 45, 46)
_ROWS, _QUICK_ROWS = 30_000, 3_000
_GOAL = 0.005
_YARDSTICK = "optbinning"
POOLED, SHARES, SELECTED = "pooled", "vfsl on shares", "vfsl on shares, stepwise"


def run(quick: bool, say: Callable[[str], None]) -> Outcome:
    """Five random splits of 30,000 rows; two of 3,000 if quick."""
    tables, label, notes = parties(_QUICK_ROWS if quick else _ROWS)
    holder = label[0]
    lines = []
    for seed in _SEEDS[:2] if quick else _SEEDS:
        say(f"split {seed}")
        parts = split(tables, holder, seed)
        makers = {POOLED: _fit_pooled, SHARES: _fit_shares, SELECTED: _fit_selected}
        if find_spec(_YARDSTICK):
            makers[_YARDSTICK] = _fit_optbinning
        for name, fit in makers.items():
            lines.append({"scorecard": name, **fit(parts, label)})
    if not find_spec(_YARDSTICK):
        notes.append(f"{_YARDSTICK} is not installed; the pooled scorecard is the yardstick.")
    notes += _NOTES
    rows = _average(pd.DataFrame(lines))
    aucs = {row["scorecard"]: row["test AUC"] for row in rows}
    for other in (POOLED, _YARDSTICK):
        if other in aucs and not quick:
            gap = aucs[other] - aucs[SHARES]
            text = f"test AUC at most {_GOAL} below {other}"
            notes.append(judged(text, gap <= _GOAL, f"{gap:+.4f}"))
    return Outcome("scorecard", "Scorecards", rows, notes)


_NOTES = [
    "Figures are means over splits; ± is their standard deviation. core-s are those of training.",
    "Pooled: the same bins of all columns in one place, exact labels, scikit-learn's logistic "
    "regression. optbinning: its own bins with default settings, the same regression.",
]

Parts = Mapping[str, Mapping[str, PartyTable]]


def _average(found: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    for name, own in found.groupby("scorecard", sort=False):
        rows.append(
            {
                "scorecard": name,
                "splits": len(own),
                "test AUC": float(own["auc"].mean()),
                "±": float(own["auc"].std(ddof=1)),
                "columns": float(own["columns"].mean()),
                "core-s": float(own["core"].mean()),
                "MB": float(own["megabytes"].mean()),
            }
        )
    return rows


def _measure(target: Array, scores: Array, columns: int, cost: Cost, megabytes: float = 0.0) -> Any:
    from sklearn.metrics import roc_auc_score

    auc = float(roc_auc_score(target, scores))
    return {"auc": auc, "columns": columns, "core": cost.core, "megabytes": megabytes}


# ---- ours ----------------------------------------------------------------------------------------


def _join(tables: Mapping[str, PartyTable], holder: str) -> Federation:
    """Parties whose rows are in one order already."""
    ids, none = tables[holder].ids, np.zeros(0, dtype=np.int64)
    fed = simulate({party: of_ids(table, ids) for party, table in tables.items()})
    rows = np.arange(len(ids))
    fed.plan = RowPlan({party: RowShare(party, "plan", rows, none) for party in tables})
    return fed


def _fit_shares(parts: Parts, label: tuple[str, str], **settings: Any) -> dict[str, Any]:
    train, test = (_join(parts[part], label[0]) for part in ("train", "test"))
    model, cost = timed(lambda: Scorecard(**settings).fit(train, label))
    scores = model.decision_function(test)[:, 0]
    target = test.parts(label)[label[0]].target
    columns = sum(len(share.state["bins"]) for share in model.shares_.values())
    sent = sum(entry.bytes for entry in train.transcript.entries) / 1e6
    return dict(_measure(np.asarray(target, dtype=np.int64), scores, columns, cost, sent))


def _fit_selected(parts: Parts, label: tuple[str, str]) -> dict[str, Any]:
    return _fit_shares(parts, label, stepwise=True)


# ---- in one place --------------------------------------------------------------------------------


def _pool(tables: Mapping[str, PartyTable], label: tuple[str, str]) -> tuple[PartyTable, Array]:
    holder, column = label
    ids = tables[holder].ids
    own = {party: of_ids(table, ids) for party, table in tables.items()}
    blocks = [
        table.frame[list(table.features)].reset_index(drop=True).add_prefix(f"{party} ")
        for party, table in own.items()
    ]
    frame = pd.concat(blocks, axis=1).assign(id=ids)
    table = PartyTable.from_frame(frame, party="all", id="id", label=False)
    return table, own[holder].column(column).to_numpy().astype(np.int64)


def _fit_pooled(parts: Parts, label: tuple[str, str]) -> dict[str, Any]:
    (table, target), (new, truth) = (_pool(parts[part], label) for part in ("train", "test"))

    def fit() -> Any:
        found = bin_alone(table, target, BinTerms(), exact=True)
        columns = [one for one in found if one.information >= Scorecard().least_information]
        return columns, _regress(evidence_of(table, columns), target)

    (columns, model), cost = timed(fit)
    scores = model.decision_function(evidence_of(new, columns))
    return dict(_measure(truth, scores, len(columns), cost))


def _fit_optbinning(parts: Parts, label: tuple[str, str]) -> dict[str, Any]:
    from optbinning import BinningProcess

    (table, target), (new, truth) = (_pool(parts[part], label) for part in ("train", "test"))
    names = list(table.features)

    def fit() -> Any:
        process = BinningProcess(names)
        return process, _regress(process.fit_transform(table.frame[names], target), target)

    (process, model), cost = timed(fit)
    scores = model.decision_function(process.transform(new.frame[names]))
    return dict(_measure(truth, scores, len(names), cost))


def _regress(evidence: Any, target: Array) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=1 / (Scorecard().l2 * len(target)), max_iter=1000).fit(
        np.asarray(evidence), target
    )
