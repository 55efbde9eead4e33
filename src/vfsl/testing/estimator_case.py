"""What checks of estimators stand on: a small table cut between parties, run in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl.channel import Channel, Transcript, run_together
from vfsl.data import PartyTable
from vfsl.draws import PrivateSeed
from vfsl.errors import ConfigError
from vfsl.estimators.base import StepReport
from vfsl.parts import ModelShare, Part, Roles, Rows
from vfsl.values import Array

# Writes a fitted model into a folder, and reads it back.
Saved = Callable[[Any, Path], Any]
LABEL = ("C", "goal")
KEYS = "K"
# Classes in the order of their names, from little to much of what causes them; none: numbers.
TARGETS: dict[str, tuple[str, ...]] = {
    "two classes": ("ill-of-c", "well-of-c"),
    "three classes": ("ill-of-c", "so-so-of-c", "well-of-c"),
    "numbers": (),
}
# Names that can be told from everything that a share or a message has of its own.
COLUMNS = {
    "C": ("c-height", "c-weight", "c-town"),
    "B": ("b-income", "b-visits", "b-hobby", "b-debt"),
}
# The same columns in the same order, in the hands of others.
MOVED = {"C": (*COLUMNS["C"], "b-income", "b-visits"), "B": ("b-hobby", "b-debt")}
THREE = {"C": COLUMNS["C"], "B": ("b-income", "b-visits"), "D": ("b-hobby", "b-debt")}


def pooled_columns(rows: int, seed: int = 0) -> tuple[pd.DataFrame, Array]:
    """All parties' columns side by side, some cells missing, and a number that they cause."""
    source = np.random.default_rng(seed)
    common = source.normal(size=rows)
    town = source.choice(["c-north", "c-south", "c-west"], rows)
    hobby = source.choice(["b-chess", "b-rowing", "b-stamps"], rows, p=[0.5, 0.3, 0.2])
    numbers = {
        name: np.round(common + source.normal(size=rows), 6)
        for name in ("c-height", "c-weight", "b-income", "b-debt")
    }
    visits = source.integers(0, 5, rows)
    cause = 1.5 * numbers["c-height"] + 2.0 * numbers["b-income"] - numbers["b-debt"]
    cause = cause + 1.5 * (town == "c-north") + 1.5 * (hobby == "b-rowing") + 0.5 * visits
    frame = pd.DataFrame({**numbers, "b-visits": visits, "c-town": town, "b-hobby": hobby})
    frame["c-weight"] = frame["c-weight"].mask(source.random(rows) < 0.1)
    frame["b-hobby"] = frame["b-hobby"].mask(source.random(rows) < 0.1)
    order = [name for party in ("C", "B") for name in COLUMNS[party]]
    return frame[order], np.asarray(cause + 0.5 * source.normal(size=rows))


@dataclass
class Trial:
    """A federation of a check: who has which columns, which rows take part, in which order."""

    frame: pd.DataFrame
    target: Array
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: COLUMNS)
    rows: Rows | None = None
    seed: int = 0
    scheme: tuple[str, int] = ("plain", 128)
    transcript: Transcript | None = None
    results: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def tables(self) -> dict[str, PartyTable]:
        ids = [f"person-{row}" for row in range(len(self.frame))]
        return {
            party: PartyTable.from_frame(
                self.frame[list(names)].assign(id=ids), party=party, id="id"
            )
            for party, names in self.columns.items()
        }

    def roles(self, label_holder: str, work: str) -> Roles:
        others = tuple(party for party in self.columns if party != label_holder)
        return Roles(label_holder, others, KEYS, *self.scheme)

    def parts(self, label: tuple[str, str], weights: Array | None = None) -> dict[str, Part]:
        rows = np.arange(len(self.frame)) if self.rows is None else self.rows
        return {
            party: Part(table, rows, self.target[rows], weights)
            if party == label[0]
            else Part(table, rows)
            for party, table in self.tables.items()
        }

    def private_rng(self, party: str, purpose: str) -> np.random.Generator:
        return PrivateSeed.of_simulation(party, self.seed).rng(purpose)

    def run(
        self, step: str, roles: Mapping[str, Callable[[Channel], Any]], settings: Mapping[str, Any]
    ) -> tuple[dict[str, Any], StepReport]:
        self.results = run_together(roles, transcript=self.transcript)
        return self.results, _unheard


def _unheard(**outcome: Any) -> None:
    """Checks look at results, not at reports."""


class EstimatorCase:
    """An estimator to be checked: ``fit(fed, label, weights)``, ``decision_function(fed)``,
    ``predict(fed)``, of a classifier ``predict_proba(fed)``, and ``shares_`` by party.

    Parameters
    ----------
    make : callable
        Makes a fresh, unfitted estimator with settings small enough to fit many times.
    target : {"two classes", "three classes", "numbers"}
    draws : bool
        Whether training draws at random. Where it does not, neither the seed nor the order of rows
        may matter.
    weights : bool
        Whether ``fit`` takes row weights.
    tolerance : float
        How far answers may differ, as a share of their deviation, where only rounding differs:
        other parties hold a column, rows come in another order.
    left_out : float, optional
        The same for rows with a weight of 0 against rows that are not there. None: they differ,
        since encodings are learned from all rows.
    saved : callable, optional
        ``saved(model, folder)`` writes a fitted model and returns what it reads back.
    schemes : list of (str, int)
        Schemes and their security under which shares must be those of the plain one, bit for bit.
    rows : int
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        target: str = "two classes",
        draws: bool = False,
        weights: bool = True,
        tolerance: float = 0.0,
        left_out: float | None = None,
        saved: Saved | None = None,
        schemes: Sequence[tuple[str, int]] = (),
        rows: int = 200,
    ) -> None:
        if target not in TARGETS:
            raise ConfigError(
                f"The target parameter of EstimatorCase must be one of {', '.join(TARGETS)}. "
                f"Got {target!r} instead."
            )
        self.make, self.draws, self.weights = make, draws, weights
        self.tolerance, self.left_out, self.saved = tolerance, left_out, saved
        self.schemes = tuple(schemes)
        self.frame, cause = pooled_columns(rows)
        self.classes = TARGETS[target]
        self.target = self._goal(cause)

    def _goal(self, cause: Array) -> Array:
        if not self.classes:
            return np.array((10 * cause + 40).tolist(), dtype=object)
        edges = np.quantile(cause, np.linspace(0.0, 1.0, len(self.classes) + 1)[1:-1] ** 0.7)
        return np.array(self.classes, dtype=object)[np.searchsorted(edges, cause)]

    def other_goal(self, value: Any) -> Any:
        """Another class, or a number far off."""
        if not self.classes:
            return value + 25.0
        return self.classes[self.classes.index(value) - 1]

    def trial(self, **changes: Any) -> Trial:
        """The federation of the case, with some of it otherwise."""
        return Trial(**{"frame": self.frame, "target": self.target, **changes})

    def fit(self, trial: Trial, weights: Array | None = None) -> Any:
        if weights is None:
            return self.make().fit(trial, label=LABEL)
        return self.make().fit(trial, label=LABEL, weights=weights)

    def answer(self, model: Any, trial: Trial) -> Array:
        """Probabilities, or numbers in units of the target."""
        found = model.predict_proba(trial) if self.classes else model.predict(trial)
        return np.asarray(found, dtype=np.float64)

    @cached_property
    def fitted(self) -> Any:
        """Fitted once: checks may score with it, and not fit it again."""
        return self.fit(self.trial())

    @cached_property
    def answers(self) -> Array:
        return self.answer(self.fitted, self.trial())

    def shares(self, model: Any) -> dict[str, dict[str, Any]]:
        shares: dict[str, ModelShare] = model.shares_
        return {party: share.to_dict() for party, share in shares.items()}
