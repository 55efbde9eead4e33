"""A site: what one party has in a run. Steps are played by sites over a channel.

``play(step, site, channel)`` is the same code in a notebook, in a job and between organisations;
only who makes the sites differs. A site never holds anything of another party.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vfsl.align import Alignment, Caution, IdList, Limits, RowShare, prepare_ids
from vfsl.channel import Channel, Transcript
from vfsl.crypto import choose_scheme
from vfsl.data import Kind, PartyTable
from vfsl.data.table import split_ids
from vfsl.draws import PrivateSeed, public_rng
from vfsl.errors import ConfigError
from vfsl.parts import Part, Roles, labels_of
from vfsl.progress import Event, OnEvent
from vfsl.record import StepRecord
from vfsl.store import Checkpoints
from vfsl.values import Array


@dataclass(frozen=True)
class Terms:
    """What all parties of a run know of it: who takes part, and under which terms."""

    parties: tuple[str, ...]  # those with a table
    key_holder: str = "K"
    scheme: str = "auto"
    security: int = 128
    seed: int = 0

    @property
    def everyone(self) -> tuple[str, ...]:
        return (*self.parties, self.key_holder)


@dataclass
class Outcome:
    """What a step, or a part of one, adds to a party's record."""

    name: str
    settings: Mapping[str, Any]
    scope: str = ""  # of its messages
    seconds: float = 0.0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    rounds: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str | None = None
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_record(
        self, transcript: Transcript, belongs: Callable[[str], bool] | None = None
    ) -> StepRecord:
        """As a step of the run record, with the messages that belong to it."""
        return StepRecord(
            self.name,
            self.settings,
            self.seconds,
            self.metrics,
            tuple(self.rounds),
            self.stop_reason,
            tuple(self.notes),
            transcript.flows(self.name, belongs),
            self.details,
            transcript.shown(self.name, belongs),
        )


@dataclass(frozen=True)
class AlignmentTerms:
    """How a party takes part in set intersections.

    Attributes
    ----------
    limits : Limits
    state : Path or None
        Where it keeps its key, finished values and the count of questions.
    lasting : bool
        Whether these outlive the run.
    id_options : mapping
        How ids are made comparable, for `prepare_ids`.
    seeded_order : bool
        The job's seed fixes the row order: on one machine only, where nobody is to be kept from it.
    """

    limits: Limits = field(default_factory=Limits)
    state: Path | str | None = None
    lasting: bool = False
    id_options: Mapping[str, Any] = field(default_factory=dict)
    seeded_order: bool = False


@dataclass(frozen=True, eq=False)
class TestRows:
    """Which common rows are held out: a fraction by the job's seed, or those that a party marks.

    Attributes
    ----------
    fraction : float or None
    party : str or None
        The party that marks them.
    marks : array of bool or None
        At that party: which rows of its table are for testing.
    """

    __test__ = False  # pytest takes the name for a test

    fraction: float | None = None
    party: str | None = None
    marks: Array | None = None


@dataclass
class Standing:
    """How far a party is in a run: what a later step, or a later attempt, goes on from.

    Attributes
    ----------
    rows : RowShare or None
        The party's part of the row plan, once it is aligned.
    aligned : tuple of str
        The parties of the last alignment, known to all.
    held_out : array of int or None
        Places in the common order that no step learns from.
    drawn : Counter
        How often the party has drawn for each purpose.
    """

    rows: RowShare | None = None
    aligned: tuple[str, ...] = ()
    held_out: Array | None = None
    drawn: Counter[str] = field(default_factory=Counter)


@dataclass
class Site:
    """What one party has in a run.

    Attributes
    ----------
    me : str
    terms : Terms
    private : PrivateSeed
        The start of its private draws.
    table : PartyTable or None
        None at the key holder.
    standing : Standing
    alignment : AlignmentTerms
    folder : Path or None
        Where this party keeps unfinished work of the current step; None: it keeps nothing.
    results : Path or None
        Where its results go; None: in a notebook nothing is written.
    pages : Path or None
        Where pages go that say nothing of its data, such as a model's settings.
    suffix : str
        Of completed columns: ".csv", ".tsv" or ".parquet".
    form : str
        Of its other results: ".csv" or ".parquet".
    test : TestRows or None
        Which rows the job holds out.
    number : int
        Of the job's step, from 1.
    on_event : callable or None
        Hears how far long work is.
    outcomes : list of Outcome
        What the steps so far add to the record.
    """

    me: str
    terms: Terms
    private: PrivateSeed
    table: PartyTable | None = None
    standing: Standing = field(default_factory=Standing)
    alignment: AlignmentTerms = field(default_factory=AlignmentTerms)
    folder: Path | None = None
    results: Path | None = None
    pages: Path | None = None
    suffix: str = ".csv"
    form: str = ".csv"
    test: TestRows | None = None
    number: int = 0
    on_event: OnEvent | None = None
    outcomes: list[Outcome] = field(default_factory=list)

    # ---- who, and which rows ------------------------------------------------------------------

    @property
    def holds_keys(self) -> bool:
        return self.me == self.terms.key_holder

    def own_table(self) -> PartyTable:
        """The party's table; ConfigError where it has none."""
        if self.table is None:
            raise ConfigError(f"Party {self.me!r} has no table, but the step needs one.")
        return self.table

    def rows(self) -> RowShare:
        """The party's part of the row plan."""
        if self.standing.rows is None:
            raise ConfigError("The parties are not aligned yet: call align first.")
        return self.standing.rows

    def roles(self, label_holder: str, work: str = "linear") -> Roles:
        """Roles with that label holder; the other aligned parties hold features.

        ``work`` picks the scheme where it was left to "auto".
        """
        aligned = self.standing.aligned
        if not aligned:
            raise ConfigError("The parties are not aligned yet: call align first.")
        if label_holder not in aligned:
            raise ConfigError(
                f"Party {label_holder!r} holds the label but was not aligned; aligned are "
                f"{', '.join(aligned)}."
            )
        others = tuple(party for party in aligned if party != label_holder)
        terms = self.terms
        scheme = choose_scheme(work, terms.scheme)
        return Roles(label_holder, others, terms.key_holder, scheme, terms.security)

    def part(
        self, label: tuple[str, str] | None = None, weights: Array | None = None
    ) -> Part | None:
        """The party's aligned and remaining rows; the target at the label holder only.

        None where this party was not aligned. Row weights are the label holder's. Without a column
        for the label there is no target: rows to predict need none.
        """
        if self.table is None or self.standing.rows is None:
            return None
        table, share = self.table, self.standing.rows
        if label is None or label[0] != self.me:
            return Part(table, share.overlap, rest=share.rest)
        column = label[1]
        if column not in table.columns:  # new rows have no label
            return Part(table, share.overlap, rest=share.rest)
        target, others = (labels_of(table, column, rows) for rows in (share.overlap, share.rest))
        if table.kinds[column] is not Kind.LABEL:
            table = table.without([column])
        return Part(table, share.overlap, target, weights, share.rest, others)

    def with_rows(self, rows: RowShare | None, table: PartyTable | None = None) -> Site:
        """The same site with other rows, or another table; draws and records go to both."""
        standing = replace(self.standing, rows=rows)
        return replace(self, standing=standing, table=self.table if table is None else table)

    # ---- draws, checkpoints, progress ---------------------------------------------------------

    def public_rng(self, purpose: str) -> np.random.Generator:
        """Draws that every party may know, fixed by the job's seed."""
        return public_rng(self.terms.seed, purpose)

    def private_rng(self, purpose: str) -> np.random.Generator:
        """Draws that this party hides from the others.

        Asked again for the same purpose it draws anew: the same noise twice would cancel out. A
        step that is done again after a failure repeats its draws.
        """
        self.standing.drawn[purpose] += 1
        again = self.standing.drawn[purpose]
        return self.private.rng(purpose if again == 1 else f"{purpose} {again}")

    def draw_seed(self) -> PrivateSeed:
        """The start of further private draws, none of which is one of this site's own."""
        words = self.private_rng("seed").integers(0, 1 << 32, len(self.private.words))
        return replace(self.private, words=tuple(words.tolist()))

    def checkpoints(self, name: str, *facts: Any) -> Checkpoints:
        """Where this party keeps finished work of a step, bound to facts and to its row plan."""
        if self.folder is None or self.table is None:
            return Checkpoints(None)
        share = self.standing.rows
        bound = [] if share is None else [share.plan, share.overlap, share.rest]
        marks = None if share is None else share.marks
        bound += [] if marks is None else [marks]
        return Checkpoints(self.folder / name.replace(" ", "-"), *bound, *facts)

    def tell(self, step: str, stage: str, done: int = 0, total: int | None = None) -> None:
        """Say how far long work is."""
        if self.on_event is not None:
            self.on_event(Event(step, stage, done, total))

    # ---- alignment ----------------------------------------------------------------------------

    def ids(self) -> IdList:
        """The party's ids, made comparable."""
        table = self.own_table()
        parts = split_ids(table.ids, len(table.id_columns))
        return prepare_ids(self.me, *parts, **self.alignment.id_options)

    def intersection(
        self, step: str, protocol: str, notes: list[str], hide_sizes: bool = False
    ) -> Alignment:
        """How this party takes part in a set intersection; cautions go to ``notes``."""

        def listen(event: Event | Caution) -> None:
            if isinstance(event, Caution):
                notes.append(event.text)
            else:
                self.tell(step, event.stage, event.done, event.total)

        terms = self.alignment
        return Alignment(
            protocol=protocol,
            security=self.terms.security,
            limits=terms.limits,
            state=terms.state,
            lasting=terms.lasting,
            hide_sizes=hide_sizes,
            on_event=listen,
        )

    # ---- going on later -----------------------------------------------------------------------

    def save_standing(self, folder: Path) -> dict[str, Any]:
        """Keep how far the party is: its rows in ``folder``, the rest as plain values."""
        standing = self.standing
        if standing.rows is not None:
            standing.rows.save(folder, self.ids())
        return {
            "plan": "" if standing.rows is None else standing.rows.plan,
            "aligned": list(standing.aligned),
            "held out": None if standing.held_out is None else standing.held_out.tolist(),
            "drawn": dict(standing.drawn),
        }

    def load_standing(self, folder: Path, content: Mapping[str, Any]) -> None:
        """Go on from what `save_standing` kept; refused if the party's ids have changed."""
        held_out = content["held out"]
        self.standing = Standing(
            RowShare.load(folder, self.me, self.ids()) if content["plan"] else None,
            tuple(content["aligned"]),
            None if held_out is None else np.asarray(held_out, dtype=np.int64),
            Counter(content["drawn"]),
        )

    # ---- the record ---------------------------------------------------------------------------

    @contextmanager
    def records(
        self, name: str, channel: Channel, settings: Mapping[str, Any]
    ) -> Iterator[Outcome]:
        """Time a part of a step and add what came of it to the party's record.

        The messages of the part are those that are sent under the channel's scope.
        """
        outcome = Outcome(name, dict(settings), channel.scope)
        started = time.perf_counter()
        self.tell(name, "start", total=settings.get("n_estimators"))
        yield outcome
        outcome.seconds = time.perf_counter() - started
        self.tell(name, "end")
        self.outcomes.append(outcome)


def make_records(outcomes: Sequence[Outcome], transcript: Transcript) -> list[StepRecord]:
    """The outcomes of a step as records, each message in exactly one of them.

    A message belongs to the outcome with the longest scope that its name begins with. What belongs
    to none makes a record of its own: nothing that left a party is missing in the ledger.
    """

    def owner(name: str) -> int:
        found = [at for at, one in enumerate(outcomes) if name.startswith(one.scope)]
        return max(found, key=lambda at: len(outcomes[at].scope), default=-1)

    records = [
        one.to_record(transcript, lambda name, at=at: owner(name) == at)  # type: ignore[misc]
        for at, one in enumerate(outcomes)
    ]
    rest = Outcome("other messages", {}).to_record(transcript, lambda name: owner(name) < 0)
    return [*records, *([rest] if rest.flows or rest.shown else [])]


def merge_outcomes(by_party: Mapping[str, list[Outcome]]) -> list[Outcome]:
    """The parts of a step as all parties together know them, for the record of a simulation.

    Every party records the same parts in the same order; a part that a party does not take part in
    it leaves out.
    """
    merged: dict[tuple[str, str, int], Outcome] = {}
    for outcomes in by_party.values():
        met: Counter[tuple[str, str]] = Counter()
        for one in outcomes:
            key = (one.name, one.scope, met[one.name, one.scope])
            met[one.name, one.scope] += 1
            before = merged.get(key)
            merged[key] = one if before is None else _merge(before, one)
    return list(merged.values())


def _merge(one: Outcome, other: Outcome) -> Outcome:
    return replace(
        one,
        settings={**one.settings, **other.settings},
        seconds=max(one.seconds, other.seconds),
        metrics={**one.metrics, **other.metrics},
        rounds=one.rounds or other.rounds,
        stop_reason=one.stop_reason or other.stop_reason,
        notes=tuple(dict.fromkeys([*one.notes, *other.notes])),
        details={**one.details, **other.details},
    )


Play = Callable[..., Any]  # play(site, channel, **own) at each party
