"""The label holder's course of RISA: self-training, pseudo labels, evidential training, trust."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vfsl.evidence.keeping import Keeper
from vfsl.evidence.member import Learning
from vfsl.evidence.removal import Watch, left_table
from vfsl.evidence.rows import UNKNOWN, Numbers, Universe
from vfsl.evidence.selftrain import cooling, pseudo_labels, self_trained
from vfsl.evidence.switches import Switches
from vfsl.evidence.training import Objective, Peer, heard, opinions_from, train_pass
from vfsl.evidence.trust import choose_trust, unjudged_trust
from vfsl.values import Array

STAGES = ("self-training", "evidence")
LEAST_JUDGED = 20
Peers = Mapping[str, Mapping[str, Peer]]
Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Settings:
    """Everything that the course depends on beside data and randomness."""

    switches: Switches
    learning: Learning
    evidence: str = "exp"
    tau_p: float = 0.9
    tau_0: float = 0.3
    every: int = 2
    self_steps: int = 300
    held_out: float = 0.15


@dataclass
class Learned:
    """What the label holder keeps of the course, beside its networks."""

    labels: Numbers  # of training: true, pseudo, or unknown
    labelled: npt.NDArray[np.bool_]  # which of them are true
    trust: dict[str, float]
    rounds: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    scores: Array = field(default_factory=lambda: np.zeros(0))  # of removal, by row
    notes: list[str] = field(default_factory=list)


def stage_objective(settings: Settings, stage: str, classes: int) -> Objective:
    """What the networks of a stage are trained for."""
    switches = settings.switches
    if stage == "self-training":
        weight = 1.0 if switches.masked else 0.0
        return Objective(False, classes, not switches.masked, party_loss=weight)
    fills = switches.absent == "mean"
    return Objective(switches.evidential, classes, fills, switches.fusion, switches.party_loss)


def run_course(
    peers: Peers,
    universe: Universe,
    labels: Numbers,
    classes: int,
    settings: Settings,
    rng: np.random.Generator,
    keeper: Keeper | None = None,
    tell: Tell | None = None,
) -> Learned:
    """Train the networks of all parties; ``labels`` has a number or UNKNOWN for every row."""
    seed = int(rng.integers(1 << 62))
    known = labels != UNKNOWN
    held = _held_out(known, universe, settings, np.random.default_rng([seed, 0]))
    start = 0 if keeper is None else keeper.resume_at
    settings, notes = _without_guesses(settings, len(held), known, universe)
    if keeper is not None and start:
        given = keeper.load(start)["given labels"].astype(np.int64)
    else:
        given = _complete(peers["self-training"], universe, labels, held, classes, settings, seed)
    learned = Learned(given, known, dict.fromkeys(universe.parties, 1.0), notes=notes)
    rows = _training_rows(universe, given, held, settings.switches)
    may_leave = np.ones(universe.total, dtype=bool)
    if settings.switches.keep_labelled:
        may_leave &= ~known
    if not settings.switches.evidential or settings.switches.removal == "none":
        may_leave[:] = False
    watch = Watch(
        rows, universe.total, may_leave, settings.tau_0, settings.every, settings.learning.epochs
    )
    if keeper is not None and start:
        watch.load_arrays(keeper.load(start))
        learned.rounds = keeper.load_rounds(start)
    _train(peers["evidence"], universe, watch, learned, classes, settings, seed, keeper, tell)
    learned.left = left_table(watch.left, known, universe)
    learned.scores = watch.averages
    if settings.switches.discount and settings.switches.evidential:
        chosen = unjudged_trust(len(universe.parties))
        if len(held):
            outputs, _ = heard(peers["evidence"], universe, held, fills=False)
            chosen = choose_trust(opinions_from(outputs), labels[held])
        learned.trust = dict(zip(universe.parties, chosen, strict=True))
    pseudo = int(((given != UNKNOWN) & ~known).sum())
    learned.notes.append(f"{pseudo} of {int((~known).sum())} rows without a label got one.")
    return learned


def _train(
    peers: Mapping[str, Peer],
    universe: Universe,
    watch: Watch,
    learned: Learned,
    classes: int,
    settings: Settings,
    seed: int,
    keeper: Keeper | None,
    tell: Tell | None,
) -> None:
    objective = stage_objective(settings, "evidence", classes)
    for epoch in range(len(learned.rounds) + 1, settings.learning.epochs + 1):
        rng = np.random.default_rng([seed, 2, epoch])
        score = settings.switches.removal
        done = train_pass(
            peers,
            universe,
            watch,
            learned.labels,
            np.where(learned.labelled, 1.0, settings.switches.pseudo_weight),
            objective,
            settings.learning,
            epoch,
            rng,
            score,
            settings.switches.repeats,
        )
        line: dict[str, Any] = {
            "epoch": epoch,
            "rows": done.rows,
            "loss": done.loss,
            "uncertainty": done.uncertainty,
            "kept": int(watch.staying.sum()),
        }
        if done.leaving is not None:
            true = int(learned.labelled[done.leaving.rows].sum())
            line |= {
                "limit": done.leaving.threshold,
                "left with a true label": true,
                "left with a pseudo label": len(done.leaving.rows) - true,
                "left rows": done.leaving.rows.tolist(),
            }
        learned.rounds.append(line)
        if tell is not None:
            tell({"stage": "evidence", "epochs": settings.learning.epochs, **line})
        if keeper is not None and keeper.due(epoch, settings.learning.epochs):
            arrays = watch.to_arrays() | {"given labels": learned.labels}
            keeper.save_all(epoch, arrays, learned.rounds)
        if not watch.staying.any():
            learned.notes.append(f"No row was left to train on after epoch {epoch}.")
            break


def _held_out(
    known: npt.NDArray[np.bool_], universe: Universe, settings: Settings, rng: np.random.Generator
) -> Numbers:
    """Labelled overlap rows that training does not see, to judge each party by."""
    if not settings.switches.discount or not settings.switches.evidential:
        return np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(known[: universe.overlap])
    count = round(settings.held_out * len(rows))
    return np.sort(rng.permutation(rows)[:count]).astype(np.int64)


def _without_guesses(
    settings: Settings, held: int, known: npt.NDArray[np.bool_], universe: Universe
) -> tuple[Settings, list[str]]:
    """Settings without self-training where it could not be judged and is not needed, and a note.

    A model that learned a few dozen rows by heart is sure of everything; with a handful of held-out
    rows nothing tells when it is wrong. On census with 1 % overlap its labels cost 0.2 to 0.7
    points of AUC.
    """
    switches = settings.switches
    labelled_elsewhere = bool(known[universe.overlap :].any())
    if not (switches.discount and switches.self_train and labelled_elsewhere):
        return settings, []
    if held >= LEAST_JUDGED:
        return settings, []
    note = (
        f"No pseudo labels: {held} held-out rows cannot judge the self-training model, "
        f"{LEAST_JUDGED} could."
    )
    return replace(settings, switches=replace(switches, self_train=False)), [note]


def _training_rows(
    universe: Universe, given: Numbers, held: Numbers, switches: Switches
) -> Numbers:
    used = given != UNKNOWN
    used[held] = False
    if not switches.impute:
        used[universe.overlap :] = False
    return np.flatnonzero(used).astype(np.int64)


def _complete(
    peers: Mapping[str, Peer],
    universe: Universe,
    labels: Numbers,
    held: Numbers,
    classes: int,
    settings: Settings,
    seed: int,
) -> Numbers:
    """All labels, with those of the self-training model where there was none and it is sure."""
    without = np.flatnonzero(labels == UNKNOWN)
    if not settings.switches.impute:
        without = without[without < universe.overlap]
    if not settings.switches.self_train or not len(without):
        return labels.copy()
    rows = np.flatnonzero(labels[: universe.overlap] != UNKNOWN)
    rows = np.setdiff1d(rows, held).astype(np.int64)
    learning = settings.learning
    batches = -(-len(rows) // learning.batch_size)
    learning = replace(learning, epochs=-(-settings.self_steps // batches))
    watch = Watch(rows, universe.total, np.zeros(universe.total, bool), 1.0, 1, learning.epochs)
    objective = stage_objective(settings, "self-training", classes)
    ones = np.ones(universe.total)
    for epoch in range(1, learning.epochs + 1):
        rng = np.random.default_rng([seed, 1, epoch])
        train_pass(peers, universe, watch, labels, ones, objective, learning, epoch, rng)
    outputs, _ = heard(peers, universe, without.astype(np.int64), objective.fills)
    if len(held):
        judged, _ = heard(peers, universe, held, fills=False)
        outputs = [
            said / cooling(known, labels[held]) for said, known in zip(outputs, judged, strict=True)
        ]
    completed = labels.copy()
    completed[without] = pseudo_labels(self_trained(outputs), settings.tau_p)
    return completed
