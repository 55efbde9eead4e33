"""FedPSG: complete the columns that a party lacks for the rows that only the other one has.

Holds   the missing party: its table; the given party: its common and remaining rows; the key
        holder: a secret key for each part of the work, no data.
Learns  what association.py, crossfit.py, vfpum.py and calibration.py say of each part. Beyond that
        the missing party: how many columns the given one has. The others: which part comes next,
        and so how many there are.

The missing party leads: routes, folds, local methods and calibration are its own work, and it
orders the parts that need the others. Completed rows stay with it, by their number among the given
party's remaining rows; only the given party knows whose rows these are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vfsl.channel import Channel, expect_integer
from vfsl.completion.bases import Pair, make_pair
from vfsl.completion.calibration import MeasureShift, Shift
from vfsl.completion.columns import Filled, Fold, Target, fill_by_baseline, make_target, shrink, skill
from vfsl.completion.completed import (
    Completion,
    note_rare,
    note_targets,
    note_unseen,
    note_views,
    picture,
    whole_table,
)
from vfsl.completion.crossfit import CrossFit
from vfsl.completion.ensembles import method_name
from vfsl.completion.pseudo_labels import ColumnModels, Found
from vfsl.completion.recommend import recommend
from vfsl.completion.routing import (
    CONSTANT,
    HIGH,
    LOW,
    RARE,
    LowRoute,
    Method,
    Route,
    find_best_tau,
    route_by_association,
    route_by_skill,
)
from vfsl.completion.vfpum import VFPUM, Stop
from vfsl.data import PartyTable, check_labels
from vfsl.data.checks import counted
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.estimators.association import Association
from vfsl.federation import Federation
from vfsl.lead import Follower, Leader, disclose_orders
from vfsl.params import check_params, documented, param
from vfsl.parts import Part
from vfsl.progress import OnEvent
from vfsl.site import Outcome, Site
from vfsl.store import Checkpoints
from vfsl.values import Disclosure, Disclosures

LEAST_OVERLAP = 30
# A column with fewer known cells on the common rows is not worth a model.
LEAST_KNOWN = 30
# The parts between the parties.
ASSOCIATION, CROSS_FIT, VFPU_M, DIRECT, SHIFT = (
    "association",
    "cross-fit",
    "vfpu-m",
    "direct model",
    "shift",
)
_MOST = 1 << 40

DISCLOSURES: Disclosures = {
    "size": Disclosure(
        dict, "how many rows that are not common and how many columns the sender has"
    ),
    **disclose_orders("which part of the completion comes next, and by which base"),
}

# What a preset stands for, where a parameter is left to it.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "tau": None,
        "rounds": 1,
        "confidence": "spread",
        "context": "none",
        "shrink": True,
    },
    "seed": {
        "tau": 0.5,
        "rounds": 10,
        "confidence": "seed",
        "context": "preliminary",
        "shrink": False,
    },
}


def check_pair(given: str, missing: str, aligned: Iterable[str]) -> None:
    """Refuse an alignment with a third party: its rest would hold rows that both parties have."""
    others = [party for party in aligned if party not in (given, missing)]
    if others:
        raise ConfigError(
            f"Completion needs an alignment of {given} and {missing} alone, or values would be "
            f"made up for rows that {missing} has and {others[0]} lacks; align {given} and "
            f"{missing} in a step of their own before completing."
        )


@documented
@dataclass
class FedPSG:
    """Complete one party's columns for the other party's remaining rows.

    Columns that the given party's columns can predict go to VFPU-M, the others to a method that is
    local at the missing party.
    """

    tau: float | Literal["auto"] | None = param(
        None,
        "Route by association: columns with μ > τ, strictly, are predicted. 'auto' takes the τ "
        "that is best on held-out common rows. Without it columns are routed by their "
        "cross-validated skill.",
        ge=0,
        le=1,
    )
    low: Method = param(
        "auto",
        "For the other columns: 'auto' (mean and mode, unless a direct model of the given party's "
        "columns or one of the methods is better out of fold), 'direct', a name of "
        "vfsl.completion.available, or a function that makes a completer, such as "
        "lambda: Ensemble(['gain', 'tvae']).",
    )
    methods: Sequence[Method] = param((), "Local methods that 'auto' tries as well.")
    base: str | Pair | Sequence[str | Pair] = param(
        "linear",
        "The federated estimator of VFPU-M: linear, rf, gbdt, xgb, lgb or a Pair. Of several the "
        "best of each column is taken.",
    )
    alpha: float = param(0.8, "Least confidence of a pseudo-label (α).", ge=0, le=1)
    k: float = param(
        0.1, "The fraction of the confident rows that a round takes, rounded up.", gt=0, le=1
    )
    rounds: int | None = param(
        None,
        "Maximum number of rounds of VFPU-M: 1 by default, 10 in the papers' preset. Each round "
        "shows the missing party one more prediction per remaining row and column.",
        ge=1,
    )
    confidence: Literal["seed", "spread"] | None = param(
        None,
        "For numbers: 1 − |ŷ − μ|/σ as in the papers ('seed'), or how small an error is to be "
        "expected of the prediction ('spread').",
    )
    context: Literal["none", "preliminary"] | None = param(
        None,
        "Whether the missing party's other columns take part in VFPU-M, on remaining rows by a "
        "first fill.",
    )
    remainder: Method = param(
        "predict",
        "Cells that never got a pseudo-label: the last model's prediction ('predict'; their round "
        "is 0), left missing ('leave'), or filled by the local method of that name.",
    )
    aggregate: Literal["mean", "max", "top-k"] = param(
        "mean",
        "How associations with all given columns become μ. The mean, as in the papers, rarely "
        "passes 0.5.",
    )
    shrink: bool | None = param(
        None, "Whether predictions are drawn towards the mean by as much as held-out rows ask for."
    )
    folds: int = param(5, "Folds of held-out predictions.", ge=2)
    miss: float = param(
        0.1, "The fraction of truth that intervals and class sets may leave out.", ge=0, le=1
    )
    shift: Literal["auto", "none"] = param(
        "auto",
        "Weigh intervals where the remaining rows differ from the common ones ('auto'), or never "
        "ask ('none').",
    )
    stop: Stop | None = param(
        None,
        "A further rule for VFPU-M: gets a column's rounds so far and says whether to end.",
        option=False,
    )
    preset: Literal["default", "seed"] = param(
        "default",
        "What parameters that are not given stand for: what measured best ('default'), or what "
        "the papers have ('seed').",
    )

    def fit_complete(
        self,
        fed: Federation,
        given: str = "A",
        missing: str = "B",
        *,
        state: Mapping[str, Path | str] | None = None,
        on_event: OnEvent | None = None,
    ) -> Completion:
        """Learn from the common rows and complete the others.

        Parameters
        ----------
        fed : Federation
            The two parties are aligned now if nobody is; an alignment with a third is refused.
        given : str
            The party whose remaining rows are to be completed.
        missing : str
            The party whose columns they lack.
        state : mapping of party to folder, optional
            Where a party keeps finished columns: the same call goes on from there.
        on_event : callable, optional
            Hears an `Event` when work on a column, or on several together, begins, and how far it
            is; not from parties that run as processes.

        Returns
        -------
        Completion
        """
        self.resolve()
        for what, party in (("given", given), ("missing", missing)):
            if party not in fed.tables:
                raise ConfigError(
                    f"The {what} parameter of fit_complete must be a party with a table: "
                    f"{', '.join(fed.tables)}. Got {party!r} instead."
                )
        if given == missing:
            raise ConfigError("The given and the missing party must be different ones.")
        check_labels(fed.tables, (given, missing))
        if fed.plan is None:
            fed.align(given, missing)
        there = fed.keeping(state, on_event)
        done: Completion = there.play(partial(self.play, given=given, missing=missing))[missing]
        ids = fed.tables[given].ids[fed.share(given).rest]
        return replace(
            done, ids=ids, adviser=partial(recommend, fed=fed, given=given, missing=missing)
        )

    def play(self, site: Site, channel: Channel, given: str, missing: str) -> Completion | None:
        """One party's side; the completion at the missing party, by row numbers.

        Nothing is sent at a party that has no role in it.
        """
        if site.me not in (given, missing, site.terms.key_holder):
            return None
        how, done = self.resolve(), None
        check_pair(given, missing, site.standing.aligned)
        talk, before = channel.within("lead", DISCLOSURES), len(site.outcomes)
        with site.records("completion", talk, how.describe(given, missing)) as outcome:
            parts = _JointParts(how, site, channel, given, missing)
            if site.me == missing:
                done = _Missing(how, site, parts, talk).complete()
                outcome.details = {"given": given, "missing": missing, **picture(done)}
                outcome.metrics = {"columns": len(done.columns), "rows": len(done.ids)}
                outcome.metrics |= outcome.details["verdicts"]
                outcome.notes = done.notes
            else:
                parts.follow(talk)
            parts.forget()
        # The joint parts have records, and times, of their own.
        outcome.seconds -= sum(one.seconds for one in site.outcomes[before:-1])
        return done

    def asks(self) -> tuple[tuple[Literal["disclosure", "output"], str], ...]:
        """What a completion reveals or delivers beyond the defaults, by its name in party.toml."""
        how = self.resolve()
        asked = {
            "repeated predictions": (how.rounds or 1) > 1,
            "tree partitions": not all(pair.linear for pair in how.pairs()),
            "associations": how.tau is not None,
            "row differences": how.shift != "none",
        }
        reveals = tuple(("disclosure", name) for name, asks in asked.items() if asks)
        return (*reveals, ("output", "completed columns"))

    def resolve(self) -> FedPSG:
        """The same, checked, with what the preset says where a parameter was not given."""
        check_params(self)
        if not self.pairs():
            raise ConfigError("The base parameter of FedPSG must name at least one estimator.")
        preset = PRESETS[self.preset]
        return replace(
            self, **{name: preset[name] for name in preset if getattr(self, name) is None}
        )

    def pairs(self) -> list[Pair]:
        """The bases as estimators."""
        several = isinstance(self.base, Sequence) and not isinstance(self.base, str)
        bases: Any = self.base if several else [self.base]
        return [make_pair(base) for base in bases]

    def describe(self, given: str, missing: str) -> dict[str, Any]:
        """The settings, for the run record."""
        names = ("tau", "alpha", "k", "rounds", "confidence", "context", "aggregate", "shrink")
        return {
            "given": given,
            "missing": missing,
            **{name: getattr(self, name) for name in (*names, "folds", "miss", "shift")},
            "bases": [pair.numbers.name for pair in self.pairs()],
            "low": method_name(self.low),
            "remainder": method_name(self.remainder),
        }


# ---- the parts between the parties --------------------------------------------------------------


@dataclass(eq=False)
class _JointParts:
    """One party's side of the parts that need several parties, in the order of the leader."""

    how: FedPSG
    site: Site
    channel: Channel
    given: str
    missing: str
    _number: int = 0
    _kept: list[Checkpoints] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pairs = self.how.pairs()
        self.part = self.site.part()
        if self.part is not None and not self.part.table.features:
            leads = self.site.me == self.missing
            raise DataError(
                f"Party {self.site.me} has no columns of its own beside its ids and labels, so "
                f"there is nothing to {'complete' if leads else 'predict from'}."
            )
        if self.part is not None and self.site.me == self.missing:
            table = self.part.table
            # Of the other's remaining rows it has none.
            self.part = Part(table.without(table.labels), self.part.rows)

    @contextmanager
    def play(self, do: str, base: int) -> Iterator[tuple[Callable[..., Any], Outcome]]:
        """Play and record the next part: a function of what only this party brings to it."""
        pair, site = self.pairs[base], self.site
        work = ASSOCIATION if do == ASSOCIATION else pair.work
        roles = replace(site.roles(self.missing, work), feature_holders=(self.given,))
        name, here = f"{self._number} {do} {base}", self.channel.within(f"part {self._number}")
        self._number += 1
        settings = self.how.describe(self.given, self.missing) | {"base": base}
        side: Any
        if do == ASSOCIATION:
            side = Association(aggregate=self.how.aggregate)
            settings = {"given": self.given, "missing": self.missing, **asdict(side)}
        elif do == CROSS_FIT:
            side = CrossFit(pair, self.how.folds, self.how.confidence == "spread")
        elif do == SHIFT:
            side = MeasureShift()
        else:
            side = self.make_vfpum(pair, do)
        settings |= {"scheme": roles.scheme, "security": roles.security}

        def run(**own: Any) -> Any:
            if do != ASSOCIATION:
                own["rng"] = site.private_rng(do)
            if do in (CROSS_FIT, VFPU_M, DIRECT):
                facts = [settings, name, list(own.get("columns", []))]
                self._kept.append(site.checkpoints(name, *facts))
                own["kept"] = self._kept[-1]
            return side.train(here, self.part, roles=roles, **own)

        with site.records(do, here, settings) as outcome:
            yield run, outcome

    def make_vfpum(self, pair: Pair, do: str) -> VFPUM:
        """VFPU-M with its rounds, or as a direct model."""
        how = self.how
        rounds = how.rounds if do == VFPU_M else 1
        return VFPUM(pair, how.alpha, how.k, rounds, how.confidence, how.context, how.stop)

    def follow(self, talk: Channel) -> None:
        """Do what the missing party orders, until it says that this was all."""
        if self.part is not None:
            columns = len(self.part.table.features)
            talk.send(self.missing, "size", {"rows": len(self.part.rest), "columns": columns})
        most = len(self.pairs) - 1
        for _, _, order in Follower(talk, self.missing):
            base = expect_integer(
                order.get("base"), sender=self.missing, name="base", low=0, high=most
            )
            if order["do"] not in (ASSOCIATION, CROSS_FIT, VFPU_M, DIRECT, SHIFT):
                raise ProtocolError(f"Party {self.missing!r} ordered unknown work.", self.missing)
            with self.play(order["do"], base) as (run, _):
                run()

    def forget(self) -> None:
        """Remove what was kept of the parts, once all are done."""
        for kept in self._kept:
            kept.clear()


# ---- the missing party --------------------------------------------------------------------------


class _Missing:
    """The missing party's work: it orders joint parts and does all else by itself."""

    def __init__(self, how: FedPSG, site: Site, parts: _JointParts, talk: Channel) -> None:
        self._how, self._site, self._parts = how, site, parts
        if parts.part is None:
            raise ConfigError(f"Party {site.me!r} needs its table to complete it.")
        self._common = parts.part.table.take(parts.part.rows)
        given = parts.given
        size = talk.receive(given, "size")
        self._others, self._columns = (
            expect_integer(size.get(name), sender=given, name=name, low=0, high=_MOST)
            for name in ("rows", "columns")
        )
        count = len(self._common)
        if count < LEAST_OVERLAP:
            raise DataError(
                f"Parties {given} and {site.me} have {counted(count, 'row')} in common; "
                f"completion needs at least {LEAST_OVERLAP}. Check how ids are written, or train "
                f"on {given}'s columns alone."
            )
        if not self._others:
            raise DataError(
                f"Party {given} has no row that {site.me} lacks: there is nothing to complete."
            )
        self._leader = Leader(talk, (), (given, site.terms.key_holder))
        # Exact predictions per remaining row that the missing party has seen.
        self._views = 0

    def complete(self) -> Completion:
        """All columns in turn: those that can be predicted, then the others by local methods."""
        targets = [make_target(self._common, name) for name in self._common.features]
        constant = [target for target in targets if target.constant]
        scarce = [one for one in targets if _is_scarce(one) and not one.constant]
        live = [one for one in targets if not _is_scarce(one) and not one.constant]
        routes, folds, choice = self._route(live) if live else ([], {}, {})
        routes += [Route(target.name, CONSTANT, "constant", 0.0, 0.0) for target in constant]
        routes += [
            Route(target.name, LOW, "known cells", float(target.known.sum()), LEAST_KNOWN)
            for target in scarce
        ]
        where = {route.column: route.route for route in routes}
        high = [target for target in live if where[target.name] == HIGH]
        low = [target for target in live if where[target.name] == LOW] + scarce
        filled = self._predict(high, folds, choice, VFPU_M if self._how.rounds > 1 else DIRECT, HIGH)
        filled = self._fill_remainder(high, filled)
        filled |= self._complete_low(low, folds, choice, filled)
        filled |= {one.name: self._fill(one, CONSTANT, "constant") for one in constant}
        names = [target.name for target in targets]
        shift = self._measure_shift()
        self._leader.end()
        return Completion(
            {name: filled[name] for name in names},
            sorted(routes, key=lambda route: names.index(route.column)),
            np.arange(self._others),
            self._common,
            self._how.miss,
            self._how.folds,
            shift,
            self._notes(constant, scarce, routes),
        )

    # ---- parts with the others --------------------------------------------------------------

    @contextmanager
    def _order(self, do: str, base: int = 0) -> Iterator[tuple[Callable[..., Any], Outcome]]:
        self._leader.order(do, base=base)
        with self._parts.play(do, base) as (run, outcome):
            yield run, outcome

    def _route(self, live: Sequence[Target]) -> tuple[list[Route], dict[str, Fold], dict[str, int]]:
        """Routes, held-out predictions by column, and which base was best for it."""
        tau = self._how.tau
        folds, choice = self._cross_fit([target.name for target in live])
        skills = {name: self._skill(fold) for name, fold in folds.items()}
        rare = [
            Route(target.name, LOW, RARE, 0.0, 0.0) for target in live if target.name not in folds
        ]
        if tau is None:
            return route_by_skill(skills) + rare, folds, choice
        with self._order(ASSOCIATION) as (run, outcome):
            measured = run()
            outcome.metrics = {"columns": len(measured)}
        strengths = {name: float(measured[name]) for name in folds}
        level = find_best_tau(strengths, skills) if tau == "auto" else float(tau)
        return route_by_association(strengths, level) + rare, folds, choice

    def _cross_fit(self, names: Sequence[str]) -> tuple[dict[str, Fold], dict[str, int]]:
        best: dict[str, Fold] = {}
        choice: dict[str, int] = {}
        for number in range(len(self._parts.pairs)):
            with self._order(CROSS_FIT, number) as (run, outcome):
                found = run(columns=names, tell=partial(self._site.tell, CROSS_FIT))
                skills = {name: self._skill(fold)[0] for name, fold in found.items()}
                outcome.metrics = {name: round(value, 3) for name, value in skills.items()}
            for name, fold in found.items():
                if name not in best or skills[name] > self._skill(best[name])[0]:
                    best[name], choice[name] = fold, number
        return best, choice

    def _skill(self, fold: Fold) -> tuple[float, float]:
        """The skill of predictions as they will be given, and its error."""
        return skill(shrink(fold, self._how.folds)[0] if self._how.shrink else fold)

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
            own: dict[str, Any] = {"columns": names, "folds": {n: folds[n] for n in names}}
            if self._how.context == "preliminary":
                own["context"] = self._preliminary()
            with self._order(do, number) as (run, outcome):
                made: ColumnModels = run(**own, tell=partial(self._site.tell, do))
                outcome.metrics = {"columns": len(names)}
                reasons = Counter(one.stop_reason for one in made.found.values())
                outcome.notes = tuple(
                    f"{counted(count, 'column')} ended by: {reason}."
                    for reason, count in reasons.items()
                )
            self._views += made.views
            for name, found in made.found.items():
                base = pair.name_of(classes=found.target.classes)
                model = f"{VFPUM.name if do == VFPU_M else 'direct'} {base}"
                filled[name] = self._fill_predicted(found, folds[name], route, model)
        return filled

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
                counts = target.counts()
                base = counts / counts.sum()
                chances = base + fraction * (chances - base)
                values = chances.argmax(axis=1).astype(float)
        leave = self._how.remainder == "leave"
        present = found.moved if leave else np.ones(len(values), dtype=bool)
        return Filled(
            target, route, model, values, present, found.round, found.confidence, chances, fold
        )

    def _measure_shift(self) -> Shift | None:
        if self._how.shift == "none":
            return None
        with self._order(SHIFT) as (run, outcome):
            shift: Shift = run()
            outcome.metrics = {"auc of common against remaining rows": shift.auc}
        return shift

    # ---- local work -------------------------------------------------------------------------

    def _fill(self, target: Target, route: str, model: str) -> Filled:
        return fill_by_baseline(target, self._others, self._how.folds, route, model)

    def _preliminary(self) -> PartyTable:
        """All of the missing party's columns for all rows: mean and mode for the remaining ones."""
        names, how = self._common.features, self._how
        columns = {name: self._fill(make_target(self._common, name), LOW, "mean") for name in names}
        ids = np.arange(self._others)
        return whole_table(Completion(columns, [], ids, self._common, how.miss, how.folds))

    def _complete_low(
        self,
        low: Sequence[Target],
        folds: Mapping[str, Fold],
        choice: Mapping[str, int],
        high: Mapping[str, Filled],
    ) -> dict[str, Filled]:
        rng, how = self._site.private_rng("low columns"), self._how
        local = LowRoute(self._common, high, low, self._others, how.folds)
        if how.low == "direct":
            learned = [target for target in low if target.name in folds]
            return local.by_mean() | self._predict(learned, folds, choice, DIRECT, LOW)
        if how.low != "auto":
            return local.by_method(how.low, rng)
        skills = {t.name: self._skill(folds[t.name]) for t in low if t.name in folds}
        pays = {route.column for route in route_by_skill(skills) if route.route == HIGH}
        direct = [target for target in low if target.name in pays]
        made = self._predict(direct, folds, choice, DIRECT, LOW)
        rest = [target for target in low if target.name not in made]
        return made | replace(local, high={**high, **made}, targets=rest).by_best(how.methods, rng)

    def _fill_remainder(
        self, high: Sequence[Target], filled: dict[str, Filled]
    ) -> dict[str, Filled]:
        """Cells that never got a pseudo-label, by a local method if one was asked for."""
        method = self._how.remainder
        if method in ("predict", "leave") or not high:
            return filled
        local = LowRoute(self._common, {}, high, self._others, self._how.folds)
        answers = local.by_method(method, self._site.private_rng("remainder"))
        return {name: _merge_columns(one, answers[name]) for name, one in filled.items()}

    def _notes(
        self, constant: Sequence[Target], scarce: Sequence[Target], routes: Sequence[Route]
    ) -> tuple[str, ...]:
        given, me = self._parts.given, self._site.me
        found = note_targets(me, constant, scarce)
        found += note_rare(me, [one.column for one in routes if one.by == RARE])
        found += note_unseen(self._site.own_table(), self._common)
        found += note_views(given, me, self._views, self._columns, self._how.rounds or 1)
        return tuple(found)


def _is_scarce(target: Target) -> bool:
    return int(target.known.sum()) < LEAST_KNOWN


def _merge_columns(predicted: Filled, local: Filled) -> Filled:
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
