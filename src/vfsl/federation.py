"""A federation on one machine: a site per party, the steps that they played, and their ledger.

Sites get their own table and a channel, as they would between organisations; this module only
arranges them. What one party must not see never passes through another party's site here.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl import rows
from vfsl.align import Limits, Normalise, RowPlan, RowShare
from vfsl.align.state import NO_CAP, note_missing_caps
from vfsl.channel import CHANNELS, Channel, Transcript, run_together
from vfsl.crypto import SCHEMES
from vfsl.data import PartyTable
from vfsl.data.checks import check_party_name, counted
from vfsl.data.findings import declare_label
from vfsl.draws import FIXED, SYSTEM, PrivateSeed, public_rng
from vfsl.errors import ConfigError
from vfsl.parts import Part, Roles, no_rows
from vfsl.progress import Event, OnEvent, Watch
from vfsl.record import Flow, PartyFacts, RunRecord, StepRecord, fingerprint, versions
from vfsl.report import write_page
from vfsl.showing import show_table
from vfsl.site import (
    AlignmentTerms,
    Outcome,
    Play,
    Site,
    Standing,
    Terms,
    make_records,
    merge_outcomes,
)
from vfsl.values import Array

__all__ = ["Event", "Federation", "OnEvent", "register_renderer", "simulate"]

Renderer = Callable[[RunRecord, Path], None]
_renderers: dict[str, Renderer] = {".html": write_page}  # by suffix


def simulate(
    tables: Mapping[str, Any],
    *,
    id: str | list[str] | Mapping[str, str | list[str]] = "id",
    labels: Mapping[str, str | None] | None = None,
    kinds: Mapping[str, Mapping[str, str]] | None = None,
    missing: str | Mapping[str, str] | None = None,
    scheme: str = "auto",
    security: int = 128,
    seed: int = 0,
    on: str = "memory",
    key_holder: str = "K",
    on_event: OnEvent | None = None,
    private: Mapping[str, PrivateSeed] | None = None,
    keep_views: bool = False,
) -> Federation:
    """A federation of tables, every party on this machine, by the code that organisations run.

    Parameters
    ----------
    tables : mapping of party name to DataFrame (pandas or polars), Arrow table or PartyTable
    id : str, list of str, or mapping by party
        The id column; a list for composite ids.
    labels : mapping of party to column, optional
        Columns that are labels: never used as features, and they may have unknown cells. None
        says that no column of the party is a label, whatever one looks like.
    kinds : mapping of party to {column: "numeric" | "categorical"}, optional
        Kinds that differ from the inferred ones.
    missing : {"impute", "mean", "zero", "drop"} or mapping by party, optional
        What becomes of missing feature cells; see `PartyTable.treat_missing`.
    scheme : {"auto", "plain", "shares", "paillier", "bfv"}
        How numbers are encrypted. "auto" picks by the kind of model, and never "plain".
    security : {128, 112}
        Security level of keys, in bits.
    seed : int
        Fixes all draws: those that everybody may know and, since nothing needs protection here,
        every party's private draws and the row order.
    on : {"memory", "processes"}
        Parties as threads, or as processes of their own.
    key_holder : str
        Name of the party that holds the secret key.
    on_event : callable, optional
        Told of progress; ``vfsl.show_progress()`` shows it in a notebook or a terminal.
    private : mapping of party to PrivateSeed, optional
        Private seeds that the parties of a deployment kept, to repeat its run together.
    keep_views : bool
        Keep what each party sees of every step, for `vfsl.audit.audit_federation`.

    Returns
    -------
    Federation
    """
    if len(tables) < 2:
        raise ConfigError(f"Two parties are needed; only {', '.join(tables) or 'none'} was given.")
    for party in tables:
        check_party_name("The name of a party", party)
    made = {
        party: (declare_label(table, labels[party]) if labels and party in labels else table)
        if isinstance(table, PartyTable)
        else PartyTable.from_frame(
            table,
            party=party,
            id=id[party] if isinstance(id, Mapping) else id,
            label=((labels or {})[party] or False) if party in (labels or {}) else None,
            kinds=dict((kinds or {}).get(party, {})),
        )
        for party, table in tables.items()
    }
    by_party = dict.fromkeys(made, missing) if isinstance(missing, str) else missing
    for what, named in (("labels", labels), ("kinds", kinds), ("missing", by_party)):
        for party in named or {}:
            if party not in made:
                raise ConfigError(_unknown_party(f"The {what} parameter names", party, made))
    for party, how in (by_party or {}).items():
        made[party] = made[party].treat_missing(how)
    return Federation(
        made,
        scheme=scheme,
        security=security,
        seed=seed,
        on=on,
        key_holder=key_holder,
        on_event=on_event,
        private=private,
        keep_views=keep_views,
    )


@dataclass(frozen=True, eq=False)
class Scene:
    """One step as an audit looks at it: what each party saw, and which rows it was about."""

    transcript: Transcript
    standing: Mapping[str, Standing]  # after the step
    tables: Mapping[str, PartyTable]
    records: tuple[StepRecord, ...]


class Federation:
    """A site per party, an alignment of their rows, and a record of all steps.

    Made by `simulate`.

    Attributes
    ----------
    sites : dict of Site
        By party; the key holder's is one of them.
    """

    def __init__(
        self,
        tables: Mapping[str, PartyTable],
        *,
        scheme: str = "auto",
        security: int = 128,
        seed: int = 0,
        on: str = "memory",
        key_holder: str = "K",
        on_event: OnEvent | None = None,
        keep_views: bool = False,
        private: Mapping[str, PrivateSeed] | None = None,
    ) -> None:
        for party in (*tables, key_holder):
            check_party_name("The name of a party", party)
        if key_holder in tables:
            raise ConfigError(
                f"{key_holder} is reserved for the key holder, who has no table; rename the party, "
                "or choose another key_holder."
            )
        if scheme != "auto" and scheme not in SCHEMES:
            raise ConfigError(
                f"The scheme must be one of {['auto', *SCHEMES]}. Got {scheme!r} instead."
            )
        self._in_this_process = CHANNELS.find(on).shares_memory
        self.terms = Terms(tuple(tables), key_holder, scheme, security, seed)
        self._transcripts = [Transcript()]  # of the last step, in all choices of rows
        self.scenes: list[Scene] = []  # of all steps, where views are kept
        self._on = on
        self._listener = None if on_event is None else Watch(on_event)
        self._keep_views = keep_views
        self._drawn_by_system = private is not None
        self.sites = {
            party: Site(
                party,
                self.terms,
                PrivateSeed.of_simulation(party, seed) if private is None else private[party],
                tables.get(party),
                alignment=AlignmentTerms(Limits(asked=NO_CAP), seeded_order=True),
                on_event=self._listener if self._in_this_process else None,
            )
            for party in self.terms.everyone
        }
        self._steps: list[StepRecord] = []
        self._run_id = secrets.token_hex(8)
        self._created = datetime.now(UTC).isoformat(timespec="seconds")
        self._fingerprint_keys = {party: secrets.token_bytes(32) for party in tables}

    @classmethod
    def of_one(cls, table: PartyTable, **settings: Any) -> Federation:
        """A party alone, for predictions by its own columns: all its rows, nobody to align with.

        Parameters
        ----------
        table : PartyTable
            The label holder's; see `vfsl.read_table`.
        **settings
            Of `Federation`, such as ``on_event``.
        """
        fed = cls({table.party: table}, **settings)
        rows = np.sort(fed.sites[table.party].ids().rows).astype(np.int64)
        share = RowShare(table.party, secrets.token_hex(8), rows, no_rows())
        fed.plan = RowPlan({table.party: share})
        return fed

    def __repr__(self) -> str:
        sizes = ", ".join(f"{party} {len(table):,} rows" for party, table in self.tables.items())
        aligned = "not aligned" if self.plan is None else f"{len(self.plan.overlap):,} common rows"
        return f"<Federation of {sizes}; {aligned}; {len(self._steps)} steps>"

    def _repr_html_(self) -> str:
        """A line per party, in a notebook."""
        shares = {} if self.plan is None else self.plan.shares
        lines = [
            (
                party,
                len(table),
                len(table.columns),
                len(shares[party].overlap) if party in shares else "–",
            )
            for party, table in self.tables.items()
        ]
        title = f"Federation; {counted(len(self._steps), 'step')} done"
        return show_table(title, ("party", "rows", "columns", "common rows"), lines)

    # ---- steps --------------------------------------------------------------------------------

    def play(
        self,
        play: Play,
        *,
        own: Mapping[str, Mapping[str, Any]] | None = None,
        parties: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Let every party play its side of a step together; what they record is added here.

        Parameters
        ----------
        play : callable
            Called as ``play(site, channel, **own)`` at every party. On processes it must pickle.
        own : mapping of party to keyword arguments, optional
            What only that party is given.
        parties : sequence of str, optional
            Those that take part; all, with the key holder, by default.

        Returns
        -------
        dict by party
            What each party ended up with.
        """
        chosen = self.terms.everyone if parties is None else parties
        transcript = Transcript(keep_views=self._keep_views, listen=self._listener)
        self._transcripts[:] = [transcript]
        for party in chosen:
            self.sites[party].outcomes = []
        players = {
            party: partial(_take_part, play, self.sites[party], dict((own or {}).get(party, {})))
            for party in chosen
        }
        try:
            played = run_together(players, on=self._on, transcript=transcript)
        except BaseException:
            if self._listener is not None:
                self._listener.give_up()
            raise
        for party, (_, standing, outcomes) in played.items():
            site, drawn = self.sites[party], standing.drawn.copy()
            standing.drawn = site.standing.drawn  # one count for all choices of rows
            standing.drawn |= drawn  # the larger count of each purpose
            site.standing, site.outcomes = standing, outcomes
        together = merge_outcomes({party: outcomes for party, (*_, outcomes) in played.items()})
        records = make_records([self._with_cautions(one) for one in together], transcript)
        self._steps += records
        if self._keep_views:
            standing = {party: copy(site.standing) for party, site in self.sites.items()}
            self.scenes.append(Scene(transcript, standing, self.tables, tuple(records)))
        return {party: result for party, (result, *_) in played.items()}

    def align(
        self,
        *parties: str,
        protocol: str = "blind-rsa",
        hub: str | None = None,
        hide_sizes: bool = False,
        normalise: Normalise | None = None,
        duplicates: str = "error",
        empty: str = "error",
        limits: Limits | None = None,
        state: Mapping[str, Path | str] | None = None,
    ) -> RowPlan:
        """Find the rows that parties have in common, by private set intersection.

        Parameters
        ----------
        *parties : str
            Two or more parties; all of them by default.
        protocol : {"blind-rsa", "ecdh", "aided"}
            "aided" is the fastest by far and needs the key holder's help, which sees no id; see
            docs/align.md when to choose which.
        hub : str, optional
            The party that asks the others and sets the common order; by default the last one.
        hide_sizes : bool
            With "aided": fill lists up and add decoys, so that the key holder learns neither how
            long they are nor how many ids are common.
        normalise : Normalise, optional
            How ids are made comparable.
        duplicates : {"error", "first"}
            Refuse ids that become equal by normalisation, or keep the first row of each.
        empty : {"error", "drop"}
            Refuse ids that become empty by normalisation, or leave their rows out.
        limits : Limits, optional
            What each party allows: questions per period, least overlap. By default nobody's
            questions are capped here, and the record says where organisations would have refused.
        state : mapping of party to folder, optional
            Where a party keeps its key, finished values and the count of questions, to resume or
            re-align later.

        Returns
        -------
        RowPlan
        """
        chosen = self._check_chosen("align", parties)
        if hub is not None and hub not in chosen:
            raise ConfigError(f"The hub must be one of {', '.join(chosen)}. Got {hub!r} instead.")
        options = {"normalise": normalise, "duplicates": duplicates, "empty": empty}
        self.set_alignment(limits, state, options)
        self.play(
            partial(rows.align, parties=chosen, protocol=protocol, hub=hub, hide_sizes=hide_sizes)
        )
        return self._aligned()

    def count_common(
        self,
        *parties: str,
        hide_sizes: bool = False,
        normalise: Normalise | None = None,
        duplicates: str = "error",
        empty: str = "error",
        limits: Limits | None = None,
        state: Mapping[str, Path | str] | None = None,
    ) -> int:
        """How many ids parties have in common; nobody learns which. The key holder helps.

        The parameters are those of `align`, whose protocol is "aided" here.
        """
        chosen = self._check_chosen("count_common", parties)
        options = {"normalise": normalise, "duplicates": duplicates, "empty": empty}
        self.set_alignment(limits, state, options)
        told = self.play(partial(rows.count_common, parties=chosen, hide_sizes=hide_sizes))
        return int(told[chosen[0]])

    def _check_chosen(self, method: str, parties: tuple[str, ...]) -> tuple[str, ...]:
        """The parties to compare, all by default."""
        chosen = parties or tuple(self.tables)
        for party in chosen:
            self._check_party(f"{method} was asked for", party)
        if len(set(chosen)) < 2 or len(set(chosen)) != len(chosen):
            raise ConfigError(
                f"{method} needs two or more different parties. Got {chosen} instead."
            )
        return chosen

    def mark(
        self,
        *,
        positives: str,
        label_holder: str,
        protocol: str = "blind-rsa",
        limits: Limits | None = None,
        state: Mapping[str, Path | str] | None = None,
    ) -> RowPlan:
        """Mark the label holder's aligned rows: +1 if the positive holder knows them, else −1.

        The label holder asks with its aligned rows only; nothing returns to the positive holder and
        no row is dropped.

        Parameters
        ----------
        positives : str
            The party whose ids are known positives.
        label_holder : str
            The aligned party that receives the marks.
        protocol, limits, state
            As in `align`.

        Returns
        -------
        RowPlan
            The plan, with ``plan[label_holder].marks``.
        """
        plan = self._aligned()
        self._check_party("The positives parameter names", positives)
        if positives in plan.parties or label_holder not in plan.parties:
            raise ConfigError(
                f"The label holder must be aligned and the positive holder must not. Got "
                f"label_holder={label_holder!r} and positives={positives!r}; aligned are "
                f"{', '.join(plan.parties)}."
            )
        self.set_alignment(limits, state)
        self.play(
            partial(rows.mark, positives=positives, label_holder=label_holder, protocol=protocol),
            parties=(positives, label_holder, self.terms.key_holder),
        )
        return self._aligned()

    def set_alignment(
        self,
        limits: Limits | None = None,
        state: Mapping[str, Path | str] | None = None,
        id_options: Mapping[str, Any] | None = None,
    ) -> None:
        """How the parties take part in set intersections from now on; ids as before by default."""
        for party, site in self.sites.items():
            site.alignment = replace(
                site.alignment,
                limits=limits or Limits(asked=NO_CAP),
                state=(state or {}).get(party),
                id_options=site.alignment.id_options if id_options is None else id_options,
            )

    def save_plan(self, folder: str | Path) -> None:
        """Keep the alignment: each party's share in its own folder, bound to its id list."""
        for party in self._aligned().parties:
            site = self.sites[party]
            site.rows().save(Path(folder) / party, site.ids())

    def load_plan(
        self, folder: str | Path, *parties: str, normalise: Normalise | None = None
    ) -> RowPlan:
        """Take up an alignment that `save_plan` kept; refused if a party's ids have changed.

        Parameters
        ----------
        folder : str or Path
        *parties : str
            The parties of that alignment; all by default.
        normalise : Normalise, optional
            As in the alignment.
        """
        self.set_alignment(id_options={"normalise": normalise})
        chosen = parties or tuple(self.tables)
        ids = {party: self.sites[party].ids() for party in chosen}
        self.plan = RowPlan({p: RowShare.load(Path(folder) / p, p, ids[p]) for p in chosen})
        return self._aligned()

    def with_rows(
        self, plan: RowPlan, tables: Mapping[str, PartyTable] | None = None
    ) -> Federation:
        """The same federation with another choice of rows; its steps go into the same record.

        Parameters
        ----------
        plan : RowPlan
        tables : mapping of party to PartyTable, optional
            What the plan's rows are rows of, where that is not the parties' own tables.
        """
        other = copy(self)
        other.sites = {
            party: site.with_rows(None, (tables or {}).get(party))
            for party, site in self.sites.items()
        }
        other.plan = plan
        return other

    def apart(self, *, quiet: bool = False) -> Federation:
        """A federation with the same rows whose steps stand in a record of their own.

        Its parties go on with private draws of their own, so that several can run at the same
        time. `adopt` takes their steps over.

        Parameters
        ----------
        quiet : bool
            Nobody hears how far it is, so that a worker process can have it.
        """
        other = copy(self)
        other._steps, other._transcripts = [], []  # a transcript has a lock, which no process gets
        other._listener = None if quiet else self._listener
        other.sites = {
            party: replace(
                site,
                private=site.draw_seed(),
                standing=replace(site.standing, drawn=Counter()),
                outcomes=[],
                on_event=None if quiet else site.on_event,
            )
            for party, site in self.sites.items()
        }
        return other

    def keeping(
        self,
        state: Mapping[str, Path | str] | None = None,
        on_event: OnEvent | None = None,
    ) -> Federation:
        """The same federation whose parties keep unfinished work, and tell how far they are.

        Parameters
        ----------
        state : mapping of party to folder, optional
            Where a party keeps finished parts of a step: the same step goes on from there.
        on_event : callable, optional
            Hears an `Event` when a part begins, where parties run in this process.
        """
        other = copy(self)
        if on_event is not None:
            other._listener = Watch(on_event)
        listener = other._listener if self._in_this_process else None
        other.sites = {
            party: replace(
                site,
                folder=Path(state[party]) if state and party in state else site.folder,
                on_event=listener,
            )
            for party, site in self.sites.items()
        }
        return other

    def adopt(self, step: StepRecord) -> None:
        """Take over the record of a step that an earlier attempt of the same job finished."""
        self._steps.append(step)

    # ---- what the parties have ----------------------------------------------------------------

    @property
    def tables(self) -> dict[str, PartyTable]:
        """The parties' tables."""
        return {party: site.table for party, site in self.sites.items() if site.table is not None}

    @property
    def plan(self) -> RowPlan | None:
        """The rows that the parties have in common, once aligned."""
        shares = {
            party: self.sites[party].standing.rows
            for party in self.sites[self.key_holder].standing.aligned
        }
        found = {party: share for party, share in shares.items() if share is not None}
        return RowPlan(found) if found else None

    @plan.setter
    def plan(self, plan: RowPlan | None) -> None:
        aligned = () if plan is None else plan.parties
        for party, site in self.sites.items():
            share = plan[party] if plan is not None and party in aligned else None
            site.standing = replace(site.standing, rows=share, aligned=aligned)

    @property
    def key_holder(self) -> str:
        return self.terms.key_holder

    @property
    def seed(self) -> int:
        return self.terms.seed

    @property
    def security(self) -> int:
        return self.terms.security

    def roles(self, label_holder: str, work: str = "linear") -> Roles:
        """Roles with that label holder; the other aligned parties hold features."""
        self._aligned()
        self._check_party("The label names", label_holder)
        return self.sites[label_holder].roles(label_holder, work)

    def parts(self, label: tuple[str, str], weights: Array | None = None) -> dict[str, Part]:
        """The aligned rows of every party; label and weights go to the label holder only."""
        self._aligned()
        self._check_party("The label names", label[0])
        found = {
            party: site.part(label, weights if party == label[0] else None)
            for party, site in self.sites.items()
        }
        return {party: part for party, part in found.items() if part is not None}

    def share(self, party: str) -> RowShare:
        """One party's part of the row plan."""
        return self._aligned()[party]

    def rng(self, purpose: str) -> np.random.Generator:
        """Draws that every party may know, fixed by the seed."""
        return public_rng(self.seed, purpose)

    def private_rng(self, party: str, purpose: str) -> np.random.Generator:
        """Draws that a party hides from the others."""
        return self.sites[party].private_rng(purpose)

    # ---- what happened ------------------------------------------------------------------------

    @property
    def transcript(self) -> Transcript:
        """The messages of the last step."""
        return self._transcripts[0]

    @property
    def record(self) -> RunRecord:
        """Everything that was run so far."""
        facts = {
            party: PartyFacts(len(table), len(table.columns), self._fingerprint(party, table))
            for party, table in self.tables.items()
        }
        return RunRecord(
            run=self._run_id,
            created=self._created,
            seed=self.seed,
            scheme=self.terms.scheme,
            parties=facts,
            steps=tuple(self._steps),
            versions=versions(),
            private_draws=SYSTEM if self._drawn_by_system else FIXED,
        )

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The records of the steps so far."""
        return tuple(self._steps)

    @property
    def ledger(self) -> pd.DataFrame:
        """What left each party so far: one line per step, sender, receiver and message."""
        columns = list(Flow.__dataclass_fields__)
        lines = [asdict(flow) for step in self._steps for flow in step.flows]
        return pd.DataFrame(lines, columns=columns)

    def report(self, path: str | Path) -> Path:
        """Write the report of everything run so far; the format follows the suffix."""
        path = Path(path)
        if path.suffix not in _renderers:
            known = ", ".join(sorted(_renderers))
            raise ConfigError(f"No report format for {path.suffix!r}; known are {known}.")
        _renderers[path.suffix](self.record, path)
        return path

    # ---- internals ----------------------------------------------------------------------------

    def _with_cautions(self, outcome: Outcome) -> Outcome:
        """How questions about ids differ here from those between organisations, as notes."""
        if outcome.name not in ("align", "mark"):
            return outcome
        facts, notes = outcome.settings, list(outcome.notes)
        lists = {party: self.sites[party].ids() for party in facts.get("parties", ())}
        if outcome.name == "align":
            askers = [facts["hub"]] if "hub" in facts else facts["parties"]  # a helper: all ask
            asked = {party: len(lists[party]) for party in askers}
        else:
            askers, positives = [facts["label_holder"]], facts["positives"]
            asked = {party: len(self.sites[party].rows().overlap) for party in askers}
            lists[positives] = self.sites[positives].ids()
        for asks, count in asked.items():
            for party, ids in lists.items():
                terms = self.sites[party].alignment
                if party != asks:
                    notes += note_missing_caps(asks, count, ids, terms.limits, terms.state)
        return replace(outcome, notes=tuple(dict.fromkeys(notes)))

    def _fingerprint(self, party: str, table: PartyTable) -> str:
        content = pd.util.hash_pandas_object(table.frame, index=False).to_numpy().tobytes()
        ids = "\x1f".join(map(str, table.ids)).encode()
        return fingerprint(self._fingerprint_keys[party], ids, content)

    def _aligned(self) -> RowPlan:
        plan = self.plan
        if plan is None:
            raise ConfigError("The parties are not aligned yet: call align first.")
        return plan

    def _check_party(self, what: str, party: str) -> None:
        if party not in self.tables:
            raise ConfigError(_unknown_party(what, party, self.tables))


def _take_part(
    play: Play, site: Site, own: Mapping[str, Any], channel: Channel
) -> tuple[Any, Standing, list[Outcome]]:
    """One party's side, and how it stands afterwards; a process brings that back."""
    result = play(site, channel, **own)
    return result, site.standing, site.outcomes


def register_renderer(suffix: str, renderer: Renderer) -> None:
    """Make `Federation.report` write files of that suffix."""
    _renderers[suffix] = renderer


def _unknown_party(what: str, party: str, known: Mapping[str, Any]) -> str:
    return f"{what} party {party!r}, which has no table; the parties are {', '.join(known)}."
