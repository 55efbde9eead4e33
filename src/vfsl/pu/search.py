"""The search for reliable positives at the label holder: bags, out-of-bag scores, and again.

Messages are in training.py, arithmetic is in the files beside. When to stop is decided without a
true label. More promoted batches hurt more often than they help, so everything here is a reason to
stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from vfsl.data.aggregates import LEAST, capture_curve, histogram
from vfsl.errors import DataError
from vfsl.parts import ModelShare, Seen
from vfsl.pu import bias
from vfsl.pu.bags import (
    Booleans,
    choose_spies,
    find_negatives,
    make_batch,
    match_scale,
    weigh_sides,
)
from vfsl.pu.bases import average_logits, to_probabilities
from vfsl.pu.prior import (
    CALIBRATED_BY,
    Calibration,
    Prior,
    calibrate,
    estimate_prior,
    label_frequency,
    separation,
)
from vfsl.pu.training import BagTrainer
from vfsl.values import Array, Floats, Integers

STABLE = 0.995  # rank correlation of two iterations
DRIFT = 0.01  # of the AUC of held-out positives
_MOST_COLUMNS = 12

REASONS = {
    "outer": "all iterations were done",
    "hidden": "the promoted rows reach half of the positives that are estimated to be hidden",
    "stable": "the ranking of the unlabelled rows did not change any more",
    "sizes": "one more batch would leave fewer unlabelled rows than positives",
    "empty": "there are no two unlabelled rows left to draw pseudo-negatives from",
}

Tell = Callable[[str, int, int], None]  # stage, how much of it is done, of how much


@dataclass(frozen=True, eq=False)
class Ranking:
    """Logits of unlabelled rows and of held-out positives on one scale, by one iteration."""

    unlabelled: Floats  # (rows,), NaN for all others
    held_out: Floats  # (known positives,)
    shares: list[ModelShare]
    scores: list[Floats]  # of all rows by each share's models, where the base shows them


class PositiveSearch:
    """The label holder's rows by what they are taken for, and what it learns of them.

    Parameters
    ----------
    trainer : BagTrainer
        Its part has the marks as target.
    settings : mapping
        The parameters of VFPU with the preset filled in.
    rng : numpy Generator
        Private draws of the label holder.
    tell : callable, optional
        Hears how far the bags of an iteration are.
    """

    prior: Prior
    calibration: Calibration
    auc: float  # of held-out known positives against all other rows

    def __init__(
        self,
        trainer: BagTrainer,
        settings: Mapping[str, Any],
        rng: np.random.Generator,
        tell: Tell | None = None,
    ) -> None:
        self._trainer, self._settings, self._tell = trainer, settings, tell
        self._base = trainer.base
        self._listed = settings["row_lists"] == "told"
        self.known = find_known(trainer.part.target)
        rows = len(self.known)
        self.promoted = np.zeros(rows, dtype=bool)
        self.logits, self.probabilities = np.full(rows, np.nan), np.full(rows, np.nan)
        self._bag_rng, self._estimate_rng = (
            np.random.default_rng(rng.integers(0, 1 << 62, 2)) for _ in range(2)
        )

    @property
    def positive(self) -> Booleans:
        return self.known | self.promoted

    @property
    def unlabelled(self) -> Booleans:
        return ~self.positive

    def run(self) -> ModelShare:
        """Search, and tell the others which models make up the result; the label holder's share."""
        outer, spied = self._settings["outer"], self._settings["spies"]
        history: list[Mapping[str, Any]] = []
        warnings: list[str] = []
        negatives = self._find_negatives() if spied else ~self.known
        hidden, first, before = 0, 0.0, None
        for iteration in range(1, outer + 1):  # m = 1..M
            unlabelled, trained_with = self.unlabelled, int(self.positive.sum())
            pool = negatives & unlabelled
            ranking = self._rank(pool, iteration, preliminary=spied)
            logits = ranking.unlabelled[unlabelled]
            self.logits[unlabelled] = logits
            self._estimate(ranking.held_out)
            self.probabilities[unlabelled] = self.calibration.of_unlabelled(logits)
            known, rest = len(ranking.held_out), int((~self.known).sum())
            if iteration == 1:
                hidden, first = round(self.prior.cautious * rest), self.auc
            warnings += warn_of_drift(iteration, first, self.auc)
            stability = None if before is None else rank_stability(before[unlabelled], logits)
            before = ranking.unlabelled
            history.append(
                {
                    "iteration": iteration,
                    "unlabelled": len(logits),
                    "promoted": self._promote(hidden),
                    "pseudo-negatives from": int(pool.sum()),
                    "hidden": hidden,
                    "stability": stability,
                    "positives": trained_with,
                    "label frequency": label_frequency(self.prior.cautious, known, rest),
                    "prior": self.prior.value,
                    "prior low": self.prior.low,
                    "prior high": self.prior.high,
                    "oob score": self.auc,
                }
            )
            reason = why_stop(
                iteration,
                outer,
                promoted=int(self.promoted.sum()),
                hidden=hidden,
                stability=stability,
                positives=int(self.positive.sum()),
                unlabelled=int(self.unlabelled.sum()),
                pool=int((negatives & self.unlabelled).sum()),
                early=self._settings["stop"] == "early",
            )
            if reason is not None:
                break
        columns = self._compare_columns(ranking.held_out)
        warnings += warn_of_chance(self.auc) + bias.warn_of(columns)
        share = self._end(ranking, columns)
        return replace(
            share, rounds=tuple(history), stop_reason=reason or "outer", notes=tuple(warnings)
        )

    def _find_negatives(self) -> Booleans:
        """Step one of the two-step technique: reliable negatives."""
        spies = choose_spies(self.known, self._settings["spy_share"], self._bag_rng)
        taken = self.known & ~spies
        everybody = np.ones((len(spies), 1), dtype=bool)
        weights = weigh_sides(taken, ~taken)[:, None]
        trained = self._trainer.train(taken.astype(np.int64), weights, everybody, self._listed)
        scores = trained.average(self._base, everybody)
        return find_negatives(scores, self.unlabelled, spies, self._settings["spy_threshold"])

    def _rank(self, pool: Booleans, iteration: int, preliminary: bool) -> Ranking:
        """Train and score all bags: t = 1..T, together or one by one."""
        known, unlabelled = self.known, self.unlabelled
        batch = make_batch(
            known,
            self.promoted,
            pool,
            bags=self._settings["rounds"],
            folds=min(self._settings["folds"], int(known.sum())),
            rng=self._bag_rng,
            preliminary=preliminary,
        )
        target = self.positive.astype(np.int64)
        if self._listed:
            trained = []
            wanted = batch.voters | batch.held_out
            for model in range(batch.weights.shape[1]):
                one = slice(model, model + 1)
                weights = batch.weights[:, one]
                trained.append(self._trainer.train(target, weights, wanted[:, one], True))
                self._tell_of_bags(iteration, min(model + 1, batch.bags))
        else:
            trained = [self._trainer.train(target, batch.weights, batch.voters, False)]
            self._tell_of_bags(iteration, batch.bags)
        shares = [one.share for one in trained]
        shown = [one.scores for one in trained if one.scores is not None]
        if not shown:
            values = trained[0].average(self._base, batch.voters)
            return Ranking(np.where(unlabelled, values, np.nan), values[known], shares, [])
        scores = np.hstack(shown)
        values = average_logits(self._base, scores, batch.voters)
        # One model scores more boldly than a mean of many; U has both, so it shows the way.
        alone = average_logits(self._base, scores, batch.held_out)
        held_out = match_scale(alone[known], alone[unlabelled], values[unlabelled])
        if not self._base.knows_training_scores:
            shown = []  # a listed bag did not score all rows
        return Ranking(np.where(unlabelled, values, np.nan), held_out, shares, shown)

    def _tell_of_bags(self, iteration: int, done: int) -> None:
        if self._tell is not None:
            stage = f"iteration {iteration} of {self._settings['outer']}, bags"
            self._tell(stage, done, self._settings["rounds"])

    def _promote(self, hidden: int) -> int:
        """The best rows of U become reliable positives; how many that were."""
        rows = np.flatnonzero(self.unlabelled)
        promoted = int(self.promoted.sum())
        size = promotion_size(self._settings["promote"], len(rows), hidden, promoted)
        # Ties by row order, which is random and common to all parties.
        best: Integers = rows[np.argsort(-self.logits[rows], kind="stable")[:size]]
        self.promoted[best] = True
        return len(best)

    def _estimate(self, held_out: Floats) -> None:
        """Prior, calibration and AUC, from held-out positives and all other rows."""
        # Promoted rows stay among the others, at their last score: without its best rows U would
        # seem to have no positives left.
        rest = self.logits[~self.known]
        self.prior = estimate_prior(held_out, rest, self._estimate_rng)
        self.calibration = calibrate(held_out, rest, self.prior.value)
        self.auc = separation(held_out, rest)

    def _compare_columns(self, held_out: Floats) -> tuple[bias.Difference, ...]:
        """Whether known positives look like the best rows of U, by the label holder's columns."""
        scores, part = self.logits.copy(), self._trainer.part
        scores[self.known] = held_out
        table = part.table.take(part.rows)
        return bias.compare_columns(table, self.known, scores, self._estimate_rng)

    def _end(self, ranking: Ranking, columns: Sequence[bias.Difference]) -> ModelShare:
        """The last iteration's bags are the result; the others are told which tasks these were."""
        bags, part = self._settings["rounds"], self._trainer.part
        members, models = (bags, 1) if self._listed else (1, bags)
        start = self._trainer.number - len(ranking.shares)
        self._trainer.end(list(range(start, start + members)), models)
        order = np.flatnonzero(self.promoted)
        order = order[np.argsort(-self.probabilities[order], kind="stable")]
        rest = ~self.known
        logits, probabilities = self.logits[rest], self.probabilities[rest]
        described = [asdict(column) for column in columns]
        state = {
            "members": [share.to_dict() for share in ranking.shares[:members]],
            "models": models,
            "calibration": asdict(self.calibration),
            "calibrated by": CALIBRATED_BY,
            "prior": self.prior.to_dict(),
            "oob score": self.auc,
            "unlabelled rows": np.flatnonzero(rest).tolist(),
            "probabilities": probabilities.tolist(),
            "logits": logits.tolist(),
            "reliable rows": order.tolist(),
            "columns": described,
            "picture": {
                "known positives": len(ranking.held_out),
                "unlabelled": len(logits),
                "curve": capture_curve(ranking.held_out, logits),
                "scores": _draw_scores(probabilities, self.promoted[rest]),
                "columns": described[:_MOST_COLUMNS],
            },
        }
        share = ModelShare(self._trainer.me, "vfpu", state)
        if not ranking.scores:
            return share
        shown = [each[:, :models] for each in ranking.scores[:members]]
        scores = to_probabilities(self._base, shown, self.calibration, shown=True)
        return replace(share, scores=scores, seen=Seen.of(part.table, part.rows))


def find_known(marks: Array | None) -> Booleans:
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


# ---- how many rows to promote, and when to stop --------------------------------------------------


def promotion_size(fraction: float | None, unlabelled: int, hidden: int, promoted: int) -> int:
    """How many of the best rows become reliable positives now: at least one.

    A fraction of the unlabelled rows; without one, what is left to half of the hidden positives.
    """
    if fraction is not None:
        return max(min(math.ceil(fraction * unlabelled), unlabelled), 1)
    return max(min(hidden // 2 - promoted, unlabelled), 1)


def why_stop(
    iteration: int,
    outer: int,
    *,
    promoted: int,
    hidden: int,
    stability: float | None,
    positives: int,
    unlabelled: int,
    pool: int,
    early: bool,
) -> str | None:
    """The reason to end after an iteration (counted from 1), or None to go on.

    ``positives``, ``unlabelled`` and ``pool``, from which pseudo-negatives come, count the rows
    after this iteration's promotion. Unless it may end ``early``, all iterations are done.
    """
    if iteration >= outer:
        return "outer"
    if pool < 2:
        return "empty"
    if not early:
        return None
    if promoted >= hidden / 2:
        return "hidden"
    if stability is not None and stability >= STABLE:
        return "stable"
    return "sizes" if positives > unlabelled else None


def rank_stability(before: Floats, after: Floats) -> float:
    """Spearman's rank correlation of two scorings of the same rows; 1 for fewer than two rows."""
    if len(before) < 2 or np.ptp(before) == 0 or np.ptp(after) == 0:
        return 1.0
    return float(spearmanr(before, after).statistic)


def warn_of_drift(iteration: int, first: float, now: float) -> list[str]:
    """What to say if held-out positives are found less well than in the first iteration."""
    if now >= first - DRIFT:
        return []
    return [
        f"Iterating drifts: held-out known positives rank above unlabelled rows in {now:.3f} of "
        f"all pairs after iteration {iteration}, against {first:.3f} in the first; use fewer "
        "iterations or a smaller promote."
    ]


def warn_of_chance(auc: float) -> list[str]:
    """What to say if held-out positives rank no better than unlabelled rows."""
    if auc > 0.5:
        return []
    return [
        "The model ranks known positives no better than chance: held-out ones stand above "
        f"unlabelled rows in {auc:.3f} of all pairs. Scores are hardly more than the prior; "
        "use more known positives, other columns or another base."
    ]


def _draw_scores(probabilities: Floats, promoted: Booleans) -> dict[str, Any]:
    """Scores of rows that were chosen and of the others, for the report: never a single row."""
    chosen, others = probabilities[promoted], probabilities[~promoted]
    groups = {"other unlabelled rows": others, "reliable positives": chosen}
    if min(len(chosen), len(others)) < LEAST:
        groups = {"unlabelled rows": probabilities}
    return {"groups": list(groups), **histogram(*groups.values())}
