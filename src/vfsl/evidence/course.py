"""The label holder's course of RISA: self-training, pseudo labels, evidential training, trust."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from vfsl.evidence.networks import Floats, Learning
from vfsl.evidence.opinion import Opinion, choose_trust, opinion_of, unjudged_trust
from vfsl.evidence.risa import RISA
from vfsl.evidence.rows import (
    UNKNOWN,
    Flags,
    Numbers,
    Removal,
    Universe,
    add_scores,
    choose_temperature,
    describe_doubts,
    pseudo_labels,
    repeat_overlap,
)
from vfsl.evidence.switches import Switches
from vfsl.evidence.training import BatchResult, Objective, Team, train_pass
from vfsl.values import Array

# By what networks say: first self-training, where scores of classes add up, then evidence.
Stage = Literal["scores", "evidence"]
STAGES: tuple[Stage, ...] = get_args(Stage)
LEAST_JUDGED = 20


@dataclass(frozen=True)
class Course:
    """What the course depends on beside data and randomness."""

    risa: RISA
    switches: Switches  # of its variant, some of them changed
    learning: Learning
    steps: int | None = None  # of evidential training, whatever its rows are; None: all epochs
    turns: int = 1  # how often an epoch goes over its rows

    def spend_steps(self, rows: int) -> Course:
        """The course with its steps over so many rows: full batches, and epochs of even length."""
        if self.steps is None or not rows:
            return self
        size, epochs = self.learning.batch_size, self.learning.epochs
        turns = max(round(self.steps * size / (epochs * rows)), 1)
        each = -(-turns * rows // size)
        learning = replace(self.learning, epochs=-(-self.steps // each))
        return replace(self, learning=learning, turns=turns)

    def objective(self, stage: Stage, classes: int) -> Objective:
        """What the networks of a stage are trained for."""
        switches = self.switches
        if stage == "scores":
            weight = 1.0 if switches.masked else 0.0
            return Objective(False, classes, not switches.masked, party_loss=weight)
        fills = switches.absent == "mean"
        return Objective(switches.evidential, classes, fills, switches.fusion, switches.party_loss)


@dataclass
class Learned:
    """What the label holder keeps of the course, beside its networks."""

    labels: Numbers  # of training: true, pseudo, or unknown
    labelled: Flags  # which of them are true
    trust: dict[str, float]
    rounds: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    scores: Array = field(default_factory=lambda: np.zeros(0))  # of removal, by row
    notes: list[str] = field(default_factory=list)

    def to_state(self, removal: str) -> dict[str, Any]:
        """For the label holder's share; ``removal`` says by which score rows left."""
        left = [line["row"] for line in self.left]
        return {
            "trust": self.trust,
            "left": self.left,
            "doubts": describe_doubts(self.scores, left, removal),
            "pseudo labels": int(((self.labels != UNKNOWN) & ~self.labelled).sum()),
        }


class Unfinished(NamedTuple):
    """Where a course stands that is not finished, beside its networks."""

    rounds: list[dict[str, Any]]
    arrays: Mapping[str, Array]


def run_course(
    teams: Mapping[Stage, Team],
    labels: Numbers,
    classes: int,
    course: Course,
    rng: np.random.Generator,
    *,
    unfinished: Unfinished | None = None,
    keep: Callable[[Unfinished], None] | None = None,
    tell: Callable[[int], None] | None = None,
) -> Learned:
    """Train the networks of all parties; ``labels`` is of all rows, UNKNOWN where there is none.

    ``unfinished`` is where an earlier attempt stood; the networks stand there already. ``keep``
    keeps where this one stands; ``tell`` hears the number of each finished epoch.
    """
    seed = int(rng.integers(1 << 62))
    universe = teams["evidence"].universe
    known = labels != UNKNOWN
    held = _hold_out(known, universe, course, np.random.default_rng([seed, 0]))
    course, notes = _without_guesses(course, len(held), known, universe)
    if unfinished is not None:
        given = unfinished.arrays["given labels"].astype(np.int64)
    else:
        given = _complete_labels(teams["scores"], labels, held, classes, course, seed)
    learned = Learned(given, known, dict.fromkeys(universe.parties, 1.0), notes=notes)
    rows = _training_rows(universe, given, held, course)
    course = course.spend_steps(len(rows))
    removal = _plan_removal(rows, known, course)
    if unfinished is not None:
        removal.load_arrays(unfinished.arrays)
        learned.rounds = unfinished.rounds
    objective = course.objective("evidence", classes)
    weights = np.where(known, 1.0, course.switches.pseudo_weight)

    def see(batch: Numbers, done: BatchResult) -> None:
        uncertain = course.switches.removal == "uncertainty"
        removal.see(batch, done.uncertainty if uncertain else done.disputed)

    for epoch in range(len(learned.rounds) + 1, course.learning.epochs + 1):
        rows = repeat_overlap(removal.rows, universe.overlap, course.switches.repeats)
        loss, uncertainty = train_pass(
            teams["evidence"],
            rows,
            given,
            weights,
            objective,
            rate=course.learning.rate(epoch - 1),
            batch_size=course.learning.batch_size,
            rng=np.random.default_rng([seed, 2, epoch]),
            turns=course.turns,
            see=see,
        )
        line = {"epoch": epoch, "rows": len(rows), "loss": loss, "uncertainty": uncertainty}
        learned.rounds.append(line | _let_leave(removal, epoch, known))
        if tell is not None:
            tell(epoch)
        due = epoch % course.risa.checkpoint_every == 0 and epoch < course.learning.epochs
        if keep is not None and due:
            keep(Unfinished(learned.rounds, removal.to_arrays() | {"given labels": given}))
        if not removal.staying.any():
            learned.notes.append(f"No row was left to train on after epoch {epoch}.")
            break
    learned.left = removal.list_left(known, universe)
    learned.scores = removal.averages
    if course.switches.discount and course.switches.evidential:
        chosen = unjudged_trust(len(universe.parties))
        if len(held):
            outputs = teams["evidence"].answer(held, with_fill=False)
            chosen = choose_trust(opinions_of(outputs), labels[held])
        learned.trust = dict(zip(universe.parties, chosen, strict=True))
    pseudo = int(((given != UNKNOWN) & ~known).sum())
    learned.notes.append(f"{pseudo} of {int((~known).sum())} rows without a label got one.")
    return learned


def opinions_of(outputs: Sequence[Floats]) -> list[Opinion]:
    return [opinion_of(np.asarray(output, dtype=np.float64)) for output in outputs]


def _let_leave(removal: Removal, epoch: int, labelled: Flags) -> dict[str, Any]:
    """End an epoch; what its line in the record says of rows that left."""
    gone = removal.end_epoch(epoch)
    line: dict[str, Any] = {"kept": int(removal.staying.sum())}
    if gone is None:
        return line
    true = int(labelled[gone].sum())
    return line | {
        "limit": removal.limit(epoch),
        "left with a true label": true,
        "left with a pseudo label": len(gone) - true,
        "left rows": gone.tolist(),
    }


def _hold_out(
    known: Flags, universe: Universe, course: Course, rng: np.random.Generator
) -> Numbers:
    """Labelled overlap rows that training does not see, to judge each party by."""
    if not course.switches.discount or not course.switches.evidential:
        return np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(known[: universe.overlap])
    count = round(course.risa.held_out * len(rows))
    return np.sort(rng.permutation(rows)[:count]).astype(np.int64)


def _without_guesses(
    course: Course, held: int, known: Flags, universe: Universe
) -> tuple[Course, list[str]]:
    """The course without self-training where it could not be judged and is not needed, and a note.

    A model that learned a few dozen rows by heart is sure of everything; with a handful of held-out
    rows nothing tells when it is wrong. On census with 1 % overlap its labels cost 0.2 to 0.7
    points of AUC.
    """
    switches = course.switches
    labelled_elsewhere = bool(known[universe.overlap :].any())
    if not (switches.discount and switches.self_train and labelled_elsewhere):
        return course, []
    if held >= LEAST_JUDGED:
        return course, []
    note = (
        f"No pseudo labels: {held} held-out rows cannot judge the self-training model, "
        f"{LEAST_JUDGED} could."
    )
    return replace(course, switches=replace(switches, self_train=False)), [note]


def _training_rows(universe: Universe, given: Numbers, held: Numbers, course: Course) -> Numbers:
    """The rows to train on."""
    used = given != UNKNOWN
    used[held] = False
    if not course.switches.impute:
        used[universe.overlap :] = False
    return np.flatnonzero(used).astype(np.int64)


def _plan_removal(rows: Numbers, known: Flags, course: Course) -> Removal:
    """Which of the rows to train on may leave."""
    switches = course.switches
    may_leave = np.ones(len(known), dtype=bool)
    if switches.keep_labelled:
        may_leave &= ~known
    if not switches.evidential or switches.removal == "none":
        may_leave[:] = False
    return Removal(rows, may_leave, course.risa.tau_0, course.risa.every, course.learning.epochs)


def _complete_labels(
    team: Team,
    labels: Numbers,
    held: Numbers,
    classes: int,
    course: Course,
    seed: int,
) -> Numbers:
    """All labels, with those of the self-training model where there was none and it is sure."""
    universe = team.universe
    without = np.flatnonzero(labels == UNKNOWN)
    if not course.switches.impute:
        without = without[without < universe.overlap]
    if not course.switches.self_train or not len(without):
        return labels.copy()
    rows = np.flatnonzero(labels[: universe.overlap] != UNKNOWN)
    rows = np.setdiff1d(rows, held).astype(np.int64)
    batches = -(-len(rows) // course.learning.batch_size)
    learning = replace(course.learning, epochs=-(-course.risa.self_steps // batches))
    objective = course.objective("scores", classes)
    for epoch in range(1, learning.epochs + 1):
        train_pass(
            team,
            rows,
            labels,
            np.ones(universe.total),
            objective,
            rate=learning.rate(epoch - 1),
            batch_size=learning.batch_size,
            rng=np.random.default_rng([seed, 1, epoch]),
        )
    outputs = team.answer(without.astype(np.int64), objective.fills)
    if len(held):
        judged = team.answer(held, with_fill=False)
        outputs = [
            said / choose_temperature(known, labels[held])
            for said, known in zip(outputs, judged, strict=True)
        ]
    completed = labels.copy()
    completed[without] = pseudo_labels(add_scores(outputs), course.risa.tau_p)
    return completed
