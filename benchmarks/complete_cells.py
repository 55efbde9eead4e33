"""One cell of the completion experiment: hide B's columns, complete them, train, compare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.blocks import SMALL_TREES, coded
from vfsl.align import RowPlan, RowShare
from vfsl.channel import run_together
from vfsl.completion.columns import Filled, fill_by_baseline, skill
from vfsl.completion.completed import LOW, Completion
from vfsl.completion.fedpsg import FedPSG
from vfsl.completion.recommend import Advice
from vfsl.data import Kind, PartyTable, halves
from vfsl.datasets import load
from vfsl.estimators import XGB, Association, Part, Roles
from vfsl.federation import Federation, simulate
from vfsl.values import Array

# Self-training is measured up to this overlap only: it is slow, and more rows need it less.
MOST_FOR_ROUNDS = 0.1
NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Case:
    """Everything that the result of one cell depends on."""

    data: str
    overlap: float
    seed: int
    train: int
    test: int
    rounds: int = 10
    trees: int = 60
    bases: tuple[str, ...] = ("linear", "xgb")


@dataclass(frozen=True, eq=False)
class Hidden:
    """A case's tables: what the parties hold, and the truth that they do not."""

    train: Federation
    test: Federation
    truth: PartyTable  # B's columns of A's remaining rows
    whole: dict[str, PartyTable]  # both parties, all training rows, in one order
    label: str


def prepare(case: Case) -> Hidden:
    """Divide a data set: columns between A and B, rows between training and test."""
    data = load(case.data)
    order = np.random.default_rng(case.seed).permutation(len(data.frame))
    train, test = order[: case.train], order[case.train : case.train + case.test]
    columns = _columns(case.data)
    kinds = {name: kind for name, kind in data.kinds.items() if kind is not Kind.LABEL}
    frames = {
        "A": data.frame[[*columns["A"], data.label]],
        "B": data.frame[columns["B"]],
    }
    whole = {party: _table(party, frame, kinds, data.label) for party, frame in frames.items()}
    common = round(case.overlap * len(train))
    tables = {"A": whole["A"].take(train), "B": whole["B"].take(train[:common])}
    tests = {party: table.take(test) for party, table in whole.items()}
    rows = np.arange(len(train))
    plan = {
        "A": RowShare("A", "case", rows[:common], rows[common:]),
        "B": RowShare("B", "case", rows[:common], NOBODY),
    }
    return Hidden(
        _aligned(tables, plan, case.seed),
        _aligned(tests, _all_common(len(test)), case.seed),
        whole["B"].take(train[common:]),
        {party: table.take(train) for party, table in whole.items()},
        data.label,
    )


def complete_cell(case: Case) -> dict[str, Any]:
    """Complete, judge columns on hidden truth, train by each strategy, score test rows."""
    hidden = prepare(case)
    # One cross-fit for both: every column by its model, and those that pass the gate.
    every = FedPSG(base=case.bases, rounds=1, low="direct").fit_complete(hidden.train)
    done = gated(every)
    changes = self_training(case, hidden)
    advice = done.recommend(
        label=hidden.label, base=XGB(n_estimators=case.trees, max_depth=4, learning_rate=0.08)
    )
    return {
        "columns": [
            judged_column(done.columns[name], done, hidden.truth)
            | model_skill(every.columns[name], every, hidden.truth)
            | {"self-training": changes.get(name)}
            for name in done.columns
        ],
        "downstream": downstream(advice, hidden, case),
        "advice": advice.text,
    }


def self_training(case: Case, hidden: Hidden) -> dict[str, float | None]:
    """The effect of VFPU-M's rounds on each column; few common rows only, where they might help."""
    if case.overlap > MOST_FOR_ROUNDS:
        return {}
    direct, trained = (
        FedPSG(base="linear", rounds=rounds, shift="none").fit_complete(hidden.train)
        for rounds in (1, case.rounds)
    )
    return {
        name: _change(direct.columns[name], trained.columns[name], hidden.truth)
        for name in direct.columns
    }


def model_skill(column: Filled, every: Completion, truth: PartyTable) -> dict[str, float]:
    """The skill of a column's model on hidden truth, and its estimate from held-out common rows."""
    expected, error = skill(column.fold)
    return {
        "skill of model": judged_column(column, every, truth)["skill"],
        "expected skill": expected,
        "its error": error,
    }


def gated(every: Completion) -> Completion:
    """The default completion of FedPSG: low columns by mean and mode."""
    others = len(every.ids)
    columns = {
        name: fill_by_baseline(column.target, others, every.folds, LOW, "mean")
        if column.route == LOW
        else column
        for name, column in every.columns.items()
    }
    return replace(every, columns=columns)


def judged_column(column: Filled, done: Completion, truth: PartyTable) -> dict[str, Any]:
    """One completed column beside its hidden truth."""
    name = column.target.name
    known = truth.column(name).notna().to_numpy()
    line: dict[str, Any] = {
        "column": name,
        "kind": "categorical" if column.target.classes else "numeric",
        "model": column.model,
        "verdict": column.verdict,
    }
    if column.target.classes:
        levels = pd.Index(column.target.levels, dtype=object)
        places = levels.get_indexer(pd.Index(truth.column(name).astype(object)))
        chances = column.chances
        base = np.bincount(
            column.target.filled[column.target.known].astype(np.int64), minlength=len(levels)
        ) / max(column.target.known.sum(), 1)
        if chances is None:
            raise TypeError(name)
        hot = np.eye(len(levels) + 1)[places][:, :-1]  # an unseen category is none of them
        ours = ((chances - hot) ** 2).sum(axis=1)[known].mean()
        mean = ((base - hot) ** 2).sum(axis=1)[known].mean()
        sets = column.sets(done.miss, done.shift)
        inside = np.where(places >= 0, sets[np.arange(len(places)), places], False)
        right = (column.values == places)[known].mean()
        line |= {
            "accuracy": float(right),
            "accuracy of mode": float((base.argmax() == places)[known].mean()),
        }
    else:
        numbers = truth.column(name).to_numpy(dtype=np.float64, na_value=np.nan)
        scale = float(np.nanstd(numbers)) or 1.0
        target = column.target
        ours = np.nanmean((column.values - numbers) ** 2)
        mean = np.nanmean((target.filler - numbers) ** 2)
        low, high = column.interval(done.miss, done.shift)
        inside = (numbers >= low) & (numbers <= high)
        donors = np.random.default_rng(0).choice(target.filled[target.known], len(numbers))
        error = np.abs(column.values - numbers)[known]
        line |= {
            "rmse": float(np.sqrt(ours) / scale),
            "rmse of mean": float(np.sqrt(mean) / scale),
            "rmse of hot-deck": float(np.sqrt(np.nanmean((donors - numbers) ** 2)) / scale),
            "confidence ranks errors": _rank_agreement(-column.confidence[known], error),
        }
    return line | {
        "skill": float(1 - ours / mean) if mean > 0 else 0.0,
        "coverage": float(inside[known].mean()),
        "routed": column.route,
    }


def downstream(advice: Advice, hidden: Hidden, case: Case) -> dict[str, Any]:
    """Test AUC of every strategy, of the blend, of A's own columns, and of the oracle."""
    from sklearn.metrics import roc_auc_score

    table = hidden.test.tables["A"]
    truth = table.column(hidden.label).to_numpy()
    positive = truth == np.unique(truth)[-1]

    def score(values: Array) -> float:
        return float(roc_auc_score(positive, values))

    names = [str(name) for name in advice.table.index if name != "blend"]
    found = {name: score(advice.predict(hidden.test, way=name)) for name in names}
    found["blend"] = score(advice.predict(hidden.test))
    found["oracle"] = score(oracle(hidden, case))
    alone = {"own columns only": found["own columns only"]}
    without = replace_table(hidden.test, "B", blanked(hidden.test.tables["B"]))
    for name in ("missing stays missing", "completed"):
        alone[name] = score(advice.predict(without, way=name))
    alone["advice"] = score(advice.predict_alone(table))
    return {"both": found, "A alone": alone, "held out": advice.table["score"].to_dict()}


def oracle(hidden: Hidden, case: Case) -> Array:
    """The same trees on the true columns of all training rows."""
    model = XGB(n_estimators=case.trees, max_depth=4, learning_rate=0.08)
    roles = Roles("A", ("B",), "K", "plain")
    rows = np.arange(len(hidden.whole["A"]))
    target = np.array(hidden.whole["A"].column(hidden.label).tolist(), dtype=object)
    parts = {
        "A": Part(hidden.whole["A"], rows, target),
        "B": Part(hidden.whole["B"], rows),
    }
    shares = run_together(
        {
            party: partial(
                model.train, part=parts.get(party), roles=roles, rng=np.random.default_rng(0)
            )
            for party in roles.everyone
        }
    )
    asked = np.arange(len(hidden.test.tables["A"]))
    tests = {party: Part(table, asked) for party, table in hidden.test.tables.items()}
    answers = run_together(
        {
            party: partial(
                model.score_rows, part=tests.get(party), share=shares[party], roles=roles
            )
            for party in roles.everyone
        }
    )
    return np.asarray(answers["A"])[:, 0]


def pooled_errors(case: Case) -> dict[str, Any]:
    """The errors of one pooled boosted model per numeric column on the same rows."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    hidden = prepare(case)
    given = hidden.whole["A"].without([hidden.label])
    category = [given.kinds[name] is not Kind.NUMERIC for name in given.features]
    matrix = np.column_stack(
        [coded(given.column(name), c) for name, c in zip(given.features, category, strict=True)]
    )
    common = len(matrix) - len(hidden.truth)
    errors = []
    for name in hidden.truth.features:
        if hidden.truth.kinds[name] is not Kind.NUMERIC:
            continue
        shown = hidden.whole["B"].column(name).to_numpy(dtype=np.float64, na_value=np.nan)[:common]
        truth = hidden.truth.column(name).to_numpy(dtype=np.float64, na_value=np.nan)
        known = ~np.isnan(shown)
        model = HistGradientBoostingRegressor(
            random_state=0, categorical_features=category, **SMALL_TREES
        )
        guess = model.fit(matrix[:common][known], shown[known]).predict(matrix[common:])
        scale = float(np.nanstd(truth)) or 1.0
        errors.append(float(np.sqrt(np.nanmean((guess - truth) ** 2)) / scale))
    return {"rmse": float(np.mean(errors)) if errors else None}


def routed_shares(case: Case) -> dict[str, float]:
    """The fraction of B's columns above τ = 0.5 by each aggregate, over all training rows."""
    hidden = prepare(replace(case, overlap=1.0))
    found = {}
    for aggregate in ("mean", "max"):
        # All rows are common here and nobody is protected, so few rows per column do not matter.
        how = Association(aggregate=aggregate, rows_per_column=2, above=0.5)
        found[aggregate] = float(np.mean(how.measure(hidden.train)["above"]))
    return found


def replace_table(fed: Federation, party: str, table: PartyTable) -> Federation:
    """Another federation of the same rows with one table replaced."""
    other = simulate({**fed.tables, party: table}, scheme="plain", seed=fed.seed)
    other.plan = fed.plan
    return other


def blanked(table: PartyTable) -> PartyTable:
    """The table without a single value."""
    from vfsl.completion.ensembles import blank

    frame = pd.DataFrame({name: blank(table.column(name)) for name in table.columns})
    return PartyTable(table.party, table.ids, frame, dict(table.kinds))


def _change(direct: Filled, trained: Filled, truth: PartyTable) -> float | None:
    """The change in the standardised RMSE of a predicted number by rounds of self-training."""
    target = direct.target
    if target.classes or direct.model == "mean" or trained.model == "mean":
        return None
    numbers = truth.column(target.name).to_numpy(dtype=np.float64, na_value=np.nan)
    scale = float(np.nanstd(numbers)) or 1.0
    before, after = (
        np.sqrt(np.nanmean((one.values - numbers) ** 2)) / scale for one in (direct, trained)
    )
    return float(after - before)


def _rank_agreement(unsure: Array, error: Array) -> float | None:
    from scipy.stats import spearmanr

    if np.ptp(unsure) == 0 or np.ptp(error) == 0:
        return None
    return float(spearmanr(unsure, error).statistic)


def _columns(name: str) -> dict[str, list[str]]:
    """Which party has which columns: FATE's own split, otherwise the first and the second half."""
    data = load(name)
    if data.tables:
        sides = {"A": data.tables["guest"], "B": data.tables["host"]}
        shared = set(sides["A"].columns) & set(sides["B"].columns)
        prefix = {"A": "guest", "B": "host"}
        return {
            party: [
                f"{prefix[party]}_{column}" if column in shared else column
                for column in table.features
            ]
            for party, table in sides.items()
        }
    first, second = halves([str(name) for name in data.frame if name != data.label])
    return {"A": first, "B": second}


def _table(party: str, frame: pd.DataFrame, kinds: Any, label: str) -> PartyTable:
    named = frame.reset_index(drop=True)
    named.insert(0, "row of case", [str(row) for row in range(len(named))])
    own = {name: str(kind) for name, kind in kinds.items() if name in frame.columns}
    return PartyTable.from_frame(
        named, party=party, id="row of case", label=label if label in frame else False, kinds=own
    )


def _aligned(tables: dict[str, PartyTable], plan: dict[str, RowShare], seed: int) -> Federation:
    fed = simulate(tables, scheme="plain", seed=seed)
    fed.plan = RowPlan(plan)
    return fed


def _all_common(rows: int) -> dict[str, RowShare]:
    return {party: RowShare(party, "test", np.arange(rows), NOBODY) for party in ("A", "B")}
