"""What federated estimators share: roles, parts of the data, the federation they run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from vfsl.channel import Channel
from vfsl.data import PartyTable
from vfsl.parts import ModelShare, Part, Roles
from vfsl.values import Array


class Estimator(Protocol):
    """A federated estimator as methods that build on one see it: two roles of every party.

    ``scores_are`` says what its scores mean: "logit", "probability" or "value".
    """

    name: ClassVar[str]
    scores_are: ClassVar[str]

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator | None = None,
    ) -> ModelShare | None:
        """One party's side of training; its share, None at a party that holds no data."""
        ...

    def score_rows(
        self, channel: Channel, part: Part | None, share: ModelShare | None, *, roles: Roles
    ) -> Array | None:
        """One party's side of scoring; the scores at the label holder, None elsewhere."""
        ...


class StepReport(Protocol):
    """What a federation keeps of a finished step."""

    def __call__(
        self,
        *,
        metrics: Mapping[str, Any] | None = None,
        rounds: tuple[Mapping[str, Any], ...] = (),
        stop_reason: str | None = None,
        notes: tuple[str, ...] = (),
        details: Mapping[str, Any] | None = None,
    ) -> None: ...


class Federated(Protocol):
    """The little that estimators need of a federation."""

    def roles(self, label_holder: str, work: str) -> Roles:
        """Roles with that label holder, under the scheme for that kind of work."""
        ...

    def parts(self, label: tuple[str, str], weights: Array | None = None) -> dict[str, Part]:
        """The aligned rows of every party; label and weights go to the label holder only."""
        ...

    def private_rng(self, party: str, purpose: str) -> np.random.Generator:
        """Draws of one party for one purpose that no other party can repeat."""
        ...

    def run(
        self, step: str, roles: Mapping[str, Callable[[Channel], Any]], settings: Mapping[str, Any]
    ) -> tuple[dict[str, Any], StepReport]:
        """Run roles together as one step; their results, and where to report the outcome."""
        ...


class WithTables(Federated, Protocol):
    """A federation that also has the tables of the parties that take part here."""

    @property
    def tables(self) -> Mapping[str, PartyTable]: ...
