"""The missing party's side of FedPSG: where columns go, the order of parts, and its local work.

Columns that the other party's columns can predict take the high route, VFPU-M; the others the low
one (low_route.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vfsl.channel import Channel, expect_integer
from vfsl.completion import completed
from vfsl.completion.calibration import Shift
from vfsl.completion.columns import (
    Filled,
    Fold,
    Target,
    fill_by_baseline,
    make_target,
    shrink,
    skill,
)
from vfsl.completion.completed import (
    CONSTANT,
    HIGH,
    LOW,
    RARE,
    SIGNIFICANCE,
    Completion,
    Route,
    whole_table,
)
from vfsl.completion.low_methods import AUTO
from vfsl.completion.low_methods import DIRECT as DIRECT_MODEL
from vfsl.completion.low_route import LowRoute, draw_columns
from vfsl.completion.pseudo_labels import Found
from vfsl.completion.shared_roles import on_shares
from vfsl.data import PartyTable
from vfsl.data.checks import counted
from vfsl.errors import DataError
from vfsl.estimators.significance import choose_significant
from vfsl.lead import Leader
from vfsl.site import Outcome

if TYPE_CHECKING:
    from vfsl.completion.fedpsg import JointParts

LEAST_OVERLAP = 30
# A column with fewer known cells on the common rows is not worth a model.
LEAST_KNOWN = 30
# The parts between the parties.
ASSOCIATION, CROSS_FIT, VFPU_M, DIRECT, VF_GAIN, SHIFT = (
    "association",
    "cross-fit",
    "vfpu-m",
    "direct model",
    "vf-gain",
    "shift",
)
_MOST = 1 << 40

# ---- routes -------------------------------------------------------------------------------------


def route_by_association(
    strengths: Mapping[str, float], tau: float, above: Mapping[str, bool] | None = None
) -> list[Route]:
    """The papers' rule: μ_q > τ, strictly, is predicted; the rest is not.

    ``strengths`` are rounded; ``above`` says whether the unrounded ones are above τ.
    """
    passes = {name: strength > tau for name, strength in strengths.items()}
    passes |= above or {}
    return [
        Route(name, HIGH if passes[name] else LOW, "association", float(strength), tau)
        for name, strength in strengths.items()
    ]


def route_by_test(p_values: Mapping[str, float]) -> list[Route]:
    """Columns that are significantly associated, by Benjamini and Hochberg at level 0.05."""
    chosen, cut = choose_significant(np.array(list(p_values.values())))
    return [
        Route(name, HIGH if passes else LOW, SIGNIFICANCE, float(value), cut)
        for (name, value), passes in zip(p_values.items(), chosen, strict=True)
    ]


def route_by_skill(skills: Mapping[str, tuple[float, float]], errors: float = 0.5) -> list[Route]:
    """Columns whose model is better than the mean by ``errors`` standard errors out of fold.

    Half an error: predictions that are drawn towards the mean lose little where they are wrong.
    """
    return [
        Route(name, HIGH if value > errors * error else LOW, "skill", value, errors * error)
        for name, (value, error) in skills.items()
    ]


def find_best_tau(
    strengths: Mapping[str, float], skills: Mapping[str, tuple[float, float]]
) -> float:
    """The τ whose routed columns have the largest sum of held-out skills; the largest such τ.

    A column with a negative skill is worse than its mean, so routing it costs.
    """
    names = list(strengths)
    mu = np.array([strengths[name] for name in names])
    gain = np.array([skills[name][0] for name in names])
    options = np.unique(np.concatenate([[0.0, 1.0], mu]))
    totals = [gain[mu > tau].sum() for tau in options]
    best = max(range(len(options)), key=lambda place: (round(totals[place], 12), place))
    return float(options[best])


# ---- the order of parts -------------------------------------------------------------------------


class MissingParty:
    """The missing party's work: it orders joint parts and does all else by itself."""

    def __init__(self, parts: JointParts, talk: Channel) -> None:
        self._how, self._site, self._parts = parts.how, parts.site, parts
        given, me, mine = parts.given, parts.site.me, parts.own_part()
        self._common = mine.table.take(mine.rows)
        size = talk.receive(given, "size")
        self._others, self._columns = (
            expect_integer(size.get(name), sender=given, name=name, low=0, high=_MOST)
            for name in ("rows", "columns")
        )
        count = len(self._common)
        if count < LEAST_OVERLAP:
            raise DataError(
                f"Parties {given} and {me} have {counted(count, 'row')} in common; "
                f"completion needs at least {LEAST_OVERLAP}. Check how ids are written, or train "
                f"on {given}'s columns alone."
            )
        if not self._others:
            raise DataError(
                f"Party {given} has no row that {me} lacks: there is nothing to complete."
            )
        self._leader = Leader(talk, (), (given, self._site.terms.key_holder))
        # Exact predictions per remaining row that the missing party has seen.
        self._views = 0

    def complete(self) -> Completion:
        """All columns in turn: those that can be predicted, then the others by local methods."""
        how = self._how
        targets = [make_target(self._common, name) for name in self._common.features]
        constant = [one for one in targets if one.constant]
        varied = [one for one in targets if not one.constant]
        scarce = [one for one in varied if one.known.sum() < LEAST_KNOWN]
        live = [one for one in varied if one.known.sum() >= LEAST_KNOWN]
        routes, folds, choice = self._route(live) if live else ([], {}, {})
        routes += [Route(target.name, CONSTANT, "constant", 0.0, 0.0) for target in constant]
        routes += [
            Route(target.name, LOW, "known cells", float(target.known.sum()), LEAST_KNOWN)
            for target in scarce
        ]
        where = {route.column: route.route for route in routes}
        high = [target for target in live if where[target.name] == HIGH]
        low = [target for target in live if where[target.name] == LOW] + scarce
        do = VFPU_M if VFPU_M in how.joint_parts() else DIRECT
        filled = self._fill_remainder(high, self._predict(high, folds, choice, do, HIGH))
        made = self._complete_low(low, folds, choice, filled)
        widths = completed.note_widths(made)
        if how.low_fill == "draw":
            made = draw_columns(made, self._site.private_rng("drawn cells"), how.folds)
        filled |= made
        filled |= {one.name: self._fill(one, CONSTANT, "constant") for one in constant}
        shift = self._measure_shift()
        self._leader.end()
        names = [target.name for target in targets]
        return Completion(
            {name: filled[name] for name in names},
            sorted(routes, key=lambda route: names.index(route.column)),
            np.arange(self._others),
            self._common,
            how.miss,
            how.folds,
            shift,
            (*self._notes(constant, scarce, routes), *widths),
        )

    def _notes(
        self, constant: Sequence[Target], scarce: Sequence[Target], routes: Sequence[Route]
    ) -> tuple[str, ...]:
        given, me, rounds = self._parts.given, self._site.me, self._how.rounds or 1
        hidden = self._rounds_hidden()
        rounds = 1 if hidden else rounds
        found = completed.note_targets(me, constant, scarce)
        found += completed.note_none_high(given, me, routes, self._how.aggregate)
        rare = [one.column for one in routes if one.by == RARE]
        found += completed.note_rare(me, rare, hidden=hidden)
        found += completed.note_unseen(self._site.own_table(), self._common)
        found += completed.note_views(given, me, self._views, self._columns, rounds)
        return tuple(found)

    def _rounds_hidden(self) -> bool:
        """Whether nothing but the last predictions was opened."""
        parts = self._parts
        return all(on_shares(pair, parts.roles_of(pair)) for pair in parts.pairs)

    # ---- parts with the others --------------------------------------------------------------

    def _order(self, do: str, base: int = 0, **own: Any) -> tuple[Any, Outcome]:
        self._leader.order(do, base=base)
        return self._parts.play(do, base, **own)

    def _route(self, live: Sequence[Target]) -> tuple[list[Route], dict[str, Fold], dict[str, int]]:
        """Routes, held-out predictions by column, and which base was best for it."""
        tau, names = self._how.tau, [target.name for target in live]
        if isinstance(tau, float | int) or tau == SIGNIFICANCE:
            routes = self._route_first(names)
            # A federated model of a low column is learned only where one may be used.
            low = self._how.low in (AUTO, DIRECT_MODEL)
            wanted = [one.column for one in routes if low or one.route == HIGH]
            folds, choice = self._cross_fit(wanted) if wanted else ({}, {})
            unable = set(wanted) - set(folds)
            routes = [_too_rare(one) if one.column in unable else one for one in routes]
            return routes, folds, choice
        folds, choice = self._cross_fit(names)
        skills = {name: self._skill(fold) for name, fold in folds.items()}
        rare = [Route(name, LOW, RARE, 0.0, 0.0) for name in names if name not in folds]
        if tau is None:
            return route_by_skill(skills) + rare, folds, choice
        self._leader.order(ASSOCIATION, base=0)
        measured = self._parts.associate()
        strengths = {name: float(measured[name]) for name in folds}
        level = find_best_tau(strengths, skills)
        return route_by_association(strengths, level) + rare, folds, choice

    def _route_first(self, names: Sequence[str]) -> list[Route]:
        """Routes by a threshold or a test, before anything is learned."""
        tau = self._how.tau
        self._leader.order(ASSOCIATION, base=0)
        measured = self._parts.associate().loc[list(names)]
        if tau == SIGNIFICANCE:
            return route_by_test(measured["p"].to_dict())
        return route_by_association(
            measured["strength"].to_dict(), float(str(tau)), measured["above"].to_dict()
        )

    def _cross_fit(self, names: Sequence[str]) -> tuple[dict[str, Fold], dict[str, int]]:
        best: dict[str, Fold] = {}
        choice: dict[str, int] = {}
        for number in range(len(self._parts.pairs)):
            tell = partial(self._site.tell, CROSS_FIT)
            found, outcome = self._order(CROSS_FIT, number, columns=names, tell=tell)
            skills = {name: self._skill(fold)[0] for name, fold in found.items()}
            outcome.metrics = {name: round(value, 3) for name, value in skills.items()}
            for name, fold in found.items():
                if name not in best or skills[name] > self._skill(best[name])[0]:
                    best[name], choice[name] = fold, number
        return best, choice

    def _skill(self, fold: Fold) -> tuple[float, float]:
        """The skill of predictions as they will be given, and its error."""
        return skill(shrink(fold, self._how.folds)[0] if self._how.shrink else fold)

    def _fraction(self, fold: Fold) -> float:
        """Which part of a model's predictions is given; the rest is the mean."""
        return shrink(fold, self._how.folds)[1] if self._how.shrink else 1.0

    def _predict(
        self,
        targets: Sequence[Target],
        folds: Mapping[str, Fold],
        choice: Mapping[str, int],
        do: str,
        route: str,
    ) -> dict[str, Filled]:
        """VFPU-M or direct models for these columns, those of each base together."""
        filled: dict[str, Filled] = {}
        for number, pair in enumerate(self._parts.pairs):
            names = [target.name for target in targets if choice[target.name] == number]
            if not names:
                continue
            made, outcome = self._order(
                do,
                number,
                columns=names,
                context=self._fill_first() if self._how.context == "preliminary" else None,
                folds={name: folds[name] for name in names},
                tell=partial(self._site.tell, do),
                fraction=self._fraction,
            )
            reasons = Counter(one.stop_reason for one in made.found.values())
            outcome.metrics = {"columns": len(names)}
            outcome.notes = tuple(
                f"{counted(count, 'column')} ended by: {reason}."
                for reason, count in reasons.items()
            )
            self._views += made.views
            for name, found in made.found.items():
                base = pair.name_of(classes=found.target.classes)
                model = f"{'vfpu-m' if do == VFPU_M else 'direct'} {base}"
                fold = folds[name] if found.fold is None else found.fold
                filled[name] = self._fill_predicted(found, fold, route, model)
        return filled

    def _measure_shift(self) -> Shift | None:
        if self._how.shift == "none":
            return None
        shift, outcome = self._order(SHIFT)
        outcome.metrics = {"auc of common against remaining rows": shift.auc}
        return cast(Shift, shift)

    # ---- local work -------------------------------------------------------------------------

    def _fill(self, target: Target, route: str, model: str) -> Filled:
        return fill_by_baseline(target, self._others, self._how.folds, route, model)

    def _fill_first(self) -> PartyTable:
        """All of the missing party's columns for all rows: mean and mode for the remaining ones."""
        targets = [make_target(self._common, name) for name in self._common.features]
        return whole_table(
            self._common, {one.name: self._fill(one, LOW, "mean") for one in targets}
        )

    def _fill_predicted(self, found: Found, fold: Fold, route: str, model: str) -> Filled:
        """A predicted column, drawn towards its mean as far as held-out rows ask for."""
        target, values, chances = found.target, found.values, found.chances
        if fold.errors is not None:
            fold = replace(fold, rest_spread=fold.errors.expected(values))
        if self._how.shrink:
            fold, fraction = shrink(fold, self._how.folds)
            if chances is None:
                values = target.filler + fraction * (values - target.filler)
            else:
                base = target.frequencies()
                chances = base + fraction * (chances - base)
                values = chances.argmax(axis=1).astype(float)
        leave = self._how.remainder == "leave"
        present = found.moved if leave else np.ones(len(values), dtype=bool)
        return Filled(
            target,
            route,
            model,
            values,
            present,
            found.round,
            found.confidence,
            chances,
            fold,
            found.half,
            found.inside,
        )

    def _fill_remainder(
        self, high: Sequence[Target], filled: dict[str, Filled]
    ) -> dict[str, Filled]:
        """Cells that never got a pseudo-label, by a local method if one was asked for."""
        method = self._how.remainder
        if method in ("predict", "leave") or not high:
            return filled
        local = LowRoute(self._common, {}, high, self._others, self._how.folds)
        answers = local.by_method(method, self._site.private_rng("remainder"))
        return {name: fill_gaps(one, answers[name]) for name, one in filled.items()}

    def _complete_low(
        self,
        low: Sequence[Target],
        folds: Mapping[str, Fold],
        choice: Mapping[str, int],
        high: Mapping[str, Filled],
    ) -> dict[str, Filled]:
        rng, how = self._site.private_rng("low columns"), self._how
        draws = how.low_fill == "draw"
        local = LowRoute(self._common, high, low, self._others, how.folds, draws)
        if how.low == DIRECT_MODEL:
            learned = [target for target in low if target.name in folds]
            return local.by_mean() | self._predict(learned, folds, choice, DIRECT, LOW)
        if VF_GAIN in how.joint_parts():
            return self._complete_jointly(local, rng) if low else {}
        if how.low != AUTO:
            return local.by_method(how.chosen().told([one.name for one in low]), rng)
        skills = {one.name: self._skill(folds[one.name]) for one in low if one.name in folds}
        pays = {route.column for route in route_by_skill(skills) if route.route == HIGH}
        direct = [target for target in low if target.name in pays]
        made = self._predict(direct, folds, choice, DIRECT, LOW)
        rest = [target for target in low if target.name not in made]
        return made | replace(local, high={**high, **made}, targets=rest).by_best(how.methods, rng)

    def _complete_jointly(self, local: LowRoute, rng: np.random.Generator) -> dict[str, Filled]:
        filled, outcome = self._order(VF_GAIN, route=local, fold_rng=rng)
        outcome.metrics = {name: round(skill(one.fold)[0], 3) for name, one in filled.items()}
        return cast(dict[str, Filled], filled)


def _too_rare(route: Route) -> Route:
    return Route(route.column, LOW, RARE, 0.0, 0.0)


def fill_gaps(predicted: Filled, local: Filled) -> Filled:
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
