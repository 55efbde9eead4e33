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

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from vfsl.channel import Channel, expect_integer
from vfsl.completion.bases import BASES, Pair, make_pair
from vfsl.completion.calibration import MeasureShift
from vfsl.completion.completed import SIGNIFICANCE, Completion, picture
from vfsl.completion.crossfit import CrossFit
from vfsl.completion.ensembles import Method, method_name
from vfsl.completion.low_methods import AUTO, Chosen, Low, read_low
from vfsl.completion.low_methods import DIRECT as DIRECT_MODEL
from vfsl.completion.missing import (
    ASSOCIATION,
    CROSS_FIT,
    DIRECT,
    SHIFT,
    VF_GAIN,
    VFPU_M,
    MissingParty,
)
from vfsl.completion.network_route import NetworkRoute
from vfsl.completion.recommend import recommend
from vfsl.completion.registry import available, local_methods
from vfsl.completion.vfpum import VFPUM, Stop
from vfsl.data import check_labels
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.estimators.association import Association
from vfsl.estimators.base import Ask
from vfsl.federation import Federation
from vfsl.lead import Follower, disclose_orders
from vfsl.params import Param, Settable, check_params, documented, param, params_of, value_now
from vfsl.parts import Part, Roles
from vfsl.progress import OnEvent
from vfsl.site import Outcome, Site
from vfsl.store import Checkpoints
from vfsl.values import Disclosure, Disclosures

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
        "low": "auto",
        "rounds": 1,
        "confidence": "spread",
        "context": "none",
        "shrink": True,
        "protocol": "shares",
    },
    "paper": {
        "tau": 0.5,
        "low": "tabddpm",
        "rounds": 10,
        "confidence": "paper",
        "context": "preliminary",
        "shrink": False,
        "protocol": "rounds",
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


def _as_in_vfpum(name: str, *, preset: bool = False) -> Any:
    """A parameter that VFPUM declares; left to the preset where that says so."""
    declared = VFPUM.__dataclass_fields__[name]
    default = None if preset else declared.default
    return dataclasses.field(default=default, metadata=declared.metadata)


@documented
@dataclass
class FedPSG(Settable):
    """Complete one party's columns for the other party's remaining rows.

    Columns that the given party's columns can predict go to VFPU-M, the others to a method that is
    local at the missing party.
    """

    tau: float | Literal["auto", "significance"] | None = param(
        None,
        "Route by association: columns with μ > τ, strictly and before rounding, are predicted. "
        "'auto' takes the τ that is best on held-out common rows, 'significance' the columns whose "
        "independence of the given ones is rejected (Benjamini and Hochberg, level 0.05). Without "
        "it columns are routed by their cross-validated skill.",
        ge=0,
        le=1,
    )
    low: Low | None = param(
        None,
        "For the other columns: 'auto' (mean and mode, unless a direct model of the given party's "
        "columns or one of the methods is better out of fold), 'direct', a name of "
        "vfsl.completion.available, of which 'vfgain' runs between the parties, a table such as "
        "{method = 'ctabgan', epochs = 20} or {ensemble = ['tabddpm', 'vfgain'], how = 'stacking'},"
        " or a function that makes a completer. By default 'auto', and 'tabddpm' with preset "
        "'paper'.",
        names=lambda: [AUTO, DIRECT_MODEL, *available()],
    )
    low_fill: Literal["mean", "draw"] = param(
        "mean",
        "What cells of low columns hold: conditional means and most probable categories, which are "
        "nearest to the truth, or draws, which keep the distribution.",
    )
    methods: Sequence[Method] = param(
        (), "Local methods that 'auto' tries as well.", names=local_methods
    )
    base: str | Pair | Sequence[str | Pair] = param(
        "linear",
        "The federated estimator of VFPU-M: linear, rf, gbdt, xgb, lgb or a Pair. Of several the "
        "best of each column is taken.",
        names=lambda: BASES,
    )
    alpha: float = _as_in_vfpum("alpha")
    k: float = _as_in_vfpum("k")
    rounds: int | None = _as_in_vfpum("rounds", preset=True)
    confidence: Literal["paper", "spread"] | None = _as_in_vfpum("confidence", preset=True)
    context: Literal["none", "preliminary"] | None = _as_in_vfpum("context", preset=True)
    remainder: Method = param(
        "predict",
        "Cells that never got a pseudo-label: the last model's prediction ('predict'; their round "
        "is 0), left missing ('leave'), or filled by the local method of that name.",
        names=lambda: ["predict", "leave", *local_methods()],
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
        0.1, "The fraction of truth that intervals and class sets may leave out.", gt=0, lt=1
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
    protocol: Literal["shares", "rounds"] | None = param(
        None,
        "How a linear base works unless the run names a scheme that encrypts: on shares, where "
        "held-out rows give sums of errors and only the last predictions are opened ('shares'), or "
        "as the papers have it, with gradients and the predictions of all rows and rounds opened "
        "('rounds').",
    )
    preset: Literal["default", "paper"] = param(
        "default",
        "What parameters that are not given stand for. 'default' is what measured best: rounds=1, "
        "confidence='spread', context='none', shrink=True, protocol='shares', low='auto'; 'paper' "
        "is what the papers have: tau=0.5, rounds=10, confidence='paper', context='preliminary', "
        "shrink=False, protocol='rounds', low='tabddpm'.",
        formerly={"seed": "paper"},
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
        there = fed.keeping(state, on_event) if state or on_event else fed
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
            parts = JointParts(how, site, channel, given, missing)
            if site.me == missing:
                done = MissingParty(parts, talk).complete()
                outcome.details = {"given": given, "missing": missing, **picture(done)}
                outcome.metrics = {"columns": len(done.columns), "rows": len(done.ids)}
                outcome.metrics |= outcome.details["verdicts"]
                outcome.notes = done.notes
            else:
                parts.follow(talk)
            parts.forget()
        # The joint parts have records, and times, of their own; all else is the missing party's.
        together = sum(one.seconds for one in site.outcomes[before:-1])
        outcome.seconds = 0.0 if done is None else outcome.seconds - together
        return done

    def asks(self, scheme: str = "auto") -> tuple[Ask, ...]:
        """What a completion reveals or delivers beyond the defaults, by its name in party.toml."""
        how, pairs = self.resolve(), self.pairs()
        parts, linear = how.joint_parts(), [pair.linear for pair in pairs]
        hidden = how.protocol == "shares" and scheme in ("auto", "shares")
        reveals = {
            "repeated predictions": VFPU_M in parts and not (hidden and all(linear)),
            "gradients": any(linear) and not hidden,
            "tree partitions": not all(linear),
            "associations": ASSOCIATION in parts,
            "embeddings": VF_GAIN in parts,
            "row differences": SHIFT in parts,
        }
        asked: list[Ask] = [("disclosure", name) for name, yes in reveals.items() if yes]
        return (*asked, ("output", "completed columns"))

    def resolve(self) -> FedPSG:
        """The same, checked, with what the preset says where a parameter was not given."""
        check_params(self)
        if not self.pairs():
            raise ConfigError("The base parameter of FedPSG must name at least one estimator.")
        now = {name: value_now(one, getattr(self, name)) for name, one in _declared().items()}
        preset = PRESETS[now["preset"]]
        made = replace(self, **now | {name: preset[name] for name in preset if now[name] is None})
        made.chosen()
        if made.protocol == "shares" and self.protocol is None and made._needs_rounds():
            return replace(made, protocol="rounds")
        return made

    def chosen(self) -> Chosen:
        """The method for low columns, once the preset is filled in."""
        return read_low(AUTO if self.low is None else self.low)

    def _needs_rounds(self) -> bool:
        """Whether something is asked for that only rounds in the open can do."""
        return self.context == "preliminary" or self.stop is not None

    def joint_parts(self) -> set[str]:
        """The parts between the parties that may come, once the preset is filled in."""
        several = (self.rounds or 1) > 1
        may_come = {
            ASSOCIATION: self.tau is not None,
            CROSS_FIT: True,
            VFPU_M: several,
            DIRECT: not several or self.low in (AUTO, DIRECT_MODEL),
            VF_GAIN: self.low not in (AUTO, DIRECT_MODEL) and self.chosen().joint,
            SHIFT: self.shift != "none",
        }
        return {part for part, may in may_come.items() if may}

    def pairs(self) -> list[Pair]:
        """The bases as estimators."""
        several = isinstance(self.base, Sequence) and not isinstance(self.base, str)
        bases: Any = self.base if several else [self.base]
        return [make_pair(base) for base in bases]

    def describe(self, given: str, missing: str) -> dict[str, Any]:
        """The settings, for the run record."""
        names = ("tau", "alpha", "k", "rounds", "confidence", "context", "aggregate", "shrink")
        more = ("protocol", "folds", "miss", "shift")
        return {
            "given": given,
            "missing": missing,
            **{name: getattr(self, name) for name in (*names, *more)},
            "bases": [pair.numbers.name for pair in self.pairs()],
            "low": self.chosen().describe(),
            "low_fill": self.low_fill,
            "remainder": method_name(self.remainder),
        }


@cache
def _declared() -> dict[str, Param]:
    return params_of(FedPSG)


# ---- the parts between the parties --------------------------------------------------------------


@dataclass(eq=False)
class JointParts:
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

    def play(self, do: str, base: int, **own: Any) -> tuple[Any, Outcome]:
        """Play and record the next part; ``own`` is what only the missing party brings to it."""
        how, pair, site = self.how, self.pairs[base], self.site
        side: Any
        if do == CROSS_FIT:
            side = CrossFit(pair, how.folds, how.confidence == "spread")
        elif do == SHIFT:
            side = MeasureShift()
        elif do == VF_GAIN:
            side = NetworkRoute(how.chosen())
        else:
            names = ("alpha", "k", "rounds", "confidence", "miss", "context", "stop")
            side = VFPUM(pair, **{name: getattr(how, name) for name in names})
            side.rounds = side.rounds if do == VFPU_M else 1
        roles = self.roles_of(pair)
        settings = how.describe(self.given, self.missing) | {"base": base}
        settings |= {"scheme": roles.scheme, "security": roles.security}
        if do != SHIFT:
            own["kept"] = self._keep(f"{self._number} {do} {base}", settings, own.get("columns"))
        here, rng = self._open_channel(), site.private_rng(do)
        with site.records(do, here, settings) as outcome:
            answer = side.train(here, self.part, roles=roles, rng=rng, **own)
        return answer, outcome

    def roles_of(self, pair: Pair) -> Roles:
        """Who does what for a base, under which scheme."""
        rounds = pair.linear and self.how.protocol == "rounds"
        roles = self.site.roles(self.missing, "linear rounds" if rounds else pair.work)
        return replace(roles, feature_holders=(self.given,))

    def associate(self) -> Any:
        """Play the association as the next part; the strengths by column at the missing party."""
        tau = self.how.tau
        how = Association(
            aggregate=self.how.aggregate,
            above=tau if isinstance(tau, float | int) else None,
            test=tau == SIGNIFICANCE,
        )
        return how.compare(self.site, self._open_channel(), self.given, self.missing)

    def _open_channel(self) -> Channel:
        self._number += 1
        return self.channel.within(f"part {self._number - 1}")

    def own_part(self) -> Part:
        """The party's rows; ConfigError where it has none."""
        if self.part is None:
            raise ConfigError(f"Party {self.site.me!r} needs its table to complete it.")
        return self.part

    def follow(self, talk: Channel) -> None:
        """Do what the missing party orders, until it says that this was all."""
        if self.part is not None:
            columns = len(self.part.table.features)
            talk.send(self.missing, "size", {"rows": len(self.part.rest), "columns": columns})
        allowed, most = self.how.joint_parts(), len(self.pairs) - 1
        for _, _, order in Follower(talk, self.missing):
            base = expect_integer(
                order.get("base"), sender=self.missing, name="base", low=0, high=most
            )
            if order.get("do") not in allowed:
                raise ProtocolError(f"Party {self.missing!r} ordered unknown work.", self.missing)
            if order["do"] == ASSOCIATION:
                self.associate()
            else:
                self.play(order["do"], base)

    def _keep(self, name: str, *facts: Any) -> Checkpoints:
        """Where this party keeps a part of the work, whatever marks its rows have."""
        share = self.site.standing.rows
        unmarked = None if share is None else replace(share, marks=None)
        self._kept.append(self.site.with_rows(unmarked).checkpoints(name, name, *facts))
        return self._kept[-1]

    def forget(self) -> None:
        """Remove what was kept of the parts, once all are done."""
        for kept in self._kept:
            kept.clear()
