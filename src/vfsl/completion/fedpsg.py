"""FedPSG: complete the columns that a party lacks for the rows that only the other one has."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from vfsl.completion.bases import Pair, make_pair
from vfsl.completion.completed import Completion
from vfsl.completion.completing import Completing, Settings
from vfsl.completion.low import Method
from vfsl.completion.picture import picture
from vfsl.completion.sides import Completable, check_pair
from vfsl.completion.vfpum import Stop
from vfsl.data import check_labels
from vfsl.data.checks import check_choice, check_count, check_share
from vfsl.errors import ConfigError
from vfsl.progress import OnEvent
from vfsl.record import StepRecord

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


class Recording(Completable, Protocol):
    """A federation that keeps a record of all parties' steps, as a simulation does."""

    @property
    def steps(self) -> Sequence[StepRecord]: ...

    def adopt(self, step: StepRecord) -> None: ...


@dataclass
class FedPSG:
    """Complete one party's columns for the other party's remaining rows.

    Columns that the given party's columns can predict go to VFPU-M, the others to a method that is
    local at the missing party.

    Parameters
    ----------
    tau : float or "auto", optional
        Route by association: columns with μ > τ, strictly, are predicted. "auto" takes the τ that
        is best on held-out common rows. Without it columns are routed by their cross-validated
        skill.
    low : str or callable
        For the other columns: "auto" (mean and mode, unless a direct model of the given party's
        columns or one of ``methods`` is better out of fold), a name of `vfsl.completion.available`,
        or a function that makes a completer, such as ``lambda: Ensemble(["gain", "tvae"])``.
    methods : sequence of str or callable
        Local methods that "auto" tries as well.
    base : str, Pair, or sequence of those
        The federated estimator of VFPU-M; of several the best of each column is taken.
    alpha, k, confidence, context, stop
        As in `VFPUM`.
    rounds : int, optional
        As in `VFPUM`: 1 by default, 10 in the papers' preset. Each round shows the missing party
        one more prediction per remaining row and column.
    remainder : {"predict", "leave"} or a local method
        Cells that never got a pseudo-label: the last model's prediction (their round is 0), left
        missing, or that method's.
    aggregate : {"mean", "max", "top-k"}
        How associations with all given columns become μ. The mean, as in the seeds, rarely
        passes 0.5.
    shrink : bool, optional
        Draw predictions towards the mean by as much as held-out rows ask for.
    folds : int
    miss : float
        The share of truth that intervals and class sets may leave out.
    shift : {"auto", "none"}
        Weigh intervals where the remaining rows differ from the common ones, or never ask.
    preset : {"default", "seed"}
        What parameters that are not given stand for: what measured best, or the seeds'.
    """

    tau: float | str | None = None
    low: Method = "auto"
    methods: Sequence[Method] = ()
    base: str | Pair | Sequence[str | Pair] = "linear"
    alpha: float = 0.8
    k: float = 0.1
    rounds: int | None = None
    confidence: str | None = None
    context: str | None = None
    remainder: Method = "predict"
    aggregate: Literal["mean", "max", "top-k"] = "mean"
    shrink: bool | None = None
    folds: int = 5
    miss: float = 0.1
    shift: str = "auto"
    stop: Stop | None = None
    preset: str = "default"

    def fit_complete(
        self,
        fed: Recording,
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
            Hears an `Event` when work on a column, or on several together, begins; must pickle if
            the federation runs on processes.

        Returns
        -------
        Completion
        """
        settings, before = self.settings(), len(fed.steps)
        started = time.perf_counter()
        work = Completing(settings, fed, given, missing, state or {}, on_event)
        work.check_parties()
        check_labels(fed.tables, (given, missing))
        if fed.plan is not None:
            check_pair(given, missing, fed.plan.parties)
        done = work.complete()
        together = sum(step.seconds for step in fed.steps[before:])
        details = {"given": given, "missing": missing, **picture(done)}
        # What the missing party did alone, and what came of it all.
        fed.adopt(
            StepRecord(
                "completion",
                {"given": given, "missing": missing, **settings.plain()},
                time.perf_counter() - started - together,
                metrics={
                    "columns": len(done.columns),
                    "rows": len(done.ids),
                    **details["verdicts"],
                },
                notes=done.notes,
                details=details,
            )
        )
        return done

    def settings(self) -> Settings:
        """The parameters, checked, with what the preset says where one was not given."""
        check_choice("FedPSG", "preset", self.preset, tuple(PRESETS))
        check_choice("FedPSG", "shift", self.shift, ("auto", "none"))
        check_count("FedPSG", "folds", self.folds, 2)
        check_share("FedPSG", "miss", self.miss)
        several = isinstance(self.base, Sequence) and not isinstance(self.base, str)
        bases: Any = self.base if several else [self.base]
        if not len(bases):
            raise ConfigError("The base parameter of FedPSG must name at least one estimator.")
        made = Settings(
            tau=self._tau(),
            low=self.low,
            methods=tuple(self.methods),
            bases=tuple(make_pair(base) for base in bases),
            alpha=self.alpha,
            k=self.k,
            rounds=self._preset("rounds"),
            confidence=self._preset("confidence"),
            context=self._preset("context"),
            remainder=self.remainder,
            aggregate=self.aggregate,
            shrink=self._preset("shrink"),
            folds=self.folds,
            miss=self.miss,
            shift=self.shift,
            stop=self.stop,
        )
        made.model(made.bases[0], made.rounds).check()
        return made

    def _preset(self, name: str) -> Any:
        value = getattr(self, name)
        return PRESETS[self.preset][name] if value is None else value

    def _tau(self) -> float | str | None:
        tau: float | str | None = self._preset("tau")
        if isinstance(tau, str) and tau != "auto":
            raise ConfigError(
                f"The tau parameter of FedPSG must be a number from 0 to 1 or 'auto'. Got {tau!r} "
                "instead."
            )
        if tau is not None and tau != "auto":
            check_share("FedPSG", "tau", tau)
        return tau
