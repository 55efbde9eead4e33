"""What federated estimators share: roles, parts of the data, the federation they run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from vfsl.channel import Channel
from vfsl.data import PartyTable
from vfsl.errors import ConfigError
from vfsl.estimators.seen import Seen
from vfsl.values import Array

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Roles:
    """Who plays which role, under which scheme; the same for all parties of a step."""

    label_holder: str
    feature_holders: tuple[str, ...]
    key_holder: str
    scheme: str = "bfv"
    security: int = 128

    def __post_init__(self) -> None:
        if len({*self.everyone}) != len(self.everyone):
            raise ConfigError(f"Each role needs a party of its own. Got {self.everyone} instead.")

    @property
    def data_holders(self) -> tuple[str, ...]:
        """All parties with columns, in the fixed order in which sums are formed."""
        return (self.label_holder, *self.feature_holders)

    @property
    def everyone(self) -> tuple[str, ...]:
        return (*self.data_holders, self.key_holder)


@dataclass(frozen=True)
class Part:
    """What one party brings to a step: its own table, and which rows in the common order."""

    table: PartyTable
    rows: Rows
    target: Array | None = None  # only at the label holder
    weights: Array | None = None  # only at the label holder


@dataclass(frozen=True)
class ModelShare:
    """One party's part of a fitted model, which never leaves it; the state is plain JSON values."""

    party: str
    model: str
    state: Mapping[str, Any]
    rounds: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str | None = None
    notes: tuple[str, ...] = field(default=())
    # The label holder's scores of the training rows, where the protocol shows them anyway, and at
    # every party which rows these were; neither is saved with the model.
    scores: Array | None = field(default=None, repr=False, compare=False)
    seen: Seen | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, without what is known of training rows."""
        return {
            "party": self.party,
            "model": self.model,
            "state": dict(self.state),
            "rounds": list(self.rounds),
            "stop_reason": self.stop_reason,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ModelShare:
        """The share whose ``to_dict`` this is; completion once kept shares without their rounds."""
        listed = {name: tuple(content[name]) for name in ("rounds", "notes") if name in content}
        return cls(**{**content, **listed})


def places_in_training(
    shares: Mapping[str, ModelShare], parts: Mapping[str, Part], label_holder: str
) -> Rows:
    """For each row of the parts its place among the training rows, −1 for a new row.

    A row is known if the label holder has kept its score and every party has the features that it
    had at that place: the score is then the same. Each party looks at its own rows only; who asks
    for a prediction learns nothing but which rows are to be scored.
    """
    held = shares[label_holder]
    rows = parts[label_holder].rows
    if held.scores is None or held.seen is None:
        return np.full(len(rows), -1)
    places = held.seen.places(rows)
    for party, part in parts.items():
        seen = shares[party].seen if party in shares else None
        if seen is None or len(seen.rows) != len(held.seen.rows):
            return np.full(len(rows), -1)
        places = np.where(seen.same(places, part.table, part.rows), places, -1)
    return places


def scores_with_kept(held: ModelShare, places: Rows, answer: Array | None) -> Array:
    """Scores of all rows: kept ones of training rows, and for the others what was answered."""
    if held.scores is None:
        return np.asarray(answer)
    scores, new = np.asarray(held.scores[places]), places < 0
    if new.any():
        scores[new] = answer
    return scores


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
