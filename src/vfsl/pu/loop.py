"""The loop of VFPU at the label holder: bags, out-of-bag scores, reliable positives, and again.

It reads like the seed (004, 3.3.2); messages are in pieces.py, arithmetic is in the files beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from vfsl.errors import DataError
from vfsl.parts import ModelShare, Part
from vfsl.pu import bias, stopping
from vfsl.pu.bags import Batch, Booleans, make_batch, mean_of_sums, on_scale_of
from vfsl.pu.bases import Base, knows_training_scores, mean_as_logit, mean_logits
from vfsl.pu.calibration import METHOD, Calibration, calibrate, label_frequency
from vfsl.pu.picture import picture
from vfsl.pu.pieces import Done, Leader, Task
from vfsl.pu.prior import Prior, estimate_prior
from vfsl.pu.spies import choose_spies, reliable_negatives, spy_weights
from vfsl.values import Array, Floats, Integers


@dataclass(frozen=True)
class Progress:
    """How far the loop is: iteration m of M, bag t of T. Bags trained together end together."""

    iteration: int
    iterations: int
    bag: int
    bags: int


@dataclass(frozen=True)
class Settings:
    """What all parties know of a run of VFPU; presets are resolved."""

    outer: int
    rounds: int
    promote: float | None
    listed: bool
    spies: bool
    spy_share: float
    spy_threshold: float
    folds: int


@dataclass(frozen=True, eq=False)
class Ranking:
    """What one iteration says: logits of unlabelled rows and of held-out positives, one scale."""

    unlabelled: Floats  # (rows,), NaN for rows that are not
    positive: Floats  # (known positives,)
    shares: list[ModelShare]
    scores: list[Floats] | None = None  # of all rows by each share's models, where trees show them


@dataclass(eq=False)
class Found:
    """Rows by what they are taken for, and what was learned of them so far."""

    known: Booleans
    promoted: Booleans
    probabilities: Floats
    logits: Floats
    history: list[Mapping[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def unlabelled(self) -> Booleans:
        return ~(self.known | self.promoted)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The end of the loop at the label holder."""

    found: Found
    shares: list[ModelShare]
    models: int
    prior: Prior
    calibration: Calibration
    separation: float
    stop_reason: str
    columns: tuple[bias.Difference, ...]
    positive: Floats  # held-out logits of known positives
    scores: list[Floats]  # of all rows by the models of each share; none where they are not known

    def state(self) -> dict[str, Any]:
        """As plain JSON values."""
        found = self.found
        order = np.flatnonzero(found.promoted)
        order = order[np.argsort(-found.probabilities[order], kind="stable")]
        rest = ~found.known
        return {
            "members": [share.to_dict() for share in self.shares],
            "models": self.models,
            "calibration": self.calibration.to_dict(),
            "calibrated by": METHOD,
            "prior": self.prior.to_dict(),
            "oob score": self.separation,
            "unlabelled rows": np.flatnonzero(rest).tolist(),
            "probabilities": found.probabilities[rest].tolist(),
            "logits": found.logits[rest].tolist(),
            "reliable rows": order.tolist(),
            "columns": [asdict(column) for column in self.columns],
            "picture": picture(
                self.positive,
                found.logits[rest],
                found.probabilities[rest],
                found.promoted[rest],
                self.columns,
            ),
        }


def search(
    leader: Leader,
    base: Base,
    part: Part,
    settings: Settings,
    rng: np.random.Generator,
    on_event: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Find reliable positives; ends by telling the others which models make up the result."""
    known = checked_marks(part.target)
    rows = len(known)
    found = Found(known, np.zeros(rows, bool), np.full(rows, np.nan), np.full(rows, np.nan))
    draws, estimates = (np.random.default_rng(rng.integers(0, 1 << 62, 2)) for _ in range(2))
    negatives = _spy(leader, base, found, settings, draws) if settings.spies else None
    hidden, first, before = 0, 0.0, None
    for iteration in range(1, settings.outer + 1):  # m = 1..M
        pool = found.unlabelled if negatives is None else negatives & found.unlabelled
        batch = make_batch(
            found.known,
            found.promoted,
            pool,
            bags=settings.rounds,
            folds=min(settings.folds, int(known.sum())),
            rng=draws,
            preliminary=negatives is not None,
        )
        step = _Events(on_event, iteration, settings)
        ranking = _rank(leader, base, found, batch, settings.listed, step)
        logits = ranking.unlabelled[found.unlabelled]
        found.logits[found.unlabelled] = logits
        # Promoted rows stay among those that held-out positives are compared with, at their last
        # score: without its best rows U would seem to have no positives left.
        held, rest = ranking.positive, found.logits[~known]
        prior = estimate_prior(held, rest, estimates)
        separation = stopping.separation(held, rest)
        calibration = calibrate(held, rest, prior.value)
        if iteration == 1:
            hidden, first = stopping.hidden_positives(prior.cautious, len(rest)), separation
        if stopping.drifted(first, separation):
            found.warnings.append(_drift(iteration, first, separation))
        stability = _stability(before, ranking.unlabelled, found.unlabelled)
        before = ranking.unlabelled
        found.probabilities[found.unlabelled] = calibration.of_unlabelled(logits)
        batch_size = _promote(found, settings, hidden)
        reason = stopping.why_stop(
            iteration,
            settings.outer,
            promoted=int(found.promoted.sum()),
            hidden=hidden,
            stability=stability,
            positives=int((found.known | found.promoted).sum()),
            unlabelled=int(found.unlabelled.sum()),
        )
        line: dict[str, Any] = {"iteration": iteration, "unlabelled": len(logits)}
        line |= {"promoted": batch_size, "pseudo-negatives from": int(pool.sum())}
        line |= {"hidden": hidden, "stability": stability}
        found.history.append(line | _estimates(found, batch_size, prior, separation))
        if reason is not None:
            break
    if stopping.at_chance(separation):
        found.warnings.append(_chance(separation))
    pieces = _result(leader, ranking, settings)
    models = 1 if settings.listed else settings.rounds
    leader.end(pieces, models)
    columns = _compare(found, part, ranking, estimates)
    shares = ranking.shares[: settings.rounds] if settings.listed else ranking.shares
    scores = [each[:, :models] for each in (ranking.scores or [])[: len(shares)]]
    return Outcome(
        found,
        shares,
        models,
        prior,
        calibration,
        separation,
        reason or "outer",
        columns,
        held,
        scores,
    )


def checked_marks(marks: Array | None) -> Booleans:
    """Which rows are known positives, once there is something to learn from."""
    if marks is None:
        raise DataError(
            "VFPU needs marks at the label holder, +1 for known positives and −1 for all others; "
            "mark the aligned rows first."
        )
    values = np.asarray(marks)
    if not np.isin(values, (-1, 1)).all():
        raise DataError("The marks of VFPU must be +1 or −1 for each aligned row.")
    known = values == 1
    positives, unlabelled = int(known.sum()), int((~known).sum())
    if positives == 0:
        raise DataError(
            f"None of the {len(known)} aligned rows is a known positive: the positive holder has "
            "none of their ids. Check that both use the same id column and normalisation."
        )
    if positives == 1:
        raise DataError(
            "There is only 1 known positive among the aligned rows; at least 2 are needed, since "
            "some are held out in turn."
        )
    if unlabelled == 0:
        raise DataError(
            f"All {positives} aligned rows are known positives; there is no unlabelled row to find "
            "further ones in."
        )
    if positives > unlabelled:
        raise DataError(
            f"There are {positives} known positives but only {unlabelled} unlabelled rows, so no "
            "pseudo-negatives of the same number can stand against them; use a supervised model."
        )
    return np.asarray(known)


def _spy(
    leader: Leader, base: Base, found: Found, settings: Settings, rng: np.random.Generator
) -> Booleans:
    """Step one of the two-step technique: reliable negatives."""
    spies = choose_spies(found.known, settings.spy_share, rng)
    target = (found.known & ~spies).astype(np.int64)
    everybody = np.ones((len(spies), 1), dtype=bool)
    task = Task(target, spy_weights(found.known, spies)[:, None], everybody)
    done = leader.run(task, settings.listed)
    scores = _one_value(base, done, everybody)
    return reliable_negatives(scores, found.unlabelled, spies, settings.spy_threshold)


def _rank(
    leader: Leader, base: Base, found: Found, batch: Batch, listed: bool, step: _Events
) -> Ranking:
    """Train and score all bags: t = 1..T, together or one by one."""
    target = (found.known | found.promoted).astype(np.int64)
    wanted = batch.voters | batch.held_out if listed else batch.voters
    if not listed:
        done = leader.run(Task(target, batch.weights, wanted))
        step(batch.bags)
        shares, scores = [done.share], done.scores
        if scores is None:
            values = _one_value(base, done, batch.voters)
            return Ranking(_only(values, found.unlabelled), values[found.known], shares)
    else:
        pieces = []
        for model in range(batch.weights.shape[1]):
            one = slice(model, model + 1)
            pieces.append(leader.run(Task(target, batch.weights[:, one], wanted[:, one]), True))
            step(min(model + 1, batch.bags))
        shares = [piece.share for piece in pieces]
        scores = np.hstack([piece.scores for piece in pieces if piece.scores is not None])
    values = mean_logits(base, scores, batch.voters)
    held, every = values[found.known], None
    if knows_training_scores(base):
        every = np.split(scores, len(shares), axis=1)
        # One model scores more boldly than a mean of many; U has both, so it shows the way.
        alone = mean_logits(base, scores, batch.held_out)
        rest = found.unlabelled
        held = on_scale_of(alone[found.known], alone[rest], values[rest])
    return Ranking(_only(values, found.unlabelled), held, shares, every)


def _one_value(base: Base, done: Done, voters: Booleans) -> Floats:
    if done.sums is not None:
        return mean_as_logit(base, mean_of_sums(done.sums, voters))
    if done.scores is None:
        raise DataError("A piece of VFPU ended without scores.")
    return mean_logits(base, done.scores, voters)


def _only(values: Floats, rows: Booleans) -> Floats:
    return np.where(rows, values, np.nan)


def _promote(found: Found, settings: Settings, hidden: int) -> int:
    """The best rows of U become reliable positives; how many that were."""
    rows = np.flatnonzero(found.unlabelled)
    size = stopping.promotion_size(settings.promote, len(rows), hidden, int(found.promoted.sum()))
    # Ties by row order, which is random and common to all parties.
    best: Integers = rows[np.argsort(-found.logits[rows], kind="stable")[:size]]
    found.promoted[best] = True
    return len(best)


def _estimates(found: Found, promoted: int, prior: Prior, separation: float) -> dict[str, Any]:
    """What an iteration's line of the history says beside its sizes."""
    known, rest = int(found.known.sum()), int((~found.known).sum())
    return {
        "positives": known + int(found.promoted.sum()) - promoted,  # that it was trained with
        "label frequency": label_frequency(prior.cautious, known, rest),
        "prior": prior.value,
        "prior low": prior.low,
        "prior high": prior.high,
        "oob score": separation,
    }


def _stability(before: Floats | None, now: Floats, rows: Booleans) -> float | None:
    return None if before is None else stopping.ranking_stability(before[rows], now[rows])


def _result(leader: Leader, ranking: Ranking, settings: Settings) -> list[int]:
    """The pieces of the last iteration whose models are bags."""
    start = leader.number - len(ranking.shares)
    return list(range(start, start + (settings.rounds if settings.listed else 1)))


def _compare(
    found: Found, part: Part, ranking: Ranking, rng: np.random.Generator
) -> tuple[bias.Difference, ...]:
    """Whether known positives look like the best rows of U, by the label holder's own columns."""
    scores = found.logits.copy()
    scores[found.known] = ranking.positive
    table = part.table.take(part.rows)
    columns = bias.differences(table, found.known, scores, rng)
    text = bias.warning(columns)
    if text is not None:
        found.warnings.append(text)
    return columns


def _drift(iteration: int, first: float, now: float) -> str:
    return (
        f"Iterating drifts: held-out known positives rank above unlabelled rows in {now:.3f} of "
        f"all pairs after iteration {iteration}, against {first:.3f} in the first; use fewer "
        "iterations or a smaller promote."
    )


def _chance(separation: float) -> str:
    return (
        "The model ranks known positives no better than chance: held-out ones stand above "
        f"unlabelled rows in {separation:.3f} of all pairs. Scores are hardly more than the prior; "
        "use more known positives, other columns or another base."
    )


class _Events:
    """Tells how far the bags of one iteration are."""

    def __init__(
        self, hear: Callable[[Progress], None] | None, iteration: int, settings: Settings
    ) -> None:
        self._hear, self._iteration, self._settings = hear, iteration, settings

    def __call__(self, bag: int) -> None:
        if self._hear is not None:
            settings = self._settings
            self._hear(Progress(self._iteration, settings.outer, bag, settings.rounds))
