"""Probes on completed rows: what they tell about the people that the models were trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from vfsl.audit.findings import Change, Finding, Marks, at_chance, open_door
from vfsl.audit.probe import Probe
from vfsl.audit.released import (
    Risk,
    distance_ratio,
    find_risk,
    infer_attribute,
    link,
    membership_auc,
)
from vfsl.audit.views import Case, training_places
from vfsl.data import Kind
from vfsl.values import Booleans, Floats

_SEED = 20243
_MOST_ROWS = 500  # attempts of an attack
_LEAST_ROWS = 30
_HALVINGS = 20  # a control on few rows is luck unless it is repeated
_WITHIN = 0.05  # of a column's range: a guessed number that is so near is right
_CHANGE = Change(
    "complete by draws (low = a generator) instead of single rows' predictions, or release the "
    "completed rows to nobody but the missing party"
)


@dataclass(frozen=True, eq=False)
class Release:
    """Completed rows beside the rows that models were trained on and rows that nobody learned from.

    ``split`` columns are the given party's; the others were completed. Numbers are standardised,
    categories are codes.
    """

    released: Floats
    training: Floats
    held_out: Floats
    numeric: Booleans
    split: int


def _releases(case: Case) -> Iterator[tuple[str, str, str, Release]]:
    """(given, missing, file, rows) of every completion of a job."""
    for step, scene in enumerate(case.scenes, start=1):
        done = next((record for record in scene.records if record.name == "completion"), None)
        if done is None or case.results is None:
            continue
        given, missing = str(done.settings["given"]), str(done.settings["missing"])
        folder = case.results / "parties" / missing
        path = next(iter(sorted(folder.glob(f"completed-{step}.*"))), None)
        standing = scene.standing[given]
        if path is None or standing.rows is None or standing.held_out is None:
            continue
        frame = _read(path)
        both = [case.tables[given], case.tables[missing]]
        names = [
            [name for name in table.features if of or name in frame]
            for of, table in zip((True, False), both, strict=True)
        ]
        numeric = np.array(
            [t.kinds[n] is Kind.NUMERIC for t, each in zip(both, names, strict=True) for n in each]
        )
        commons = [
            table.frame[each].iloc[case.common(scene, party)].reset_index(drop=True)
            for party, table, each in zip((given, missing), both, names, strict=True)
        ]
        rest = both[0].frame[names[0]].iloc[standing.rows.rest].reset_index(drop=True)
        if len(frame) != len(rest):
            continue
        released = pd.concat([rest, frame[names[1]].reset_index(drop=True)], axis=1)
        common = pd.concat(commons, axis=1)
        cells, made = _to_numbers(common, released, numeric)
        rng = np.random.default_rng(_SEED)
        inside, outside = (
            cells[rng.permutation(places)[:_MOST_ROWS]]
            for places in (training_places(standing), standing.held_out)
        )
        if min(len(inside), len(outside), len(made)) < _LEAST_ROWS:
            continue
        yield given, missing, path.name, Release(made, inside, outside, numeric, len(names[0]))


def _read(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def _to_numbers(
    common: pd.DataFrame, released: pd.DataFrame, numeric: Booleans
) -> tuple[Floats, Floats]:
    """Both as numbers: standardised by the common rows, or codes of categories."""
    both = [np.zeros((len(frame), len(numeric))) for frame in (common, released)]
    for at, number in enumerate(numeric):
        one, other = common.iloc[:, at], released.iloc[:, at]
        if number:
            cells = [pd.to_numeric(each, errors="coerce").to_numpy(float) for each in (one, other)]
            middle, spread = np.nanmean(cells[0]), np.nanstd(cells[0]) or 1.0
            cells = [np.nan_to_num((each - middle) / spread) for each in cells]
        else:
            codes = pd.factorize(pd.concat([one, other]).astype(str), sort=True)[0].astype(float)
            cells = [codes[: len(one)], codes[len(one) :]]
        for kept, each in zip(both, cells, strict=True):
            kept[:, at] = each
    return both[0], both[1]


def _open(release: Release) -> Release:
    """The door opened on purpose: the release has the training rows themselves."""
    return replace(release, released=release.training)


def _closed(release: Release) -> Iterator[Release]:
    """Nothing to find: the rows under attack are held-out ones as well, halved again and again."""
    rng, half = np.random.default_rng(_SEED), len(release.held_out) // 2
    for _ in range(_HALVINGS):
        rows = release.held_out[rng.permutation(len(release.held_out))]
        yield replace(release, training=rows[:half], held_out=rows[half : 2 * half])


def _attack(
    case: Case, probe: Probe, measure: Callable[[Release], tuple[float, float, Risk | None]]
) -> Iterator[Finding]:
    """Advantage, number and interval of a measure on each completion, with its controls."""
    for given, missing, name, release in _releases(case):
        value, baseline, risk = measure(release)
        advantages = [_advantage(*measure(one)) for one in (_open(release), *_closed(release))]
        controls = [
            open_door("training rows released as they are", advantages[0], probe.marks),
            at_chance(
                "held-out rows in place of training rows",
                float(np.mean(advantages[1:])),
                probe.marks,
            ),
        ]
        advantage = _advantage(value, baseline, risk)
        yield probe.finding(
            f"who gets {name}",
            missing,
            value,
            baseline,
            controls,
            line=f"result {name} at {missing}, with columns of {given}",
            change=_CHANGE if advantage > probe.marks.green else None,
            advantage=advantage,
            low=None if risk is None else risk.low,
            high=None if risk is None else risk.high,
            note="" if risk is None else f"{risk.attempts} attempts, rates with 95 % intervals",
        )


def _advantage(value: float, baseline: float, risk: Risk | None) -> float:
    return value - baseline if risk is None else risk.value


def _judge(risk: Risk) -> tuple[float, float, Risk | None]:
    return risk.attack, risk.control, risk


def _infer(release: Release) -> tuple[float, float, Risk | None]:
    """The completed column that the nearest completed row gives away most."""
    split, found = release.split, []
    for secret in range(split, release.released.shape[1]):
        within = _WITHIN * float(np.ptp(release.training[:, secret]))
        within = within if release.numeric[secret] else 0.0
        outcomes = [
            infer_attribute(
                (release.released[:, :split], release.released[:, secret]),
                (rows[:, :split], rows[:, secret]),
                within,
            )
            for rows in (release.training, release.held_out)
        ]
        found.append(find_risk(outcomes[0], outcomes[1]))
    return _judge(max(found, key=lambda risk: risk.value))


def _link(release: Release) -> tuple[float, float, Risk | None]:
    outcomes = [
        link(release.released, rows, release.split) for rows in (release.training, release.held_out)
    ]
    return _judge(find_risk(outcomes[0], outcomes[1]))


def _distance(release: Release) -> tuple[float, float, Risk | None]:
    ratio = distance_ratio(release.released, release.training, release.held_out)
    return 1.0 - ratio, 0.0, None


def _membership(release: Release) -> tuple[float, float, Risk | None]:
    return membership_auc(release.released, release.training, release.held_out), 0.5, None


def _make(
    name: str,
    asks: str,
    number: str,
    marks: Marks,
    measure: Callable[[Release], tuple[float, float, Risk | None]],
) -> Probe:
    return Probe(name, asks, number, marks, lambda case, probe: _attack(case, probe, measure))


_RISK = "risk: success beyond that on control rows"
INFERENCE = _make(
    "attribute-inference",
    "Do completed rows give away cells of people that the models learned from?",
    _RISK,
    Marks(0.1, 0.5),
    _infer,
)
LINKABILITY = _make(
    "linkability",
    "Do completed rows join what two parties know of one person?",
    _RISK,
    Marks(0.1, 0.5),
    _link,
)
DISTANCE = _make(
    "nearest-row",
    "Are completed rows nearer to training rows than to other people?",
    "1 − distance of training rows to the nearest completed row over that of held-out rows",
    Marks(0.1, 0.3),
    _distance,
)
MEMBERSHIP = _make(
    "membership",
    "Do completed rows tell who was among the training rows?",
    "AUC of nearness to completed rows, less ½",
    Marks(0.05, 0.1),
    _membership,
)
