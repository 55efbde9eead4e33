"""Training on common and completed rows: ways to do it, and the rows for a later training.

Holds   the given party: its columns and the label, for common and remaining rows; the missing
        party: its columns for common rows, and completed ones for the others; the key holder: the
        secret key, no data.
Learns  the given party: what the trees show a label holder; for weighted rows also how sure each
        of its remaining rows was completed, in tenths. The missing party: what trees show a feature
        holder.

Each way trains one model for each fold and one for all rows, in the same rounds: rows of a fold,
which the given party draws and hides, weigh nothing in its model. The label holder of trees knows
the scores of all training rows, so held-out scores need no message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from vfsl import store
from vfsl.align import RowShare
from vfsl.channel import Channel, expect_array
from vfsl.completion.bases import scores_of_model
from vfsl.completion.calibration import draw_folds
from vfsl.completion.columns import fill_by_baseline
from vfsl.completion.completed import Completion, whole_table
from vfsl.completion.ensembles import blank
from vfsl.data import PartyTable, read_table, write_table
from vfsl.draws import draw_by_number
from vfsl.errors import ConfigError, DataError
from vfsl.estimators.trees import TreeModel
from vfsl.parts import ModelShare, Part, Roles, no_rows
from vfsl.site import Site
from vfsl.values import Array, Disclosure, Disclosures, Floats, Integers

Task = Literal["classes", "regression"]

DISCLOSURES: Disclosures = {
    "confidence": Disclosure(
        np.ndarray, "how sure each of the receiver's remaining rows was completed, in tenths"
    ),
}
WEIGHING = "confidence of completed rows"
# Of the internal table that later steps train on; no party can have a column of that name.
_ROW = "\x00row"
# A numeric label with more values is a number to be predicted, not a class.
_MOST_CLASSES = 20

# ---- rows for a later training ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CompletedRows:
    """What the missing party needs to train on completed rows.

    Attributes
    ----------
    table : PartyTable
        Its columns for the common rows and, completed, for the remaining ones.
    confidence : array (remaining rows,)
        How surely each remaining row was completed.
    """

    table: PartyTable
    confidence: Floats


def save_completed_rows(completion: Completion, folder: Path) -> None:
    """Keep what a later step trains on, at the missing party."""
    whole = whole_table(completion.common, completion.columns)
    write_table(replace(whole, id_columns=(_ROW,)), folder / "rows.parquet")
    sure = completion.row_confidence.to_numpy(dtype=np.float64)
    store.write_arrays(folder / "confidence.npz", {"confidence": sure})


def load_completed_rows(folder: Path, party: str) -> CompletedRows:
    """What `save_completed_rows` kept."""
    table = read_table(folder / "rows.parquet", party=party, id=_ROW, label=False)
    return CompletedRows(table, store.read_arrays(folder / "confidence.npz")["confidence"])


def weigh_completed_rows(
    site: Site, channel: Channel, given: str, missing: str, rows: CompletedRows | None = None
) -> Floats | None:
    """The missing party tells how sure its rows are; the given party gets weights of all rows.

    ``rows`` are the missing party's; nothing is sent at a party that is neither of the two.
    """
    if site.me not in (given, missing):
        return None
    here = channel.within(WEIGHING, DISCLOSURES)
    weights = None
    with site.records(WEIGHING, here, {"given": given, "missing": missing}) as outcome:
        if rows is not None and site.me == missing:
            tell_confidence(here, given, rows.confidence)
        else:
            share = site.rows()
            sure = hear_confidence(here, missing, len(share.rest))
            weights = row_weights(len(share.overlap), sure)
            outcome.metrics = {"completed rows": len(share.rest)}
    return weights


def completed_site(
    site: Site, channel: Channel, given: str, missing: str, rows: CompletedRows | None = None
) -> tuple[Site, Floats | None]:
    """The party's site with common and completed rows as common ones, and row weights.

    Parameters
    ----------
    rows : CompletedRows, optional
        At the missing party.

    Returns
    -------
    Site
        The same one at a party that is neither of the two.
    array or None
        Weights of the rows, at the given party.
    """
    weights = weigh_completed_rows(site, channel, given, missing, rows)
    if site.me not in (given, missing):
        return site, None
    table = None if rows is None else rows.table
    return site.with_rows(make_completed_share(site.rows(), table), table), weights


def make_completed_share(share: RowShare, table: PartyTable | None = None) -> RowShare:
    """A party's common and remaining rows as common ones; the missing party's are in the table."""
    if table is None:
        rows = np.concatenate([share.overlap, share.rest])
    else:
        rows = np.arange(len(table), dtype=np.int64)
    return RowShare(share.party, share.plan, rows, no_rows())


def row_weights(common: int, confidence: Floats) -> Floats:
    """1 for common rows; for completed ones from 0.1, since the given columns are real, to 1."""
    return np.concatenate([np.ones(common), 0.1 + 0.9 * np.clip(confidence, 0.0, 1.0)])


def tell_confidence(channel: Channel, given: str, confidence: Floats) -> None:
    """The missing party's side."""
    # Tenths: less than an eighth of a number of 32 bits.
    channel.release(given, "confidence in tenths", -(-len(confidence) // 8))
    channel.send(given, "confidence", np.round(np.clip(confidence, 0.0, 1.0), 1))


def hear_confidence(channel: Channel, missing: str, rows: int) -> Floats:
    """The given party's side: one number for each of its remaining rows."""
    came = channel.receive(missing, "confidence")
    return expect_array(came, sender=missing, name="confidence", holds="float", shape=(rows,))


# ---- ways to train ------------------------------------------------------------------------------


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


def make_fills(completion: Completion, rng: np.random.Generator) -> dict[str, PartyTable]:
    """The missing party's columns for all rows, by what remaining rows carry."""
    columns, common = completion.columns, completion.common
    means = {
        name: fill_by_baseline(column.target, len(completion.ids), completion.folds, "low", "mean")
        for name, column in columns.items()
    }
    draws = {name: column.draw(rng) for name, column in columns.items()}
    completed = whole_table(common, columns)
    weak = [name for name, column in columns.items() if not column.helps]
    return {
        "completed": completed,
        "mean": whole_table(common, means),
        "drawn": whole_table(common, draws),
        "nothing": _leave_missing(completed, len(common), list(columns)),
        "gated": _leave_missing(completed, len(common), weak),
    }


def _leave_missing(table: PartyTable, common: int, names: Sequence[str]) -> PartyTable:
    """The table with these columns missing on remaining rows."""
    frame = table.frame.copy()
    for name in names:
        rest = blank(frame[name], len(frame) - common)
        known = frame[name].iloc[:common].astype(rest.dtype)
        frame[name] = pd.concat([known, rest], ignore_index=True)
    return PartyTable(table.party, table.ids, frame, dict(table.kinds))


def read_label(table: PartyTable, column: str, rows: Array) -> tuple[Array, Task]:
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

    Attributes
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
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator,
        fills: Mapping[str, PartyTable] | None = None,
        confidence: Floats | None = None,
    ) -> dict[str, Trained]:
        """One party's side.

        Parameters
        ----------
        part : Part or None
            At the given party its table, rows and label; at the missing party only the number of
            common rows matters.
        fills : mapping of fill to PartyTable
            At the missing party: its columns for all rows, by what the remaining ones carry.
        confidence : array
            At the missing party: of the remaining rows.
        """
        channel = channel.within(self.name, DISCLOSURES)
        leads = channel.me == roles.label_holder
        sure = self._share_confidence(channel, part, roles, confidence)
        done: dict[str, Trained] = {}
        random = draw_by_number(rng)
        folds = draw_folds(0 if part is None else len(part.rows), self.folds, rng)
        for number, way in enumerate(self.ways):
            if way.fill is None and not leads:
                done[way.name] = Trained(None)
                continue
            mine = None
            if part is not None and leads:
                mine = self._label_part(way, part, sure, folds)
            elif part is not None:
                mine = _feature_part(way, part, fills)
            here = channel.within(f"way {number}")
            share = self.base.train(here, mine, roles=_roles_of(way, roles), rng=random(number))
            done[way.name] = Trained(share, self._hold_out(share, folds) if leads else None)
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
            share = trained[way.name].share if way.name in trained else None
            here = channel.within(f"way {number}")
            answer = self.base.score_rows(here, part, share, roles=_roles_of(way, roles))
            if answer is not None and share is not None:
                found[way.name] = scores_of_model(answer, share, -1)
        return found

    def _share_confidence(
        self, channel: Channel, part: Part | None, roles: Roles, confidence: Floats | None
    ) -> Floats | None:
        if part is None or not any(way.weighted for way in self.ways):
            return None
        given, missing = roles.label_holder, roles.feature_holders[0]
        if channel.me == given:
            return hear_confidence(channel, missing, len(part.rest))
        if confidence is None:
            raise ConfigError(f"Party {missing!r} needs the confidence of its completed rows.")
        tell_confidence(channel, given, confidence)
        return None

    def _label_part(self, way: Way, part: Part, sure: Floats | None, folds: Integers) -> Part:
        """What the given party brings; a row held out of a fold's model weighs nothing in it."""
        if part.target is None or part.rest_target is None:
            raise ConfigError("The given party needs the label.")
        rows = part.all_rows if way.rest else part.rows
        target = np.concatenate([part.target, part.rest_target])[: len(rows)]
        own = np.ones(len(rows))
        if way.weighted and sure is not None:
            own = row_weights(len(part.rows), sure)
        weights = np.ones((len(rows), self.folds + 1))  # the last model has all rows
        weights[np.arange(len(folds)), folds] = 0.0
        return Part(part.table, rows, target, own[:, None] * weights)

    def _hold_out(self, share: ModelShare | None, folds: Integers) -> Floats | None:
        if share is None or share.scores is None:
            return None
        common = len(folds)
        every = [scores_of_model(share.scores[:common], share, fold) for fold in range(self.folds)]
        return np.asarray(np.stack(every)[folds, np.arange(common)])


def _feature_part(way: Way, part: Part, fills: Mapping[str, PartyTable] | None) -> Part:
    """What the missing party brings."""
    if fills is None or way.fill is None:
        raise ConfigError("The missing party needs its columns for all rows.")
    table = fills[way.fill]
    rows = len(table) if way.rest else len(part.rows)
    return Part(table, np.arange(rows, dtype=np.int64))


def _roles_of(way: Way, roles: Roles) -> Roles:
    return replace(roles, feature_holders=()) if way.fill is None else roles
