"""What each party saw of a run, by rows: the material of every probe.

A view has what the channel brought to a party and what it could read of it, which the transcripts
of the run kept. The truth that attacks are judged by comes from the parties' tables, which lie
together only where an audit runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vfsl.channel import wire
from vfsl.data import Encoder, Kind, PartyTable
from vfsl.federation import Scene
from vfsl.record import StepRecord
from vfsl.site import Site, Standing
from vfsl.values import Array, Floats

_LEAST_ROWS = 20  # shorter arrays are no views of rows
COMMON = "common"


@dataclass(frozen=True, eq=False)
class RowView:
    """Numbers about rows that a party could read.

    Attributes
    ----------
    what : str
        The message or result, by its declared name.
    values : array (rows, numbers)
    of : str
        "common", or the party of whose remaining rows these are.
    places : array of int
        Which of those rows, by their place in the common order or among the remaining ones.
    senders : tuple of str
        The parties whose rows the numbers tell about.
    step : int
        Which step of the run, from 1.
    line : str
        The line of the ledger.
    """

    what: str
    values: Floats
    of: str
    places: Array
    senders: tuple[str, ...]
    step: int
    line: str


class Case:
    """A run whose views were kept, as all probes look at it."""

    def __init__(
        self, scenes: Sequence[Scene], sites: Mapping[str, Site], results: Path | None = None
    ) -> None:
        if not scenes:
            raise ValueError("an audit needs at least one step whose views were kept")
        self.scenes, self.sites, self.results = list(scenes), dict(sites), results
        self.key_holder = next(iter(sites.values())).terms.key_holder
        self._encoded: dict[int, Floats] = {}

    @cached_property
    def tables(self) -> dict[str, PartyTable]:
        return {p: site.table for p, site in self.sites.items() if site.table is not None}

    @property
    def parties(self) -> list[str]:
        """Those with a table."""
        return list(self.tables)

    def encoded(self, party: str) -> Floats:
        """A party's features as a matrix of standardised numbers and categories, all rows."""
        table = self.tables[party]
        if id(table) not in self._encoded:
            matrix = np.zeros((len(table), 0))
            if table.features:
                matrix = Encoder(missing="impute").fit_transform(table).matrix
            self._encoded[id(table)] = matrix
        return self._encoded[id(table)]

    def common(self, scene: Scene, party: str) -> Array:
        """The party's rows of the common order."""
        share = scene.standing[party].rows
        return np.zeros(0, dtype=np.int64) if share is None else share.overlap

    def rows_of(self, scene: Scene, party: str, view: RowView) -> Floats:
        """A party's encoded columns of a view's rows; no columns where they are not its own."""
        if view.of == COMMON:
            return self.encoded(party)[self.common(scene, party)[view.places]]
        if view.of != party:
            return np.zeros((len(view.places), 0))
        share = scene.standing[party].rows
        rest = np.zeros(0, dtype=np.int64) if share is None else share.rest
        return self.encoded(party)[rest[view.places]]

    def label_of(self, scene: Scene) -> tuple[str, str] | None:
        """The label that a step learned."""
        for record in scene.records:
            if "label" in record.settings and record.name.startswith("train"):
                party, column = record.settings["label"]
                return str(party), str(column)
        return None

    def classes(self, scene: Scene, label: tuple[str, str]) -> Floats:
        """1, 0 or NaN of each common row: the label's more frequent class, or above the median."""
        table = self.tables[label[0]]
        cells = table.column(label[1]).iloc[self.common(scene, label[0])]
        known = cells.notna().to_numpy()
        found = np.full(len(cells), np.nan)
        values = cells[known]
        if values.nunique() > 10 and table.kinds[label[1]] in (Kind.NUMERIC, Kind.LABEL):
            numbers = values.to_numpy(dtype=float)
            found[known] = numbers > np.median(numbers)
        elif known.any():
            found[known] = (values == values.mode().iloc[-1]).to_numpy()
        return found

    # ---- views ----------------------------------------------------------------------------------

    def openings(self, party: str, name: str) -> Iterator[tuple[int, Scene, str, Any]]:
        """(step, scene, scope, values) of what was opened to a party under a name."""
        for step, scene in enumerate(self.scenes, start=1):
            for one in scene.transcript.openings:
                scope, _, what = one.name.rpartition("/")
                if one.party == party and what == name:
                    yield step, scene, scope, one.values

    def messages(self, scene: Scene, party: str, name: str) -> Iterator[tuple[str, Any]]:
        """(sender, value) of the messages of a name that a party received in a step."""
        for sight in scene.transcript.sights:
            if sight.receiver == party and sight.name.rpartition("/")[2] == name:
                yield sight.sender, wire.decode(sight.body)[1]

    def views(self, party: str) -> list[RowView]:
        """All numbers about rows of others that a party could read, in the order of the steps."""
        found = []
        for step, scene in enumerate(self.scenes, start=1):
            for name, values in _list_arrays(scene, party):
                placed = _place(scene, party, len(values))
                if placed is None:
                    continue
                what = name.rpartition("/")[2]
                senders = tuple(
                    dict.fromkeys(
                        one.sender
                        for one in scene.transcript.releases
                        if one.receiver == party and one.about == "columns"
                    )
                )
                numbers = values.reshape(len(values), -1).astype(np.float64)
                line = ledger_line(scene.records, party, what)
                found.append(RowView(what, numbers, *placed, senders, step, line))
        return found


def training_places(standing: Standing) -> Array:
    """Places in the common order that are not held out."""
    every = np.arange(0 if standing.rows is None else len(standing.rows.overlap))
    return every if standing.held_out is None else np.setdiff1d(every, standing.held_out)


def ledger_line(records: Sequence[StepRecord], receiver: str, message: str) -> str:
    """The line of the ledger on a message to a party, or on numbers that it was shown."""
    for record in records:
        for flow in record.flows:
            if flow.receiver == receiver and flow.message == message:
                return f"{record.name}: {flow.sender} → {receiver}: {message} ({flow.fact})"
        for line in record.shown:
            if line.receiver == receiver and line.what == message:
                return f"{record.name}: {line.sender} → {receiver}: {message}"
    return f"{', '.join(record.name for record in records)}: {message}"


def _list_arrays(scene: Scene, party: str) -> Iterator[tuple[str, Array]]:
    """Arrays of numbers that a party could read: opened results, and plain messages."""
    for one in scene.transcript.openings:
        if one.party == party and _is_view(one.values):
            yield one.name, one.values
    for sight in scene.transcript.sights:
        if sight.receiver == party and sight.kind == "plain":
            value = wire.decode(sight.body)[1]
            if _is_view(value) and value.dtype.kind in "fi":
                yield sight.name, value


def _is_view(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim > 0 and len(values) >= _LEAST_ROWS


def _place(scene: Scene, party: str, count: int) -> tuple[str, Array] | None:
    """Which rows an array of so many lines is about: by its length, which parties know too."""
    standing = scene.standing[party]
    for record in scene.records:
        given = str(record.settings.get("given"))
        share = scene.standing[given].rows if given in scene.standing else None
        if share is not None and given != party and len(share.rest) == count:
            return given, np.arange(count)
    if standing.rows is None:
        return None
    evaluates = any(record.name == "evaluate" for record in scene.records)
    every, training = np.arange(len(standing.rows.overlap)), training_places(standing)
    sets = [every, training]
    if standing.held_out is not None:
        sets.insert(0 if evaluates else 2, standing.held_out)
    return next(((COMMON, places) for places in sets if len(places) == count), None)
