"""Completion: errors, flags and intervals of columns, and how much they help training."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cells import Cells
from benchmarks.complete_cells import (
    NOBODY,
    Case,
    complete_cell,
    pooled_errors,
    routed_shares,
)
from benchmarks.figures import Panels
from benchmarks.table import Outcome, judged
from vfsl.align import RowPlan, RowShare
from vfsl.completion.columns import MEAN, verdict
from vfsl.completion.downstream import WAYS
from vfsl.completion.fedpsg import FedPSG
from vfsl.datasets import available
from vfsl.errors import DataError
from vfsl.federation import simulate
from vfsl.parallel import call_apart

# Raise this when a change of code changes results, so that older kept cells are not used.
EDITION = 2
_WAYS = [way.name for way in WAYS]

# From an earlier experiment on pooled data, not from this run.
REFERENCES: dict[str, dict[str, float]] = {
    "bank": {"mean": 0.0, "max": 0.33, "boosted rmse": 0.36},
    "census": {"mean": 0.0, "max": 0.03, "boosted rmse": 0.965},
    "credit": {"mean": 0.19, "max": 0.73, "boosted rmse": 0.625},
    "fate-default_credit": {"boosted rmse": 0.66},
}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    data: tuple[str, ...]
    overlaps: tuple[float, ...]
    seeds: tuple[int, ...]
    train: int
    test: int
    rounds: int
    trees: int
    bases: tuple[str, ...]
    speed: int  # rows of the timed completion
    encrypted: int  # rows of the timed encrypted completion; 0: none


FULL = Sizes(
    data=("bank", "census", "credit", "fate-default_credit"),
    overlaps=(0.05, 0.1, 0.3, 0.5),
    seeds=(5, 6, 7, 8, 9),  # smaller ones were used while the method was developed
    train=6_000,
    test=6_000,
    rounds=10,
    trees=60,
    bases=("linear", "xgb"),
    speed=30_000,
    encrypted=3_000,
)
QUICK = Sizes(
    data=("breast_cancer",),
    overlaps=(0.3,),
    seeds=(0,),
    train=400,
    test=169,
    rounds=3,
    trees=10,
    bases=("linear",),
    speed=2_000,
    encrypted=0,
)


def run(quick: bool, say: Callable[[str], None]) -> Outcome:
    """Four data sets, four overlaps, five seeds; one built-in set if quick."""
    return measure(QUICK if quick else FULL, say, keep=not quick)


def measure(sizes: Sizes, say: Callable[[str], None], *, keep: bool) -> Outcome:
    """All cells of these sizes; finished ones are read from where they were kept."""
    here = [name for name in sizes.data if name in available()]
    if not here:
        raise DataError(
            f"The experiment needs one of {', '.join(sizes.data)}; set VFSL_DATA to a folder that "
            "has them, or run it with --quick."
        )
    notes = [f"Left out, since it is not here: {name}." for name in sizes.data if name not in here]
    kept = Cells("complete", EDITION, say, keep=keep)
    cases = {
        f"{name}, overlap {overlap:.0%}, seed {seed}": Case(
            name,
            overlap,
            seed,
            sizes.train,
            sizes.test,
            sizes.rounds,
            sizes.trees,
            sizes.bases,
        )
        for seed in sizes.seeds
        for name in here
        for overlap in sizes.overlaps
    }
    cells = dict(zip(cases.values(), kept.all(complete_cell, cases), strict=True))
    yardstick = Cells("complete", EDITION, say, keep=keep, lasting=True)
    pooled = dict(zip(cases.values(), yardstick.all(pooled_errors, cases), strict=True))
    rows = [column_row(name, overlap, cells, pooled) for name in here for overlap in sizes.overlaps]
    rows += [downstream_row(name, overlap, cells) for name in here for overlap in sizes.overlaps]
    whole = {f"{name}, association": Case(name, 1.0, 0, sizes.train, sizes.test) for name in here}
    shares = kept.all(routed_shares, whole)
    rows += [route_row(name, share) for name, share in zip(here, shares, strict=True)]
    say(f"{sizes.speed:,} rows × (20 + 20), plain")
    rows.append(call_apart(timed, (sizes.speed, "plain")))
    if sizes.encrypted:
        say(f"{sizes.encrypted:,} rows × (20 + 20), bfv")
        rows.append(call_apart(timed, (sizes.encrypted, "bfv")))
    notes += _NOTES
    notes += ["Goals are judged in the full form only."] if not keep else goals(rows, cells)
    panels = [Panels((*_WAYS, "blend", "oracle"), by=("data", "overlap"))]
    return Outcome("complete", "Completion of missing columns", rows, notes, panels)


# ---- rows of the table ---------------------------------------------------------------------------

Results = Mapping[Case, Mapping[str, Any]]


def _of(cells: Results, name: str, overlap: float) -> list[Mapping[str, Any]]:
    return [cell for case, cell in cells.items() if (case.data, case.overlap) == (name, overlap)]


def columns_of(
    cells: Results, name: str | None = None, overlap: float | None = None
) -> pd.DataFrame:
    """All judged columns of these cells."""
    chosen = [
        column
        for case, cell in cells.items()
        if name in (None, case.data) and overlap in (None, case.overlap)
        for column in cell["columns"]
    ]
    return pd.DataFrame(chosen).reindex(columns=_COLUMN_FIELDS)


_COLUMN_FIELDS = [
    "kind",
    "model",
    "skill",
    "skill of model",
    "expected skill",
    "its error",
    "coverage",
    "rmse",
    "rmse of mean",
    "rmse of hot-deck",
    "accuracy",
    "accuracy of mode",
    "confidence ranks errors",
    "self-training",
]


def column_row(name: str, overlap: float, cells: Results, pooled: Results) -> dict[str, Any]:
    """Errors, flags and coverage of completed columns, over seeds."""
    columns = columns_of(cells, name, overlap)
    numbers = columns[columns["kind"] == "numeric"]
    classes = columns[columns["kind"] == "categorical"]
    missed, false = flag_rates(columns)
    change = columns["self-training"].dropna().astype(float)
    return {
        "what": "columns",
        "data": name,
        "overlap": overlap,
        "RMSE": _mean(numbers["rmse"]),
        "of mean": _mean(numbers["rmse of mean"]),
        "of hot-deck": _mean(numbers["rmse of hot-deck"]),
        "of pooled trees": _mean([cell["rmse"] for cell in _of(pooled, name, overlap)]),
        "boosted (reference)": REFERENCES.get(name, {}).get("boosted rmse")
        if overlap == 0.1
        else None,
        "self-training": _mean(change),
        "accuracy": _mean(classes["accuracy"]),
        "of mode": _mean(classes["accuracy of mode"]),
        "coverage": _mean(columns["coverage"]),
        "missed flags": missed,
        "false flags": false,
        "confidence ranks errors": _mean(numbers["confidence ranks errors"]),
    }


def flag_rates(columns: pd.DataFrame) -> tuple[float | None, float | None]:
    """The fraction of models worse than the mean that are not flagged, and of better ones that are.

    Both are judged on hidden cells. A model whose squared error differs from the mean's by less
    than 0.5 % counts as neither.
    """
    true = columns["skill of model"].astype(float)
    said = zip(columns["model"], columns["expected skill"], columns["its error"], strict=True)
    flagged = pd.Series([verdict(*one) == MEAN for one in said], columns.index, dtype=bool)
    worse, better = true < -_SAME, true > _SAME
    missed = float((~flagged)[worse].mean()) if worse.any() else None
    false = float(flagged[better].mean()) if better.any() else None
    return missed, false


_SAME = 0.005


def downstream_row(name: str, overlap: float, cells: Results) -> dict[str, Any]:
    """Mean test AUC of each strategy, the blend and the oracle, and the regret of the blend."""
    both = pd.DataFrame([cell["downstream"]["both"] for cell in _of(cells, name, overlap)])
    alone = pd.DataFrame([cell["downstream"]["A alone"] for cell in _of(cells, name, overlap)])
    means = both.mean()
    best = float(means[_WAYS].max())
    gap = float(means["oracle"] - best)
    return {
        "what": "AUC",
        "data": name,
        "overlap": overlap,
        **{way: float(means[way]) for way in (*_WAYS, "blend", "oracle")},
        "regret": best - float(means["blend"]),
        "gap closed": float((means["blend"] - best) / gap) if gap > 0 else None,
        "A alone: advice": float(alone["advice"].mean()),
        "A alone: NaN": float(alone["missing stays missing"].mean()),
    }


def route_row(name: str, shares: Mapping[str, float]) -> dict[str, Any]:
    reference = REFERENCES.get(name, {})
    return {
        "what": "columns above τ = 0.5",
        "data": name,
        "by mean": shares["mean"],
        "by mean (reference)": reference.get("mean"),
        "by max": shares["max"],
        "by max (reference)": reference.get("max"),
    }


def timed(asked: tuple[int, str]) -> dict[str, Any]:
    """The cost of completing synthetic numbers with 10 % common rows and a linear base."""
    rows, scheme = asked
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(rows, 5))
    frames = {
        party: pd.DataFrame(
            factors @ rng.normal(size=(5, 20)) + rng.normal(size=(rows, 20)),
            columns=[f"{party}{place}" for place in range(20)],
        )
        for party in ("A", "B")
    }
    for frame in frames.values():
        frame["id"] = np.arange(rows).astype(str)
    common = rows // 10
    fed = simulate({"A": frames["A"], "B": frames["B"].iloc[:common]}, scheme=scheme)
    everybody = np.arange(rows)
    fed.plan = RowPlan(
        {
            "A": RowShare("A", "all", everybody[:common], everybody[common:]),
            "B": RowShare("B", "all", everybody[:common], NOBODY),
        }
    )
    wall, core = time.perf_counter(), time.process_time()
    done = FedPSG(rounds=10 if scheme == "plain" else 2).fit_complete(fed)
    flows = [flow for step in fed.record.steps for flow in step.flows]
    sent = [flow for flow in flows if flow.message == "gradient" and flow.sender == "A"]
    return {
        "what": "time",
        "scheme": scheme,
        "rows": len(done.table) + common,
        "wall s": time.perf_counter() - wall,
        "core-s": time.process_time() - core,
        "MB": sum(flow.bytes for flow in flows) / 1e6,
        "messages": sum(flow.messages for flow in flows),
        "gradient rounds": sum(flow.messages for flow in sent),
    }


# ---- goals ---------------------------------------------------------------------------------------


def goals(rows: Sequence[Mapping[str, Any]], cells: Results) -> list[str]:
    """What was to be reached, and whether it was."""
    lines = [row for row in rows if row["what"] == "AUC"]
    regret = [row["regret"] for row in lines]
    both = pd.DataFrame([cell["downstream"]["both"] for cell in cells.values()])
    fixed = str(both[_WAYS].mean().idxmax())
    gain = both["blend"] - both[fixed]
    error = float(1.96 * gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else float("inf")
    gap = float((both["oracle"] - both[fixed]).mean())
    alone = pd.DataFrame([cell["downstream"]["A alone"] for cell in cells.values()])
    loss = float((alone["own columns only"] - alone["advice"]).mean())
    columns = columns_of(cells)
    missed, false = flag_rates(columns)
    covered = columns["coverage"].astype(float).mean()
    timing = next(row for row in rows if row["what"] == "time" and row["scheme"] == "plain")
    return [
        judged(
            "mean regret ≤ 0.005 and worst cell ≤ 0.015",
            float(np.mean(regret)) <= 0.005 and max(regret) <= 0.015,
            f"{np.mean(regret):.4f} and {max(regret):.4f} over {len(regret)} cells",
        ),
        judged(
            f"better than the best fixed strategy ({fixed}), paired interval above 0",
            float(gain.mean()) - error > 0,
            f"{gain.mean():+.4f} ± {error:.4f}",
        ),
        judged(
            "30 % of that strategy's gap to the oracle closed",
            gap > 0 and float(gain.mean()) / gap >= 0.3,
            f"{gain.mean() / gap:.0%}" if gap > 0 else "no gap",
        ),
        judged("A alone: no more than 0.005 below A's own model", loss <= 0.005, f"{loss:+.4f}"),
        judged("intervals and sets cover 90 % ± 3", abs(covered - 0.9) <= 0.03, f"{covered:.3f}"),
        judged(
            "≤ 5 % of models worse than the mean not flagged, ≤ 15 % of better ones flagged",
            (missed or 0.0) <= 0.05 and (false or 0.0) <= 0.15,
            f"{missed or 0:.2%} and {false or 0:.2%}, of {len(columns)} columns in all",
        ),
        judged(
            f"{timing['rows']:,} rows × (20 + 20) in ≤ 60 core-seconds",
            timing["core-s"] <= 60,
            f"{timing['core-s']:.3g} core-s",
        ),
    ]


def _mean(values: Any) -> float | None:
    numbers = pd.Series(values, dtype=float).dropna()
    return float(numbers.mean()) if len(numbers) else None


_NOTES = (
    "B's columns are hidden for all rows outside the overlap. Errors, coverage and flags are "
    "measured on those hidden cells. RMSE is divided by the deviation of the hidden truth and "
    "averaged over numeric columns and seeds. The columns are completed by the better of the named "
    "bases, without self-training.",
    "self-training is the change of that RMSE by ten rounds of VFPU-M with a linear base, over the "
    "columns that it predicts at all.",
    "AUC is measured on test rows that both parties have. Strategies are trained on common and "
    "remaining rows, and the weights of the blend come from held-out common rows only. The oracle "
    "knows B's true columns.",
    "Missed flags: the fraction of models worse than the mean on hidden cells that were not "
    "flagged. False flags: the fraction of better ones that were flagged. Within 0.5 % of the "
    "mean's squared error a model counts as neither. The rule of two standard errors was chosen "
    "after seeing the flags of seed 5.",
    "of pooled trees: one boosted scikit-learn model per column on the same pooled rows. Columns "
    "marked as reference are from an earlier experiment on pooled data with another split of the "
    "columns, not from this run.",
)
