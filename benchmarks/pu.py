"""VFPU beside pooled baselines: ranking, precision, prior, each default, and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks import pu_baselines as pooled
from benchmarks.cells import Cells
from benchmarks.figures import Panels
from benchmarks.linear import flows_of, timed
from benchmarks.peers import PeerMissing, peer_python
from benchmarks.pu_trials import Trial, dataset, federation, matrices, trial
from benchmarks.table import Outcome, judged
from vfsl.data import make_parties
from vfsl.errors import DataError
from vfsl.pu import VFPU
from vfsl.pu.bags import Booleans
from vfsl.pu.bases import IN_BAGS
from vfsl.values import Floats


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    sets: tuple[str, ...]
    rows: int  # for training, and as many for the test
    seeds: int
    labelled: tuple[float, ...]  # fractions of the positives that are known
    bases: tuple[str, ...]
    bags: int
    speed_rows: int
    encrypted: bool
    peers: bool


FULL = Sizes(
    sets=("census", "bank with duration", "bank", "credit"),
    rows=8_000,
    seeds=3,
    labelled=(0.1, 0.5),
    bases=("lr", "lgb"),
    bags=20,
    speed_rows=30_000,
    encrypted=True,
    peers=True,
)
QUICK = Sizes(
    sets=("breast_cancer",),
    rows=280,
    seeds=2,
    labelled=(0.3,),
    bases=("lr",),
    bags=8,
    speed_rows=2_000,
    encrypted=False,
    peers=False,
)

# Test AUC of pooled PU bagging in an earlier experiment, by (set, labelled fraction, base). The
# goal is to come within 0.01 of it.
REFERENCES = {
    ("census", 0.1, "lgb"): 0.882,
    ("census", 0.5, "lgb"): 0.911,
    ("bank with duration", 0.1, "lgb"): 0.929,
    ("bank with duration", 0.5, "lgb"): 0.941,
    ("bank", 0.1, "lgb"): 0.767,
    ("bank", 0.5, "lgb"): 0.790,
    ("credit", 0.1, "lgb"): 0.737,
    ("credit", 0.5, "lgb"): 0.773,
    ("census", 0.1, "lr"): 0.886,
    ("census", 0.5, "lr"): 0.899,
    ("credit", 0.1, "lr"): 0.696,
    ("credit", 0.5, "lr"): 0.714,
}
PRECISION = {("census", 0.1, "lgb"): 0.618, ("credit", 0.1, "lgb"): 0.474}
_SLACK = 0.01
_KIND = {"lr": "logistic"}  # of the pooled baselines; trees: "boosted"


# Raise this when a change of code changes results, so that older kept cells are not used.
EDITION = 2


@dataclass(frozen=True)
class PuCase:
    """One method on one trial: everything that the result of a cell depends on."""

    name: str
    labelled: float
    seed: int
    method: str
    rows: int
    bags: int
    biased: str = ""  # the party by whose column positives were selected
    settings: str = ""  # of a base, if they are not its defaults


def run(quick: bool, say: Callable[[str], None]) -> Outcome:
    """Four sets, two labelled fractions, three seeds; one built-in set and two seeds if quick."""
    sizes = QUICK if quick else FULL
    cells = Cells("pu", EDITION, say, keep=not quick)
    notes = list(_NOTES)
    here = [name for name in sizes.sets if _is_here(name, notes)]
    names = list(methods(sizes.bases, sizes.bags)) + ([PEER] if _peer(sizes, notes) else [])
    groups = [
        (name, labelled, method, "")
        for name in here
        for labelled in sizes.labelled
        for method in names
        # Other defaults are compared where few positives are known: there they might help.
        if labelled == sizes.labelled[0] or method.rpartition(", ")[2] not in ABLATION
    ]
    if here:  # the last set once more, with positives that were not selected at random
        groups += [
            (here[-1], sizes.labelled[-1], f"VFPU {base}", party)
            for party in "BC"
            for base in sizes.bases
        ]
    cases = {
        f"{name}, {labelled:.0%} known, seed {seed}: {method}{_biased(biased)}": PuCase(
            name, labelled, seed, method, sizes.rows, sizes.bags, biased, _settings(method)
        )
        for name, labelled, method, biased in groups
        for seed in range(sizes.seeds)
    }
    found = dict(zip(cases.values(), cells.all(pu_cell, cases), strict=True))
    rows = [averaged(*group, found) for group in groups]
    rows += speed_rows(sizes, say)
    notes += ["Goals are judged in the full form only."] if quick else goals(rows)
    panels = [Panels("test AUC", ("method",), ("set", "known"), "±")]
    title = "Reliable positives: VFPU beside pooled baselines"
    return Outcome("pu", title, rows, notes, panels)


PEER = "pulearn bagging, pooled logistic"


def _biased(party: str) -> str:
    return f", biased positives, by a column of {party}" if party else ""


def _settings(method: str) -> str:
    base = method.removeprefix("VFPU ").partition(",")[0]
    return str(IN_BAGS[base]) if base in IN_BAGS else ""


def pu_cell(case: PuCase) -> dict[str, Any]:
    """Draw, learn, judge."""
    one = trial(
        case.name, dataset(case.name), case.rows, case.labelled, case.seed, biased=case.biased
    )
    if case.method == PEER:
        return baseline(partial(pooled.pulearn_bagging, bags=case.bags), one)
    return methods(("lr", "lgb"), case.bags)[case.method](one)


def _is_here(name: str, notes: list[str]) -> bool:
    try:
        dataset(name)
    except DataError as error:
        notes.append(f"{name} is left out: {error}")
        return False
    return True


def _peer(sizes: Sizes, notes: list[str]) -> bool:
    """Whether pulearn is asked for and installs."""
    if not sizes.peers:
        return False
    try:
        peer_python(*pooled.PULEARN)
    except PeerMissing as error:
        notes.append(f"pulearn is left out: {error}")
        return False
    return True


# ---- methods -------------------------------------------------------------------------------------

Work = Callable[[Trial], dict[str, Any]]


def methods(bases: Sequence[str], bags: int) -> dict[str, Work]:
    """Everything that is compared, by name."""
    found: dict[str, Work] = {}
    for base in bases:
        kind = _KIND.get(base, "boosted")
        model = VFPU(base=base, rounds=bags)
        found[f"VFPU {base}"] = partial(vfpu, model)
        found[f"naive, pooled {kind}"] = partial(baseline, partial(pooled.naive, kind))
        found[f"Elkan–Noto, pooled {kind}"] = partial(
            baseline, partial(pooled.elkan_noto_weighted, kind)
        )
        found[f"bagging, pooled {kind}"] = partial(baseline, partial(_bagging, kind, bags=bags))
        found[f"oracle, pooled {kind}"] = partial(_oracle, kind)
        for what, change in ABLATION.items():
            if base != "lr" and what not in _FOR_TREES:
                continue
            found[f"VFPU {base}, {what}"] = partial(vfpu, replace(model, **change))
    found["nnPU, pooled network"] = _nnpu
    return found


# One default changed at a time.
ABLATION: dict[str, dict[str, Any]] = {
    "5 bags": {"rounds": 5},
    "one promoted batch": {"outer": 2, "promote": 0.03},
    "four promoted batches": {"outer": 5, "promote": 0.03},
    "spies": {"spies": True},
}


# Trees take minutes for each; only the one that might help them is measured, all with "lr".
_FOR_TREES = ("one promoted batch",)


def vfpu(model: VFPU, one: Trial) -> dict[str, Any]:
    """A federated run without encryption, and its scores of test rows."""
    fed = federation(one.train, one.known, one.seed)
    fitted, cost = timed(lambda: replace(model).fit(fed))
    scores = fitted.predict_proba(federation(one.test, None, one.seed))[:, 1]
    chosen = fitted.reliable_positives_.index.astype(int)
    return measured(one, fitted.scores_.to_numpy(), scores) | {
        "prior": fitted.prior_.value,
        "prior by best bin": fitted.prior_.best_bin,
        "reliable": len(chosen),
        "precision of reliable": float(one.truth[chosen].mean()),
        "warned": float(bool(fitted.warnings_)),
        "core-s": cost.core,
    }


def baseline(method: Callable[..., pooled.Scores], one: Trial) -> dict[str, Any]:
    train, test = matrices(one)
    (rank, scores), cost = timed(lambda: method(train, one.known, test))
    return measured(one, rank[~one.known], scores) | {"core-s": cost.core}


def _bagging(kind: str, train: Floats, known: Booleans, test: Floats, bags: int) -> pooled.Scores:
    return pooled.bagging(kind, train, known, test, bags, np.random.default_rng(0))


def _oracle(kind: str, one: Trial) -> dict[str, Any]:
    train, test = matrices(one)
    rank, scores = pooled.oracle(kind, train, one.truth, test)
    return measured(one, rank[~one.known], scores)


def _nnpu(one: Trial) -> dict[str, Any]:
    """With the prior that VFPU estimates."""
    prior = VFPU().fit(federation(one.train, one.known, one.seed)).prior_.value
    train, test = matrices(one)
    rng = np.random.default_rng(one.seed)
    rank, scores = pooled.nnpu(train, one.known, test, prior, rng)
    return measured(one, rank[~one.known], scores)


# ---- rows of the table ---------------------------------------------------------------------------


def measured(one: Trial, hidden: Floats, test: Floats) -> dict[str, Any]:
    """Metrics on hidden rows and on test rows; the only place where the truth is used."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    count = int(one.hidden.sum())
    best = np.argsort(-hidden, kind="stable")[:count]
    return {
        "test AUC": float(roc_auc_score(one.test_truth, test)),
        "hidden AP": float(average_precision_score(one.hidden, hidden)),
        "precision at k": float(one.hidden[best].mean()),
        "true prior": float(one.hidden.mean()),
    }


def averaged(
    name: str,
    labelled: float,
    method: str,
    biased: str,
    cells: Mapping[PuCase, Mapping[str, Any]],
) -> dict[str, Any]:
    """Mean over the seeds, and the deviation of the AUC."""
    wanted = (name, labelled, method, biased)
    found = [
        line
        for case, line in cells.items()
        if (case.name, case.labelled, case.method, case.biased) == wanted
    ]
    row: dict[str, Any] = {
        "set": name,
        "known": labelled,
        "method": method + _biased(biased),
        "seeds": len(found),
    }
    for metric in found[0]:
        values = np.array([line[metric] for line in found], dtype=np.float64)
        row[metric] = float(values.mean())
        if metric == "test AUC":
            row["±"] = float(values.std(ddof=1)) if len(values) > 1 else None
    return row


def speed_rows(sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The cost of a logistic base: plain, and under the scheme that "auto" picks."""
    ways = ["plain", "auto"] if sizes.encrypted else ["plain"]
    cases = {f"{sizes.speed_rows:,} rows, {how}": (sizes.speed_rows, how) for how in ways}
    # Times are not kept, and are measured on one thread: a waiting thread would count as work.
    cells = Cells("pu", EDITION, say, keep=False)
    return [cells.get(title, speed_cell, case) for title, case in cases.items()]


def speed_cell(case: tuple[int, str]) -> dict[str, Any]:
    """The cost of one fit."""
    count, how = case
    made = make_parties(
        count, 3, rng=np.random.default_rng(0), overlap=1.0, missing=0.0, known_positives=0.3
    )
    known = made.truth["id"].isin(made.tables["A"]["id"]).to_numpy()
    frame = made.truth.drop(columns=["id", made.label])
    fed = federation(frame, known, 0, how)
    model, cost = timed(partial(VFPU(rounds=20).fit, fed))
    flows = flows_of(fed.transcript.entries)
    return {
        "set": f"synthetic, {count:,} rows",
        "method": f"VFPU lr, {fed.record.steps[-1].settings['scheme']}",
        "seeds": 1,
        "core-s": cost.core,
        "wall s": cost.wall,
        "messages": flows.messages,
        "MB": flows.megabytes,
        "rounds": flows.gradients,
        "stopped": model.stop_reason_,
    }


def goals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was to be reached, and whether it was."""
    found = {(row["set"], row.get("known"), row["method"]): row for row in rows}
    lines = []
    for targets, metric in ((REFERENCES, "test AUC"), (PRECISION, "precision at k")):
        for (name, labelled, base), target in targets.items():
            for method in (f"VFPU {base}", f"VFPU {base}, one promoted batch"):
                row = found.get((name, labelled, method))
                if row is not None:
                    text = (
                        f"{metric} of {name}, {labelled:.0%} known, {method} ≥ {target} − {_SLACK}"
                    )
                    figure = float(row[metric])
                    lines.append(judged(text, figure >= target - _SLACK, f"{figure:.4f}"))
    for row in rows:
        if "messages" not in row:
            continue
        text = f"under 200 messages, {row['method']}, {row['set']}"
        lines.append(judged(text, row["messages"] < 200, str(row["messages"])))
        if row["method"].endswith("plain"):
            core = row["core-s"]
            lines.append(judged("plain in under 10 core-seconds", core < 10, f"{core:.3g}"))
    return lines


_NOTES = (
    "The rarer class is positive. Rows are shuffled; there are as many test rows as training rows. "
    "A random fraction of the training positives is known. Metrics on hidden rows use the other "
    "training rows only, and k is the number of positives among them.",
    "VFPU runs between two parties with half of the columns each, without encryption, which "
    "changes no figure. Every other method has all columns in one place.",
    "nnPU gets the prior that VFPU estimates. The oracle knows all labels.",
    "biased positives: high values of the party's first numeric column are up to e⁴ times as "
    "likely to be known. warned is the fraction of fits with a warning; only C's columns are "
    "compared.",
    "The figures after ≥ in the goals are those of pooled PU bagging in an earlier experiment, not "
    "from this run.",
)
