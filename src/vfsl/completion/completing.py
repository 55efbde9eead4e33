"""The steps of a completion in turn: each a run of roles, or local work of the missing party."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from vfsl.channel import Channel
from vfsl.completion.bases import Pair
from vfsl.completion.columns import Filled, filled_by_baseline, shrunk
from vfsl.completion.completed import Completion, whole_table
from vfsl.completion.crossfit import CrossFit, Fold, skill
from vfsl.completion.ensembles import method_name
from vfsl.completion.found import Found, Outcome
from vfsl.completion.low import LocalRoute, Method
from vfsl.completion.notes import about_rare, about_targets, about_views, unseen_categories
from vfsl.completion.recommend import recommend
from vfsl.completion.routing import (
    CONSTANT,
    HIGH,
    LOW,
    RARE,
    Route,
    best_tau,
    by_association,
    by_skill,
)
from vfsl.completion.shift import MeasureShift, Shift
from vfsl.completion.sides import Completable, Side
from vfsl.completion.targets import Target, targets_of
from vfsl.completion.vfpum import VFPUM, OnColumns, Stop
from vfsl.data import PartyTable
from vfsl.data.checks import counted
from vfsl.errors import ConfigError, DataError
from vfsl.estimators.association import Association
from vfsl.federation import Federation
from vfsl.progress import Event, OnEvent
from vfsl.store import Checkpoints

# Steps between the parties, beside the association.
CROSS_FIT, VFPU_M, DIRECT, SHIFT = "cross-fit", "vfpu-m", "direct model", "shift"
LEAST_OVERLAP = 30
# A column with fewer known cells on the common rows is not worth a model.
LEAST_KNOWN = 30


@dataclass(frozen=True)
class Settings:
    """The parameters of FedPSG, checked and with its preset filled in."""

    tau: float | str | None
    low: Method
    methods: tuple[Method, ...]
    bases: tuple[Pair, ...]
    alpha: float
    k: float
    rounds: int
    confidence: str
    context: str
    remainder: Method
    aggregate: Literal["mean", "max", "top-k"]
    shrink: bool
    folds: int
    miss: float
    shift: str
    stop: Stop | None

    def model(self, pair: Pair, rounds: int) -> VFPUM:
        return VFPUM(pair, self.alpha, self.k, rounds, self.confidence, self.context, self.stop)

    def role(self, step: str, pair: Pair) -> Callable[..., Any]:
        """What every party runs in a step of that name; the same wherever the party is."""
        if step == CROSS_FIT:
            return CrossFit(pair, self.folds, self.confidence == "spread").train
        if step == SHIFT:
            return MeasureShift().train
        return self.model(pair, self.rounds if step == VFPU_M else 1).train

    def plain(self) -> dict[str, Any]:
        """For the run record."""
        names = ("tau", "alpha", "k", "rounds", "confidence", "context", "aggregate", "shrink")
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in (*names, "folds", "miss", "shift")
        }
        plain["bases"] = [pair.numbers.name for pair in self.bases]
        return plain | {"low": method_name(self.low), "remainder": method_name(self.remainder)}


@dataclass(eq=False)
class Completing:
    """One completion: the steps in turn, each a run of roles or local work of the missing party."""

    how: Settings
    fed: Completable
    given: str
    missing: str
    state: Mapping[str, Path | str]
    on_event: OnEvent | None = None
    _kept: list[Checkpoints] = field(default_factory=list, init=False)
    _parts: int = field(default=0, init=False)
    # Exact predictions per remaining row that the missing party has seen.
    _views: int = field(default=0, init=False)

    def complete(self) -> Completion:
        """All steps; what was kept of them goes when all are done."""
        done = self._complete()
        for keeper in self._kept:
            keeper.clear()
        return done

    def _complete(self) -> Completion:
        self.check_parties()
        if self.fed.plan is None:
            self.fed.align(self.given, self.missing)
        self._take_sides()
        self._check_rows()
        targets = targets_of(self.common, self.fed.tables[self.missing].features)
        constant = [target for target in targets if target.constant]
        scarce = [target for target in targets if _is_scarce(target) and not target.constant]
        live = [target for target in targets if not target.constant and not _is_scarce(target)]
        routes, folds, choice = self._route(live) if live else ([], {}, {})
        routes += [Route(target.name, CONSTANT, "constant", 0.0, 0.0) for target in constant]
        routes += [
            Route(target.name, LOW, "known cells", float(target.known.sum()), LEAST_KNOWN)
            for target in scarce
        ]
        where = {route.column: route.route for route in routes}
        high = [target for target in live if where[target.name] == HIGH]
        low = [target for target in live if where[target.name] == LOW] + scarce
        filled = self._predict(high, folds, choice, self.how.rounds, HIGH)
        filled = self._remainder(high, filled)
        filled |= self._complete_low(low, folds, choice, filled)
        filled |= {
            target.name: filled_by_baseline(
                target, len(self.ids), self.how.folds, CONSTANT, "constant"
            )
            for target in constant
        }
        done = Completion(
            {target.name: filled[target.name] for target in targets},
            sorted(routes, key=lambda route: [t.name for t in targets].index(route.column)),
            self.ids,
            self.common,
            self.how.miss,
            self.how.folds,
            self._shift(),
            self._notes(constant, scarce, routes),
        )
        done.adviser = partial(recommend, fed=self.fed, given=self.given, missing=self.missing)
        return done

    # ---- parties and rows -------------------------------------------------------------------

    def check_parties(self) -> None:
        """Refuse parties that cannot complete or be completed."""
        for what, party in (("given", self.given), ("missing", self.missing)):
            if party not in self.fed.tables:
                raise ConfigError(
                    f"The {what} parameter of fit_complete must be a party with a table: "
                    f"{', '.join(self.fed.tables)}. Got {party!r} instead."
                )
        if self.given == self.missing:
            raise ConfigError("The given and the missing party must be different ones.")
        for party in (self.missing, self.given):
            if not self.fed.tables[party].features:
                raise DataError(
                    f"Party {party} has no columns of its own beside its ids and labels, so there "
                    f"is nothing to {'complete' if party == self.missing else 'predict from'}."
                )

    def _take_sides(self) -> None:
        shares = {party: self.fed.share(party) for party in (self.given, self.missing)}
        table = self.fed.tables[self.missing]
        labels = table.labels
        given = Side(
            self.fed.tables[self.given], shares[self.given].overlap, shares[self.given].rest
        )
        nobody = np.empty(0, dtype=np.int64)
        theirs = Side(table.without(labels), shares[self.missing].overlap, nobody)
        self.sides = {self.given: given, self.missing: theirs}
        self.common = theirs.table.take(theirs.overlap)
        self.ids = given.table.ids[given.rest]

    def _check_rows(self) -> None:
        count = len(self.common)
        if count < LEAST_OVERLAP:
            raise DataError(
                f"Parties {self.given} and {self.missing} have {counted(count, 'row')} in common; "
                f"completion needs at least {LEAST_OVERLAP}. Check how ids are written, or train "
                f"on {self.given}'s columns alone."
            )
        if not len(self.ids):
            raise DataError(
                f"Party {self.given} has no row that {self.missing} lacks: there is nothing to "
                "complete."
            )

    # ---- steps between the parties ----------------------------------------------------------

    def _route(self, live: Sequence[Target]) -> tuple[list[Route], dict[str, Fold], dict[str, int]]:
        """Routes, held-out predictions by column, and which base was best for it."""
        tau = self.how.tau
        folds, choice = self._cross_fit([target.name for target in live])
        skills = {name: self._skill(fold) for name, fold in folds.items()}
        rare = [
            Route(target.name, LOW, RARE, 0.0, 0.0) for target in live if target.name not in folds
        ]
        if tau is None:
            return by_skill(skills) + rare, folds, choice
        measured = Association(aggregate=self.how.aggregate).measure(
            cast(Federation, self.fed), self.given, self.missing
        )
        strengths = {name: float(measured[name]) for name in folds}
        level = best_tau(strengths, skills) if tau == "auto" else float(tau)
        return by_association(strengths, level) + rare, folds, choice

    def _cross_fit(self, names: Sequence[str]) -> tuple[dict[str, Fold], dict[str, int]]:
        best: dict[str, Fold] = {}
        choice: dict[str, int] = {}
        for number, pair in enumerate(self.how.bases):
            own = {"columns": names, "on_columns": self._listener(CROSS_FIT)}
            kept = self._keepers(CROSS_FIT, number, names)
            answers, report = self._run(CROSS_FIT, pair, own, kept)
            found: dict[str, Fold] = answers[self.missing]
            report(metrics={name: round(self._skill(fold)[0], 3) for name, fold in found.items()})
            for name, fold in found.items():
                if name not in best or self._skill(fold)[0] > self._skill(best[name])[0]:
                    best[name], choice[name] = fold, number
        return best, choice

    def _skill(self, fold: Fold) -> tuple[float, float]:
        """The skill of predictions as they will be given, and its error."""
        return skill(shrunk(fold, self.how.folds)[0] if self.how.shrink else fold)

    def _predict(
        self,
        targets: Sequence[Target],
        folds: Mapping[str, Fold],
        choice: Mapping[str, int],
        rounds: int,
        route: str,
    ) -> dict[str, Filled]:
        """VFPU-M for these columns, those of each base together."""
        filled: dict[str, Filled] = {}
        for number, pair in enumerate(self.how.bases):
            names = [target.name for target in targets if choice[target.name] == number]
            if not names:
                continue
            model = self.how.model(pair, rounds)
            own: dict[str, Any] = {
                "columns": names,
                "errors": {name: folds[name].errors for name in names if folds[name].errors},
                "scales": {name: folds[name].scale for name in names if folds[name].scale},
            }
            if model.context == "preliminary":
                own["context"] = self._preliminary()
            step = VFPU_M if rounds > 1 else DIRECT
            own["on_columns"] = self._listener(step)
            kept = self._keepers(step, number, names)
            answers, report = self._run(step, pair, own, kept)
            outcome: Outcome = answers[self.missing]
            self._views += _views_of(outcome)
            for found in outcome.found.values():
                name = found.target.name
                base = pair.name_of(classes=found.target.classes)
                made = f"{model.name if rounds > 1 else 'direct'} {base}"
                filled[name] = self._filled(found, folds[name], route, made)
            reasons = {name: found.stop_reason for name, found in outcome.found.items()}
            report(metrics={"columns": len(names)}, notes=tuple(_stops(reasons)))
        return filled

    def _filled(self, found: Found, fold: Fold, route: str, model: str) -> Filled:
        """A predicted column, drawn towards its mean as far as held-out rows ask for."""
        values, chances = found.values, found.chances
        if fold.errors is not None:
            fold = replace(fold, rest_spread=fold.errors.expected(values))
        if self.how.shrink:
            fold, share = shrunk(fold, self.how.folds)
            if chances is None:
                values = found.target.filler + share * (values - found.target.filler)
            else:
                counts = np.bincount(
                    found.target.filled[found.target.known].astype(np.int64),
                    minlength=len(found.target.levels),
                )
                base = counts / counts.sum()
                chances = base + share * (chances - base)
                values = chances.argmax(axis=1).astype(float)
        present = np.ones(len(values), dtype=bool)
        if self.how.remainder == "leave":
            present = found.moves.moved
        return Filled(
            found.target,
            route,
            model,
            values,
            present,
            found.moves.round,
            found.confidence,
            chances,
            fold,
        )

    def _listener(self, step: str) -> OnColumns | None:
        """Makes events of what the missing party says of its columns."""
        tell = self.on_event
        if tell is None:
            return None

        def hear(names: Sequence[str], done: int, total: int) -> None:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            tell(Event(step, f"{names[0]}{more}", done, total))

        return hear

    def _shift(self) -> Shift | None:
        if self.how.shift == "none":
            return None
        answers, report = self._run(SHIFT, self.how.bases[0], {}, {})
        shift: Shift = answers[self.missing]
        report(metrics={"auc of common against remaining rows": shift.auc})
        return shift

    def _run(
        self,
        step: str,
        pair: Pair,
        own: Mapping[str, Any],
        kept: Mapping[str, Checkpoints],
    ) -> tuple[dict[str, Any], Any]:
        """Run a step at all parties; ``own`` goes to the missing party only."""
        run = self.how.role(step, pair)
        roles = replace(self.fed.roles(self.missing, pair.work), feature_holders=(self.given,))
        jobs: dict[str, Callable[[Channel], Any]] = {}
        for party in filter(self.fed.plays, roles.everyone):
            more: dict[str, Any] = dict(own) if party == self.missing else {}
            if party in kept:
                more["kept"] = kept[party]
            rng = self.fed.private_rng(party, step)
            jobs[party] = partial(run, side=self.sides.get(party), roles=roles, rng=rng, **more)
        settings = {"given": self.given, "missing": self.missing, **self.how.plain()}
        settings |= {"scheme": roles.scheme, "security": roles.security}
        settings["base"] = self.how.bases.index(pair)
        return self.fed.run(step, jobs, settings)

    def _keepers(self, step: str, base: int, names: Sequence[str]) -> dict[str, Checkpoints]:
        """Where parties with a folder for it keep what this step has finished."""
        job: dict[str, Any] = {"settings": self.how.plain(), "step": step, "base": base}
        job |= {"columns": list(names), "rows": len(self.common), "others": len(self.ids)}
        mark = hashlib.sha256(json.dumps(job, sort_keys=True, default=str).encode()).hexdigest()
        # A step may come twice, for other columns; the order of steps is always the same.
        name = f"{self._parts}-{step.replace(' ', '-')}-{base}"
        self._parts += 1
        made = {
            party: Checkpoints(Path(self.state[party]) / name, mark)
            for party in (self.given, self.missing)
            if party in self.state
        }
        self._kept += made.values()
        return made

    # ---- local work of the missing party ----------------------------------------------------

    def _preliminary(self) -> PartyTable:
        """All of the missing party's columns for all rows: mean and mode for the remaining ones."""
        targets = targets_of(self.common, self.common.features)
        columns = {
            target.name: filled_by_baseline(target, len(self.ids), self.how.folds, LOW, "mean")
            for target in targets
        }
        draft = Completion(columns, [], self.ids, self.common, self.how.miss, self.how.folds)
        return whole_table(draft, self.common.features)

    def _complete_low(
        self,
        low: Sequence[Target],
        folds: Mapping[str, Fold],
        choice: Mapping[str, int],
        high: Mapping[str, Filled],
    ) -> dict[str, Filled]:
        rng = self.fed.private_rng(self.missing, "low columns")
        others, parts = len(self.ids), self.how.folds
        if self.how.low != "auto":
            local = LocalRoute(self.common, high, low, others, parts)
            if self.how.low == "direct":
                learned = [target for target in low if target.name in folds]
                return local.by_mean() | self._predict(learned, folds, choice, 1, LOW)
            return local.by_method(self.how.low, rng)
        skills = {t.name: self._skill(folds[t.name]) for t in low if t.name in folds}
        pays = {route.column for route in by_skill(skills) if route.route == HIGH}
        direct = [t for t in low if t.name in pays]
        made = self._predict(direct, folds, choice, 1, LOW)
        local = LocalRoute(
            self.common, {**high, **made}, [t for t in low if t.name not in made], others, parts
        )
        return made | local.best(self.how.methods, rng)

    def _notes(
        self, constant: Sequence[Target], scarce: Sequence[Target], routes: Sequence[Route]
    ) -> tuple[str, ...]:
        found = about_targets(self.missing, constant, scarce)
        found += about_rare(self.missing, [one.column for one in routes if one.by == RARE])
        found += unseen_categories(self.fed.tables[self.missing], self.common)
        columns = len(self.fed.tables[self.given].features)
        found += about_views(self.given, self.missing, self._views, columns, self.how.rounds)
        return tuple(found)

    def _remainder(self, high: Sequence[Target], filled: Mapping[str, Filled]) -> dict[str, Filled]:
        """Cells that never got a pseudo-label, by a local method if one was asked for."""
        method = self.how.remainder
        if method in ("predict", "leave") or not high:
            return dict(filled)
        local = LocalRoute(self.common, {}, high, len(self.ids), self.how.folds)
        answers = local.by_method(method, self.fed.private_rng(self.missing, "remainder"))
        return {name: _merged(one, answers[name]) for name, one in filled.items()}


def _views_of(outcome: Outcome) -> int:
    """Predictions per remaining row: every round scores all columns that train together."""
    views = 0
    for names in outcome.groups:
        group = [outcome.found[name] for name in names]
        views += max(len(one.rounds) for one in group) * sum(one.target.width for one in group)
    return views


def _is_scarce(target: Target) -> bool:
    return int(target.known.sum()) < LEAST_KNOWN


def _merged(predicted: Filled, local: Filled) -> Filled:
    """Pseudo-labels as they are, the other cells from a local method."""
    moved = predicted.round > 0
    chances = predicted.chances
    if chances is not None and local.chances is not None:
        chances = np.where(moved[:, None], chances, local.chances)
    return replace(
        predicted,
        model=f"{predicted.model}, else {local.model}",
        values=np.where(moved, predicted.values, local.values),
        confidence=np.where(moved, predicted.confidence, local.confidence),
        chances=chances,
    )


def _stops(reasons: Mapping[str, str]) -> list[str]:
    counts: dict[str, int] = {}
    for reason in reasons.values():
        counts[reason] = counts.get(reason, 0) + 1
    return [f"{counted(count, 'column')} ended by: {reason}." for reason, count in counts.items()]
