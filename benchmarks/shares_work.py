"""The work of the shares experiment: each as users would call it, measured whole, and judged.

Every function takes a case and gives the cost of one run of all its parties, and its quality beside
a reference that has all columns in one place.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn.linear_model import LinearRegression as PooledLinear
from sklearn.linear_model import LogisticRegression as PooledLogistic
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks import pu_baselines, pu_trials
from benchmarks.linear import of_ids, parties, timed
from benchmarks.wan import WAN, Line, Traffic, add_up, watch
from vfsl import store
from vfsl.align import RowPlan, RowShare
from vfsl.completion.fedpsg import FedPSG
from vfsl.crypto.words import WIDEST, to_signed
from vfsl.data import Encoder, PartyTable, make_parties
from vfsl.estimators import Association, LinearRegression, LogisticRegression
from vfsl.estimators.shared.scoring import ScoreBits
from vfsl.federation import Federation, simulate
from vfsl.job import load_job, run_job
from vfsl.job.demo import has_torch, write_demo
from vfsl.pu import VFPU
from vfsl.values import Array, Floats

DEALER = "K"
_L2 = 1e-3  # the penalty of both linear models: the default of logistic regression
_FIRST_SPLIT = 42  # as in the linear experiment
_WIDE = {"A": 30, "B": 300}  # columns, of FATE's published times
_NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Case:
    """One run: everything that its result depends on."""

    work: str
    scheme: str
    rows: int
    seed: int


@dataclass(frozen=True)
class Judged:
    """A measure of quality beside that of a reference; without one, it is a distance already."""

    measure: str
    ours: float
    reference: float | None = None
    of: str = "pooled"

    @property
    def gap(self) -> float:
        """How far ours is from the reference."""
        return self.ours if self.reference is None else self.ours - self.reference


@dataclass(frozen=True)
class Measured:
    """What a run took, and what it was worth."""

    scheme: str
    size: str
    traffic: Traffic
    core: float
    wall: float
    judged: tuple[Judged, ...] = ()
    steps: tuple[tuple[str, Traffic], ...] = ()


def measure(case: Case) -> Measured:
    """Do the work of a case."""
    return WORK[case.work](case)


def weigh(
    work: Callable[[], Any], line: Line = WAN, *, delayed: bool = False
) -> tuple[Any, list[Traffic], float, float]:
    """Do some work: its result, the traffic of its runs, its core-seconds and its seconds."""
    with watch(line, delayed=delayed) as runs:
        result, cost = timed(work)
    return result, runs, cost.core, cost.wall


# ---- linear models -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Train and test tables with the same rows at both parties, and matrices of all columns."""

    train: Mapping[str, PartyTable]
    test: Mapping[str, PartyTable]
    label: tuple[str, str]

    @property
    def size(self) -> str:
        """Rows to learn from, and columns of each party."""
        columns = " + ".join(str(len(table.features)) for table in self.train.values())
        return f"{len(self.train[self.label[0]]):,} × ({columns})"

    def federation(self, scheme: str, part: str = "train") -> Federation:
        tables = self.train if part == "train" else self.test
        fed = simulate(dict(tables), scheme=scheme)
        everybody = np.arange(len(tables[self.label[0]]))
        fed.plan = RowPlan({p: RowShare(p, "all", everybody, _NOBODY) for p in tables})
        return fed

    def target(self, part: str) -> Floats:
        table = (self.train if part == "train" else self.test)[self.label[0]]
        return table.column(self.label[1]).to_numpy(dtype=np.float64)

    def encoded(self) -> dict[str, dict[str, Floats]]:
        """Each party's columns as it encodes them itself, by part and party."""
        found: dict[str, dict[str, Floats]] = {"train": {}, "test": {}}
        for party, table in self.train.items():
            encoder = Encoder(missing="impute").fit(table)
            found["train"][party] = encoder.transform(table).matrix
            found["test"][party] = encoder.transform(self.test[party]).matrix
        return found

    def matrix(self, part: str) -> Floats:
        return np.hstack(list(self.encoded()[part].values()))


def split(case: Case) -> Split:
    """A permuted fifth of the rows is for the test; the first split is that of `linear`."""
    tables, label, _ = parties(case.rows)
    order = np.random.RandomState(_FIRST_SPLIT + case.seed).permutation(len(tables[label[0]]))
    return _cut(tables, label, order)


def _cut(tables: Mapping[str, PartyTable], label: tuple[str, str], order: Array) -> Split:
    """The first fifth of the rows in this order is for the test."""
    ids, cut = tables[label[0]].ids, -(-len(order) // 5)
    train, test = (
        {party: of_ids(table, ids[chosen]) for party, table in tables.items()}
        for chosen in (order[cut:], order[:cut])
    )
    return Split(train, test, label)


def ridge(case: Case) -> Measured:
    """The label by ridge regression, beside the solution of the pooled normal equations."""
    data = split(case)
    fed = data.federation(case.scheme)
    model, runs, core, wall = weigh(lambda: LinearRegression(l2=_L2).fit(fed, data.label))
    target = data.target("train")
    weights = solve_ridge(data.matrix("train"), (target - target.mean()) / target.std())
    expected = data.matrix("test") @ weights[:-1] + weights[-1]
    found = (model.predict(data.federation(case.scheme, "test")).ravel() - target.mean()) / (
        target.std()
    )
    judged = (
        Judged("largest error of a prediction / deviation", _largest(found - expected)),
        Judged("typical error of a prediction / deviation", _typical(found - expected)),
        Judged(
            "largest error of a weight",
            _largest(join_weights(model, data) - weights),
        ),
    )
    return Measured(_scheme(fed), data.size, add_up(runs), core, wall, judged)


def logistic(case: Case) -> Measured:
    """The label by logistic regression, beside scikit-learn on all columns."""
    return _fit_logistic(case, split(case))


def wide(case: Case) -> Measured:
    """The same for made-up parties with as many columns as others have published times for."""
    rng = np.random.default_rng(case.seed)
    ids = np.arange(case.rows).astype(str)
    frames, slope = {}, np.zeros(case.rows)
    for party, count in _WIDE.items():
        values = rng.normal(size=(case.rows, count))
        slope += values @ rng.normal(size=count) / np.sqrt(count)
        names = [f"x{place}" for place in range(count)]
        frames[party] = pd.DataFrame(values, columns=names).assign(id=ids)
    frames["A"]["y"] = (slope + rng.logistic(size=case.rows) > 0).astype(int)
    tables = {
        party: PartyTable.from_frame(
            frame, party=party, id="id", label="y" if party == "A" else False
        )
        for party, frame in frames.items()
    }
    return _fit_logistic(case, _cut(tables, ("A", "y"), rng.permutation(case.rows)))


def _fit_logistic(case: Case, data: Split) -> Measured:
    fed = data.federation(case.scheme)
    model, runs, core, wall = weigh(lambda: LogisticRegression(l2=_L2).fit(fed, data.label))
    train, test = data.matrix("train"), data.matrix("test")
    pooled = PooledLogistic(C=1 / (_L2 * len(train)), tol=1e-8, max_iter=5000)
    expected = pooled.fit(train, data.target("train")).predict_proba(test)[:, 1]
    found = model.predict_proba(data.federation(case.scheme, "test"))[:, 1]
    truth = data.target("test")
    judged = (
        Judged("test AUC", auc(truth, found), auc(truth, expected)),
        Judged("test log-loss", loss(truth, found), loss(truth, expected)),
    )
    return Measured(_scheme(fed), data.size, add_up(runs), core, wall, judged)


def prediction(case: Case) -> Measured:
    """Scores of new rows, beside those that the weights give in one place."""
    data = split(case)
    model = LogisticRegression(l2=_L2).fit(data.federation(case.scheme), data.label)
    fed = data.federation(case.scheme, "test")
    scores, runs, core, wall = weigh(lambda: model.decision_function(fed))
    columns = np.column_stack([data.matrix("test"), np.ones(len(scores))])
    expected = columns @ join_weights(model, data)
    judged = (Judged("largest error of a score", _largest(scores.ravel() - expected)),)
    return Measured(_scheme(fed), f"{len(scores):,} rows", add_up(runs), core, wall, judged)


def association(case: Case) -> Measured:
    """How strongly columns go with the other party's, beside Spearman's ρ of all pairs."""
    data = split(case)
    fed = data.federation(case.scheme)
    missing = data.label[0]
    given = next(party for party in data.train if party != missing)
    found, runs, core, wall = weigh(lambda: Association().measure(fed, given, missing))
    ranks = {
        party: rankdata(table.frame[list(table.features)].to_numpy(dtype=np.float64), axis=0)
        for party, table in data.train.items()
    }
    together = np.abs(np.corrcoef(ranks[missing], ranks[given], rowvar=False))
    count = ranks[missing].shape[1]
    expected = together[:count, count:].mean(axis=1)
    judged = (Judged("largest error of a strength", _largest(found.to_numpy() - expected)),)
    return Measured(_scheme(fed), data.size, add_up(runs), core, wall, judged)


def solve_ridge(columns: Floats, target: Floats) -> Floats:
    """Weights and intercept that minimise half the mean square plus half the penalty."""
    wide = np.column_stack([columns, np.ones(len(columns))])
    penalty = _L2 * np.diag([1.0] * columns.shape[1] + [0.0])
    gram, moments = wide.T @ wide / len(wide), wide.T @ target / len(wide)
    return np.asarray(np.linalg.solve(gram + penalty, moments), dtype=np.float64)


def join_weights(model: LinearRegression | LogisticRegression, data: Split) -> Floats:
    """The weights of all parties in the order of the pooled columns, and the intercept.

    Where they stay shared, the pieces of all parties are put together, as nobody could in a run.
    """
    if "pieces" in model.held_share.state:
        weights = {party: np.ravel(one) for party, one in _add_pieces(model).items()}
    else:
        weights = {party: np.ravel(one) for party, one in model.weights_.items()}
    holder = data.label[0]
    columns = [weights[p][:-1] if p == holder else weights[p] for p in data.train]
    return np.concatenate([*columns, weights[holder][-1:]])


def _add_pieces(model: LinearRegression | LogisticRegression) -> dict[str, Floats]:
    states = {party: share.state for party, share in model.shares_.items()}
    found = {}
    columns = sum(len(one) for one in model.held_share.state["pieces"].values())
    norm = 2.0 ** (model.held_share.state["power"] / 2)
    bits = ScoreBits.choose(model.accuracy, columns, norm)
    for party, state in states.items():
        pieces = [np.asarray(one["pieces"][party], dtype=np.uint64) for one in states.values()]
        total = to_signed(np.sum(pieces, axis=0, dtype=np.uint64), WIDEST)
        found[party] = np.asarray(state["back"]) @ (total / 2.0**bits.weights)
    return found


# ---- reliable positives --------------------------------------------------------------------------


@dataclass(frozen=True)
class People:
    """Made-up rows of a VFPU run: all columns, who is positive, and of whom that is known."""

    frame: pd.DataFrame
    truth: Array
    known: Array

    @classmethod
    def make(cls, case: Case, rows: int) -> People:
        rng = np.random.default_rng(case.seed)
        made = make_parties(rows, 3, rng=rng, overlap=1.0, missing=0.0, known_positives=0.3)
        known = made.truth["id"].isin(made.tables["A"]["id"]).to_numpy()
        truth = made.truth[made.label].to_numpy(dtype=bool)
        return cls(made.truth.drop(columns=["id", made.label]), truth, known)


def bags(case: Case, parties: str = "BC") -> Measured:
    """VFPU with its defaults, 20 bags and 5 for held-out positives, beside pooled PU bagging."""
    people = People.make(case, case.rows)
    frame, known, truth = people.frame, people.known, people.truth
    fed = pu_trials.federation(frame, known, case.seed, case.scheme, parties)
    model, runs, core, wall = weigh(lambda: VFPU().fit(fed))
    table = PartyTable.from_frame(
        frame.assign(id=np.arange(len(frame)).astype(str)), party="all", id="id", label=False
    )
    columns = Encoder(missing="impute").fit(table).transform(table).matrix
    rng = np.random.default_rng(case.seed)
    ranked, _ = pu_baselines.bagging("logistic", columns, known, columns[:1], model.rounds, rng)
    rows = model.scores_.index.astype(int)
    ours, theirs = model.scores_.to_numpy(), ranked[rows]
    judged = (
        Judged(
            "AUC of hidden positives",
            auc(truth[rows], ours),
            auc(truth[rows], theirs),
            "pooled PU bagging",
        ),
    )
    return Measured(_scheme(fed), f"{case.rows:,} rows", add_up(runs), core, wall, judged)


def bag_prediction(case: Case) -> Measured:
    """Probabilities of new rows by a VFPU model of four times as many."""
    new = case.rows // 5
    people = People.make(case, case.rows)
    frame, known = people.frame, people.known
    old = pu_trials.federation(frame[new:], known[new:], case.seed, case.scheme)
    model = VFPU().fit(old)
    fed = pu_trials.federation(frame[:new], known[:new], case.seed, case.scheme)
    chances, runs, core, wall = weigh(lambda: model.predict_proba(fed))
    found = auc(people.truth[:new], np.asarray(chances).reshape(new, -1)[:, -1])
    judged = (Judged("AUC of new rows", found),)
    return Measured(_scheme(fed), f"{new:,} rows", add_up(runs), core, wall, judged)


# ---- completion ----------------------------------------------------------------------------------


def completion(case: Case) -> Measured:
    """Twenty columns from twenty, a tenth of the rows common, in two rounds."""
    rng = np.random.default_rng(case.seed)
    factors = rng.normal(size=(case.rows, 5))
    frames = {
        party: pd.DataFrame(
            factors @ rng.normal(size=(5, 20)) + rng.normal(size=(case.rows, 20)),
            columns=[f"{party}{place}" for place in range(20)],
        )
        for party in "AB"
    }
    common, everybody = case.rows // 10, np.arange(case.rows)
    known = frames["B"].iloc[:common]
    ids = everybody.astype(str)
    fed = simulate(
        {"A": frames["A"].assign(id=ids), "B": known.assign(id=ids[:common])},
        labels={"A": None, "B": None},
        scheme=case.scheme,
        seed=case.seed,
    )
    fed.plan = RowPlan(
        {
            "A": RowShare("A", "all", everybody[:common], everybody[common:]),
            "B": RowShare("B", "all", everybody[:common], _NOBODY),
        }
    )
    done, runs, core, wall = weigh(lambda: FedPSG(rounds=2).fit_complete(fed))
    truth = frames["B"].iloc[common:]
    pooled = PooledLinear().fit(frames["A"].iloc[:common], known)
    expected = pooled.predict(frames["A"].iloc[common:])
    judged = (
        Judged(
            "RMSE of hidden cells / deviation",
            _relative_error(truth, done.table[list(truth.columns)].to_numpy(dtype=np.float64)),
            _relative_error(truth, expected),
            "pooled least squares",
        ),
    )
    size = f"{case.rows:,} × (20 + 20), {common:,} common"
    return Measured(_scheme(fed), size, add_up(runs), core, wall, judged)


# ---- the demo ------------------------------------------------------------------------------------


def demo(case: Case) -> Measured:
    """All steps of `vfsl demo`; its tables have their own size."""
    with tempfile.TemporaryDirectory() as name:
        path = write_demo(Path(name), risa=has_torch())
        text = path.read_text().replace('scheme = "auto"', f'scheme = "{case.scheme}"')
        store.write_text(path, text)
        job = load_job(path)
        fed, runs, core, wall = weigh(lambda: run_job(job, path.parent, Path(name) / "out"))
    titles = [
        f"{number} {step.do} {getattr(step, 'model', '')}".strip()
        for number, step in enumerate(job.steps, start=1)
    ]
    metrics = fed.steps[-1].metrics
    judged = tuple(
        Judged(
            f"AUC of held-out rows, {name}",
            float(metrics[f"held-out AUC of {name}"]),
            float(metrics["held-out AUC of own columns, linear"]),
            "the label holder's own columns",
        )
        for name in ("bank and shop", "with completed rows")
    )
    steps = tuple(zip(titles, runs, strict=True))
    return Measured(case.scheme, "all steps", add_up(runs), core, wall, judged, steps)


# ---- through a slow line -------------------------------------------------------------------------


@dataclass(frozen=True)
class Delayed:
    """The same run at once, and through a line that delays every message."""

    traffic: Traffic
    core: float  # of the run at once
    wall: float  # of the delayed run

    @property
    def expected(self) -> float:
        """The network by calculation, and everybody's computing, as if never at the same time."""
        return self.traffic.seconds + self.core


def delay(case: Case) -> Delayed:
    """A small fit through a line that really delays."""
    data = split(case)
    model = {"ridge": LinearRegression, "logistic": LogisticRegression}[case.work]
    _, runs, core, _ = weigh(lambda: model(l2=_L2).fit(data.federation(case.scheme), data.label))
    fed = data.federation(case.scheme)
    *_, wall = weigh(lambda: model(l2=_L2).fit(fed, data.label), delayed=True)
    return Delayed(add_up(runs), core, wall)


# ---- measures ------------------------------------------------------------------------------------


def _scheme(fed: Federation) -> str:
    """What "auto" picked; several if steps differ."""
    found = [step.settings.get("scheme") for step in fed.steps]
    return ", ".join(dict.fromkeys(str(name) for name in found if name))


def _largest(errors: Array) -> float:
    return float(np.abs(errors).max())


def _typical(errors: Array) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def auc(truth: Array, scores: Array) -> float:
    return float(roc_auc_score(truth, scores))


def loss(truth: Array, chances: Array) -> float:
    return float(log_loss(truth, chances))


def _relative_error(truth: pd.DataFrame, found: Floats) -> float:
    """The root mean square error of each column by its deviation, on average."""
    errors = np.sqrt(((truth.to_numpy() - found) ** 2).mean(axis=0))
    return float((errors / truth.to_numpy().std(axis=0)).mean())


WORK: dict[str, Callable[[Case], Measured]] = {
    "demo": demo,
    "ridge": ridge,
    "logistic": logistic,
    "wide": wide,
    "bags": bags,
    "bags of three": partial(bags, parties="BDC"),
    "bags of four": partial(bags, parties="BDEC"),
    "bag prediction": bag_prediction,
    "completion": completion,
    "prediction": prediction,
    "association": association,
}
