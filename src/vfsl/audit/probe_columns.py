"""Probes on columns: the rank of scores, and columns from all numbers about rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vfsl.audit.columns import count_directions, gain_of_views
from vfsl.audit.evidence import seen_evidence
from vfsl.audit.findings import Change, Control, Finding, Marks, at_chance, open_door
from vfsl.audit.probe import Probe, pairs_of
from vfsl.audit.views import COMMON, Case, RowView, training_places
from vfsl.values import Array, Floats

AUX = (30, 100)
_SEED = 20240
_MOST_ROWS = 2000  # attacks on more rows tell the same and take longer
_FEW = Change(
    "show fewer scores of the same rows: one model, or predictions of new rows only; between "
    "companies the budget of party.toml (limits.numbers) counts and refuses them"
)


@dataclass(frozen=True, eq=False)
class _Block:
    """All numbers of an attacker about one set of rows, with the truth beside them."""

    views: list[RowView]
    values: Floats
    truth: Floats
    own: Floats


def _blocks(case: Case, attacker: str, target: str) -> Iterator[_Block]:
    """Views of the same rows side by side: held-out, training and remaining rows."""
    found = [*case.views(attacker), *_evidence_views(case, attacker, target)]
    found = [view for view in found if target in view.senders]
    for of in dict.fromkeys(view.of for view in found):
        mine = [view for view in found if view.of == of]
        for places in _sets(case, attacker, of, mine):
            inside = [view for view in mine if np.isin(places, view.places).all()]
            if not inside or len(places) < 2 * AUX[0]:
                continue
            if len(places) > _MOST_ROWS:
                places = np.sort(np.random.default_rng(_SEED).permutation(places)[:_MOST_ROWS])
            columns = [_at(view, places) for view in inside]
            scene = case.scenes[inside[-1].step - 1]
            whole = RowView("", np.zeros((0, 0)), of, places, (), 0, "")
            truth, own = (case.rows_of(scene, p, whole) for p in (target, attacker))
            values = np.hstack(columns)
            values = values[:, np.isfinite(values).all(axis=0) & (values.std(axis=0) > 0)]
            if values.shape[1] and truth.shape[1]:
                yield _Block(inside, values, truth[:, truth.std(axis=0) > 0], own)


def _sets(case: Case, attacker: str, of: str, views: list[RowView]) -> list[Array]:
    if of != COMMON:
        return [views[0].places]
    standing = case.scenes[views[-1].step - 1].standing[attacker]
    sets = [training_places(standing)]
    return sets if standing.held_out is None else [*sets, standing.held_out]


def _at(view: RowView, places: Array) -> Floats:
    order = np.argsort(view.places)
    at = order[np.searchsorted(view.places, places, sorter=order)]
    return view.values[at]


def _evidence_views(case: Case, attacker: str, target: str) -> Iterator[RowView]:
    """The mean logarithm of a party's evidence for each common row that took part in training."""
    for step, scene in enumerate(case.scenes, start=1):
        seen = seen_evidence(scene.transcript, attacker, target)
        places = training_places(scene.standing[attacker])
        rows = np.array(sorted(row for row in seen if row < len(places)), dtype=np.int64)
        if len(rows) == len(places) > 0:
            values = np.array([seen[row] for row in rows])
            line = f"train risa: {target} → {attacker}: evidence"
            yield RowView("evidence", values, COMMON, places[rows], (target,), step, line)


def _tell(views: list[RowView]) -> str:
    return "; ".join(dict.fromkeys(view.line for view in views))


# ---- ranks --------------------------------------------------------------------------------------


def attack_rank(case: Case, probe: Probe) -> Iterator[Finding]:
    """How many of the other's directions exact linear scores show."""
    for attacker, target in pairs_of(case):
        truth = case.encoded(target)
        if not truth.shape[1]:
            continue
        best, line, whole = 0, "", truth.shape[1]
        for block in _blocks(case, attacker, target):
            shown, there = count_directions(block.values, block.truth, block.own)
            if shown > best:
                best, line, whole = shown, _tell(block.views), there
        controls = _rank_controls(truth, probe.marks)
        mark = "green" if best <= 1 else probe.marks.judge(best / whole)
        yield probe.finding(
            attacker,
            target,
            best / whole,
            0.0,
            controls,
            line=line or "no exact scores",
            change=_FEW if best > 1 else None,
            mark=mark if best else None,
            note=f"{best} of {whole} directions",
        )


def _rank_controls(truth: Floats, marks: Marks) -> list[Control]:
    rng = np.random.default_rng(_SEED)
    mixed = truth @ rng.normal(size=(truth.shape[1], truth.shape[1]))
    none = np.zeros((len(truth), 0))
    found = []
    for view in (mixed, rng.permutation(mixed)):
        shown, there = count_directions(view, truth, none)
        found.append(shown / max(there, 1))
    return [
        open_door("as many scores as columns", found[0], marks),
        at_chance("the same scores of other rows", found[1], marks),
    ]


# ---- columns ------------------------------------------------------------------------------------


def attack_columns(case: Case, probe: Probe) -> Iterator[Finding]:
    """R² of the other's columns with all numbers about rows, beyond the attacker's own columns."""
    for attacker, target in pairs_of(case):
        if not case.encoded(target).shape[1]:
            continue
        best, line, note = (0.0, 0.0), "", ""
        for block in _blocks(case, attacker, target):
            for aux in AUX:
                if len(block.truth) >= 2 * aux:
                    found = _largest(block.values, block.truth, block.own, aux)
                    if found[0] - found[1] > best[0] - best[1]:
                        best, line = found, _tell(block.views)
                        note = f"{aux} known rows, {len(block.truth)} rows in all"
        yield probe.finding(
            attacker,
            target,
            *best,
            _column_controls(case, attacker, target, probe.marks),
            line=line or "no numbers about rows",
            change=_change_columns(line) if line else None,
            note=note,
        )


def _largest(view: Floats, truth: Floats, own: Floats, aux: int) -> tuple[float, float]:
    """R² with the view and without it, of the column that the view adds most to."""
    after, before = gain_of_views(view, truth, own, aux, _SEED)
    at = int(np.argmax(after - before))
    return float(after[at]), float(before[at])


def _column_controls(case: Case, attacker: str, target: str, marks: Marks) -> list[Control]:
    truth = case.encoded(target)[:_MOST_ROWS]
    truth = truth[:, truth.std(axis=0) > 0]
    rng = np.random.default_rng(_SEED)
    mixed = truth @ rng.normal(size=(truth.shape[1], truth.shape[1]))
    none, found = np.zeros((len(truth), 0)), []
    for view in (mixed, rng.permutation(mixed)):
        after, before = _largest(view, truth, none, AUX[0])
        found.append(after - before)
    return [
        open_door("as many scores as columns", found[0], marks),
        at_chance("the same scores of other rows", found[1], marks),
    ]


def _change_columns(line: str) -> Change:
    if "evidence" in line:
        return Change("protect the evidence, where RISA has protect, or train a linear model")
    if "predictions" in line:
        return Change(
            "let fewer columns be predicted from the given party's (a higher tau), so that the "
            "missing party sees fewer numbers per row than the other has columns"
        )
    return _FEW


RANK = Probe(
    "score-rank",
    "How many of the other's columns do exact scores of the same rows add up to?",
    "directions seen over directions there are",
    Marks(0.0, 0.5),
    attack_rank,
)
COLUMNS = Probe(
    "columns",
    "Could it compute the other's columns from scores, predictions and evidence, if it knew a few "
    "rows?",
    "largest gain of R² over its own columns, with 30 or 100 known rows",
    Marks(0.1, 0.5),
    attack_columns,
)
