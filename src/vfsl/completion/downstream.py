"""Ways to train on common and completed rows, all judged on held-out common rows.

Holds   the given party: its columns and the label, for common and remaining rows; the missing
        party: its columns for common rows, and completed ones for the others; the key holder: the
        secret key, no data.
Learns  the given party: what the trees show a label holder; for the weighted way also how sure each
        of its remaining rows was completed, in tenths. The missing party: what trees show a feature
        holder.

Each way trains one model for each fold and one for all rows, in the same rounds: rows of a fold,
which the given party draws and hides, weigh nothing in its model. The label holder of trees knows
the scores of all training rows, so held-out scores need no message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from vfsl.channel import Channel, expect_array
from vfsl.completion.bases import of_model
from vfsl.completion.calibrating import draw_parts
from vfsl.completion.selection import Floats, Places
from vfsl.completion.sides import Side
from vfsl.data import PartyTable
from vfsl.draws import draw_by_number
from vfsl.errors import ConfigError, DataError
from vfsl.estimators.trees import TreeModel
from vfsl.parts import ModelShare, Part, Roles
from vfsl.values import Array, Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "confidence": Disclosure(
        np.ndarray, "how sure each of the receiver's remaining rows was completed, in tenths"
    ),
}


# A numeric label with more values is a number to be predicted, not a class.
_MOST_CLASSES = 20


@dataclass(frozen=True)
class Way:
    """One way to train.

    Attributes
    ----------
    name : str
    fill : str or None
        What the missing party's columns are on remaining rows: "nothing", "mean", "completed",
        "gated" (completed where the verdict allows, else nothing), "drawn" (completed by draws in
        place of means); None: they take no part.
    rest : bool
        Whether remaining rows train.
    weighted : bool
        Whether remaining rows weigh as much as they were surely completed.
    blends : bool
        Whether it may be a part of the blend.
    """

    name: str
    fill: str | None
    rest: bool = True
    weighted: bool = False
    blends: bool = True


WAYS = (
    # Few rows make a poor part of a blend; it is trained to be shown.
    Way("common rows only", "nothing", rest=False, blends=False),
    Way("own columns only", None),
    Way("missing stays missing", "nothing"),
    Way("mean and mode", "mean"),
    Way("completed", "completed"),
    Way("completed, weighted", "completed", weighted=True),
    Way("completed where it pays", "gated"),
    Way("completed by draws", "drawn"),
)


@dataclass(eq=False)
class Trained:
    """One way after training, at one party; held-out scores only at the label holder.

    Attributes
    ----------
    held : array (common rows, outputs)
        Scores of each common row by the model that did not train on it.
    """

    share: ModelShare | None
    held: Floats | None = None


@dataclass
class Downstream:
    """Train all ways of a list.

    Parameters
    ----------
    base : TreeModel
    ways : sequence of Way
    folds : int
    """

    name: ClassVar[str] = "downstream"

    base: TreeModel
    ways: Sequence[Way] = WAYS
    folds: int = 5

    def train(
        self,
        channel: Channel,
        side: Side | None,
        *,
        roles: Roles,
        rng: np.random.Generator,
        target: Array | None = None,
        tables: Mapping[str, PartyTable] | None = None,
        confidence: Floats | None = None,
    ) -> dict[str, Trained]:
        """One party's side.

        Parameters
        ----------
        side : Side or None
            At the given party its table and rows; at the missing party only its counts matter.
        target : array
            At the given party: the label of all rows, common ones first.
        tables : mapping of fill to PartyTable
            At the missing party: its columns for all rows, by what the remaining ones carry.
        confidence : array
            At the missing party: of the remaining rows.
        """
        channel = channel.within(self.name, DISCLOSURES)
        leads = channel.me == roles.label_holder
        sure = self._shared_confidence(channel, side, roles, confidence)
        done: dict[str, Trained] = {}
        random = draw_by_number(rng)
        parts = draw_parts(0 if side is None else len(side.overlap), self.folds, rng)
        for number, way in enumerate(self.ways):
            here = channel.within(f"way {number}")
            alone = way.fill is None
            if alone and not leads:
                done[way.name] = Trained(None)
                continue
            who = replace(roles, feature_holders=()) if alone else roles
            part = None
            if side is not None:
                part = self._part(way, side, target, tables, sure, parts if leads else None)
            share = self.base.train(here, part, roles=who, rng=random(number))
            done[way.name] = Trained(share, self._held(share, parts) if leads else None)
        return done

    def score_rows(
        self,
        channel: Channel,
        part: Part | None,
        trained: Mapping[str, Trained],
        *,
        roles: Roles,
        ways: Sequence[str],
    ) -> dict[str, Floats]:
        """Scores of new rows that both parties have, by way; only at the label holder."""
        channel = channel.within(self.name, DISCLOSURES)
        leads = channel.me == roles.label_holder
        found: dict[str, Floats] = {}
        for number, way in enumerate(self.ways):
            if way.name not in ways or (way.fill is None and not leads):
                continue
            who = replace(roles, feature_holders=()) if way.fill is None else roles
            share = trained[way.name].share if way.name in trained else None
            here = channel.within(f"way {number}")
            answer = self.base.score_rows(here, part, share, roles=who)
            if answer is not None and share is not None:
                found[way.name] = of_model(answer, share, -1)
        return found

    def _shared_confidence(
        self, channel: Channel, side: Side | None, roles: Roles, confidence: Floats | None
    ) -> Floats | None:
        if not any(way.weighted for way in self.ways) or side is None:
            return None
        leader, other = roles.label_holder, roles.feature_holders[0]
        if channel.me == other:
            if confidence is None:
                raise ConfigError(f"Party {other!r} needs the confidence of its completed rows.")
            # Tenths: less than an eighth of a number of 32 bits.
            channel.release(leader, "confidence in tenths", -(-len(confidence) // 8))
            channel.send(leader, "confidence", np.round(np.clip(confidence, 0, 1), 1))
            return None
        came = channel.receive(other, "confidence")
        shape = (len(side.rest),)
        return expect_array(came, sender=other, name="confidence", holds="float", shape=shape)

    def _part(
        self,
        way: Way,
        side: Side,
        target: Array | None,
        tables: Mapping[str, PartyTable] | None,
        sure: Floats | None,
        parts: Places | None,
    ) -> Part:
        """What a party brings to a way; ``parts`` at the label holder only."""
        common = len(side.overlap)
        if parts is None:
            if tables is None or way.fill is None:
                raise ConfigError("The missing party needs its columns for all rows.")
            table = tables[way.fill]
            return Part(table, np.arange(common if not way.rest else len(table), dtype=np.int64))
        if target is None:
            raise ConfigError("The given party needs the label.")
        rows = side.rows if way.rest else side.overlap
        own = np.ones(len(rows))
        if way.weighted and sure is not None:
            # A row completed with no confidence still has the label holder's own columns.
            own[common:] = 0.1 + 0.9 * sure
        return Part(
            side.table, rows, target[: len(rows)], own[:, None] * self._weights(len(rows), parts)
        )

    def _weights(self, rows: int, parts: Places) -> Floats:
        """(rows, folds + 1): 0 where a row is held out of a fold's model; the last has all rows."""
        weights = np.ones((rows, self.folds + 1))
        weights[np.arange(len(parts)), parts] = 0.0
        return weights

    def _held(self, share: ModelShare | None, parts: Places) -> Floats | None:
        if share is None or share.scores is None:
            return None
        common = len(parts)
        every = [of_model(share.scores[:common], share, part) for part in range(self.folds)]
        return np.asarray(np.stack(every)[parts, np.arange(common)])


def label_of(
    table: PartyTable, column: str, rows: Array
) -> tuple[Array, Literal["classes", "regression"]]:
    """The label of these rows as trees take it, and the task: "classes" or "regression"."""
    values = table.column(column).iloc[rows]
    if values.isna().any():
        raise DataError(
            f"Label {column!r} of party {table.party} is unknown in {int(values.isna().sum()):,} "
            "rows; completion is judged with known labels only, so leave those rows out."
        )
    if pd.api.types.is_numeric_dtype(values.dtype) and values.nunique() > _MOST_CLASSES:
        return values.to_numpy(dtype=np.float64), "regression"
    return np.array(values.tolist(), dtype=object), "classes"
