"""Probes on labels and marks: AUC from views, exact cells by integer programme, positives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from vfsl.audit.evidence import add_gradients, gradients_seen_by
from vfsl.audit.findings import Change, Control, Finding, Marks, at_chance, open_door
from vfsl.audit.labels import draw_known, gain_of_view, guess_by_columns
from vfsl.audit.probe import Probe, pairs_of
from vfsl.audit.solvers import read_out, solve_labels
from vfsl.audit.trees import nearness
from vfsl.audit.views import COMMON, Case, ledger_line, training_places
from vfsl.channel import wire
from vfsl.federation import Scene
from vfsl.values import Array, Booleans, Floats

KNOWN = (20, 200)
_SEED = 20242
_MOST_ROWS = 1500
_MOST_NEAR = 600  # nearness of rows is a square
_SECONDS = 10.0  # of one mixed-integer programme
_FITS = 0.05  # sums that miss a column by more are not about it
_SHUFFLES = 100  # of a list of few rows: one of them is luck
_STAGES = ("evidence", "scores")


# ---- labels by AUC ------------------------------------------------------------------------------


def attack_labels(case: Case, probe: Probe) -> Iterator[Finding]:
    """What gradients, evidence, partitions and scores tell a party about another's labels."""
    for attacker, target in pairs_of(case):
        best, line, change, note, asked = (0.5, 0.5), "", None, "", False
        controls: list[Control] = []
        for step, scene in enumerate(case.scenes, start=1):
            label = case.label_of(scene)
            if label is None or label[0] != target:
                continue
            asked = True
            truth = case.classes(scene, label)
            own = case.encoded(attacker)[case.common(scene, attacker)]
            controls = controls or _label_controls(truth, own, probe.marks)
            for source, places, design, near in _label_views(case, scene, attacker, own):
                known = np.flatnonzero(~np.isnan(truth[places]))
                rng = np.random.default_rng(_SEED)
                most = _MOST_NEAR if near is not None else _MOST_ROWS
                known = rng.permutation(known)[:most]
                at = places[known]
                designs = [] if design is None else [design[known]]
                there = None if near is None else nearness(near[known])
                for count in KNOWN:
                    if len(known) < 2 * count:
                        continue
                    found = gain_of_view(
                        designs, own[at], truth[at] == 1, count, near=there, seed=_SEED
                    )
                    if found[0] - found[1] >= best[0] - best[1]:
                        best, line = found, f"step {step}, {source}"
                        change, note = _change_labels(source, step), f"{count} known labels"
        if asked:
            yield probe.finding(
                attacker,
                target,
                *best,
                controls,
                line=line or "no numbers about labels",
                change=change if best[0] > best[1] else None,
                note=note,
            )


def _label_views(
    case: Case, scene: Scene, attacker: str, own: Floats
) -> Iterator[tuple[str, Array, Floats | None, Array | None]]:
    """(ledger line, places in the common order, a design of the rows or None, leaves or None)."""
    standing = scene.standing[attacker]
    places = training_places(standing)
    for stage in _STAGES:
        batches = gradients_seen_by(attacker, scene.transcript, (stage,))
        rows = len(places) + (0 if standing.rows is None else len(standing.rows.rest))
        totals = add_gradients(batches, rows) if batches else None
        if totals is not None:
            seen = np.flatnonzero(~np.isnan(totals[: len(places), 0]))
            line = ledger_line(scene.records, attacker, f"gradient of {stage}")
            yield line, places[seen], totals[seen], None
    leaves = [
        _leaf_table(one.values, len(places))
        for one in scene.transcript.openings
        if one.party == attacker and one.name.endswith("/leaves")
    ]
    if leaves:
        line = ledger_line(scene.records, attacker, "partition")
        yield line, places, None, np.hstack(leaves)
    for one in scene.transcript.openings:
        if one.party == attacker and one.name.endswith("round 0/gradient"):
            columns, sums = one.values
            at = _labelled_places(case, scene, attacker, len(columns), places)
            if at is not None:
                line = ledger_line(scene.records, attacker, "opened gradient")
                scores = np.stack([read_out(columns, -each) for each in sums], axis=1)
                yield line, at, scores, None
    for view in case.views(attacker):
        if view.of == COMMON and case.scenes[view.step - 1] is scene:
            yield view.line, view.places, view.values, None


def _leaf_table(leaves: dict[tuple[int, int], Array], rows: int) -> Array:
    trees = 1 + max(node[0] for node in leaves)
    table = np.zeros((rows, trees), dtype=np.int64)
    for node, here in leaves.items():
        table[here[here < rows], node[0]] = node[1]  # completed rows come after common ones
    return table


def _labelled_places(
    case: Case, scene: Scene, attacker: str, count: int, places: Array
) -> Array | None:
    """Which common rows a model was trained on: those whose labels are known, as it was told."""
    for _, known in case.messages(scene, attacker, "labelled rows"):
        if len(known) == len(places) and int(known.sum()) == count:
            return np.asarray(places[known])
    return places if len(places) == count else None


def _change_labels(line: str, step: int) -> Change:
    if "gradient of" in line:
        return Change("protect the labels, where RISA has protect, or train a linear model", step)
    if "partition" in line:
        return Change('show no partition: candidates = "auto", scheme = "auto" under [run]', step)
    if "opened gradient" in line:
        return Change('train on shares: protocol = "shares"', step)
    return Change("open fewer results to this party")


def _label_controls(truth: Floats, own: Floats, marks: Marks) -> list[Control]:
    known = np.random.default_rng(_SEED).permutation(np.flatnonzero(~np.isnan(truth)))[:_MOST_ROWS]
    labels = truth[known] == 1
    rng = np.random.default_rng(_SEED)
    told = labels[:, None] + 0.1 * rng.normal(size=(len(labels), 1))
    found = []
    for view in (told, rng.permutation(told)):
        after, before = gain_of_view([view], own[known], labels, KNOWN[0], seed=_SEED)
        found.append(after - before)
    return [
        open_door("a gradient whose sign is the label", found[0], marks),
        at_chance("the same gradient of other rows", found[1], marks),
    ]


# ---- exact cells --------------------------------------------------------------------------------


def attack_cells(case: Case, probe: Probe) -> Iterator[Finding]:
    """Labels and binary columns that sums over rows determine, by mixed-integer programme."""
    for attacker, target in pairs_of(case):
        cells, tried, line, change = 0, 0, "", None
        for step, scene in enumerate(case.scenes, start=1):
            for columns, sums, truth, source in _equations(case, scene, attacker, target):
                found = _solve(columns, sums, truth)
                tried += 1
                if found > cells:
                    cells, line = found, f"step {step}, {source}"
                    change = _change_labels("opened gradient", step)
        if case.encoded(attacker).shape[1]:
            yield probe.finding(
                attacker,
                target,
                cells,
                0.0,
                _cell_controls(case, attacker, probe.marks),
                line=line
                or (f"{tried} sums tried" if tried else "no opened sums that fit a column"),
                change=change,
            )


def _equations(
    case: Case, scene: Scene, attacker: str, target: str
) -> Iterator[tuple[Floats, Floats, Booleans, str]]:
    """Columns, sums of them over rows of one kind, and which rows these are."""
    line = ledger_line(scene.records, attacker, "opened gradient")
    label = case.label_of(scene)
    places = training_places(scene.standing[attacker])
    firsts = [
        one.values
        for one in scene.transcript.openings
        if one.party == attacker and one.name.endswith("round 0/gradient")
    ]
    for columns, sums in firsts:
        at = _labelled_places(case, scene, attacker, len(columns), places)
        if at is None or not columns.shape[1]:
            continue
        if label is not None and label[0] == target:
            truths = [case.classes(scene, label)[at] == 1]
        else:
            truths = _binary_columns(case, scene, target, at)
        for gradient, truth in product(sums, truths):
            share = truth.mean()
            # A target is 4y − 2 of a class, or (y − q) / √(q (1 − q)) of a number. Of the columns
            # that a gradient may be about, only those that fit it can be read from it.
            sizes = 0.25, float(np.sqrt(share * (1 - share)))
            for scale in (*sizes, -sizes[0], -sizes[1]):  # either of two values may be the 1
                if 0 < share < 1 and _fits(columns, -gradient * scale, truth):
                    yield columns, -gradient * scale, truth, line


def _fits(columns: Floats, sums: Floats, truth: Booleans) -> bool:
    there = columns[truth].sum(axis=0)
    return bool(np.linalg.norm(there - sums) <= _FITS * np.linalg.norm(there))


def _binary_columns(case: Case, scene: Scene, target: str, at: Array) -> list[Booleans]:
    """Columns with two values, 1 for the rarer one, in the order of the table."""
    table = case.tables[target].take(case.common(scene, target)[at])
    found = []
    for name in table.features:
        cells = table.column(name)
        if cells.nunique() == 2:
            rarer = cells.value_counts().index[-1]
            found.append((cells == rarer).fillna(False).to_numpy(dtype=bool))
    return found


def _solve(columns: Floats, sums: Floats, truth: Booleans) -> int:
    """How many cells a solver reads for certain: all rows right, or none count.

    Rows that a majority guess gets right say nothing, so only a solution that is right beyond the
    best guess counts: its rarer cells.
    """
    rarer = int(truth.sum())
    found = solve_labels(columns, sums, rarer, slack=1e-3, seconds=_SECONDS)
    right = int((found & truth).sum())
    luck = rarer * rarer / len(truth)
    return right if right > 0.9 * rarer and right > luck + 3 * np.sqrt(luck + 1) else 0


def _cell_controls(case: Case, attacker: str, marks: Marks) -> list[Control]:
    """Five rare rows of the attacker's own columns, and the sums of other rows."""
    rng = np.random.default_rng(_SEED)
    columns = case.encoded(attacker)
    columns = columns[rng.permutation(len(columns))[:200]]
    columns = np.hstack([columns, rng.normal(size=(len(columns), 10))])
    columns = columns - columns.mean(axis=0)
    truth = np.zeros(len(columns), dtype=bool)
    truth[rng.permutation(len(columns))[:5]] = True
    sums = columns[truth].sum(axis=0)
    return [
        open_door("an opened gradient of five rare rows", _solve(columns, sums, truth), marks),
        at_chance(
            "the same gradient against other rows",
            _solve(columns, sums, rng.permutation(truth)),
            marks,
        ),
    ]


# ---- known positives ----------------------------------------------------------------------------


def attack_positives(case: Case, probe: Probe) -> Iterator[Finding]:
    """Known positives of VFPU that a party with columns finds: precision among as many rows."""
    for step, scene in enumerate(case.scenes, start=1):
        vfpu = next((record for record in scene.records if record.name == "vfpu"), None)
        if vfpu is None:
            continue
        holder = str(vfpu.settings["label_holder"])
        share = scene.standing[holder].rows
        if share is None or share.marks is None:
            continue
        truth = share.marks == 1
        for attacker in scene.standing[holder].aligned:
            if attacker == holder:
                continue
            own = case.encoded(attacker)[case.common(scene, attacker)]
            scores, line = _told_rows(scene, attacker, len(truth))
            base = float(truth.mean())
            value = base if scores is None else _precision(scores, truth)
            yield probe.finding(
                attacker,
                holder,
                value,
                base,
                _positive_controls(truth, probe.marks),
                line=line or "no list of rows",
                change=Change('hide the lists of rows: row_lists = "hidden"', step)
                if scores is not None
                else None,
                note=f"own columns alone, with 20 known: {_own_precision(own, truth):.2f}",
            )


def _precision(scores: Floats, truth: Booleans) -> float:
    order = np.random.default_rng(_SEED).permutation(len(scores))
    best = order[np.argsort(-scores[order], kind="stable")][: int(truth.sum())]
    return float(truth[best].mean())


def _own_precision(own: Floats, truth: Booleans) -> float:
    """What an attacker that knows 20 of the rows finds by its own columns: not the run's doing."""
    if not own.shape[1] or truth.sum() < 20:
        return float(truth.mean())
    known = draw_known(truth, KNOWN[0], np.random.default_rng(_SEED))
    return _precision(guess_by_columns(own, known, truth[known]), truth)


def _told_rows(scene: Scene, attacker: str, rows: int) -> tuple[Floats | None, str]:
    """How often each row was named as a positive, less how often as a negative."""
    scores, line = np.zeros(rows), ""
    for sight in scene.transcript.sights:
        what = sight.name.rpartition("/")[2]
        if sight.receiver == attacker and what in ("positives", "pseudo-negatives"):
            listed = np.asarray(wire.decode(sight.body)[1], dtype=np.int64)
            np.add.at(scores, listed, 1.0 if what == "positives" else -1.0)
            line = ledger_line(scene.records, attacker, "positives")
    for one in scene.transcript.openings:
        if one.party == attacker and one.name.endswith("stage 0/round 0/gradient"):
            columns, sums = one.values
            if len(columns) == rows:
                scores += read_out(columns, -sums.mean(axis=0))
                line = line or ledger_line(scene.records, attacker, "opened gradient")
    return (scores, line) if line else (None, "")


def _positive_controls(truth: Booleans, marks: Marks) -> list[Control]:
    rng = np.random.default_rng(_SEED)
    base = truth.mean()
    told = truth.astype(float)
    luck = [_precision(rng.permutation(told), truth) for _ in range(_SHUFFLES)]
    return [
        open_door("a list of the positives", _precision(told, truth) - base, marks),
        at_chance("a list of other rows", float(np.mean(luck)) - base, marks),
    ]


LABELS = Probe(
    "labels",
    "Could it compute the other's labels from gradients, evidence, partitions or scores, if it "
    "knew a few?",
    "gain of AUC over its own columns, with 20 or 200 known labels",
    Marks(0.02, 0.1),
    attack_labels,
)
CELLS = Probe(
    "exact-cells",
    "Do opened sums determine single labels or yes-no cells of the other?",
    "rare cells read exactly",
    Marks(0.0, 0.5),
    attack_cells,
)
POSITIVES = Probe(
    "positives",
    "Could it tell which of the common people are known positives?",
    "precision among as many rows as there are positives, less their fraction",
    Marks(0.02, 0.1),
    attack_positives,
)
