"""A federation on one machine: party tables, the steps that were run on them, and their ledger.

Roles get their own table and a channel, as they would between organisations; this module only
arranges them. What one party must not see never passes through another party's role here.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl.align import (
    Alignment,
    Caution,
    IdList,
    Limits,
    Normalise,
    Progress,
    RowPlan,
    RowShare,
    alignment_roles,
    mark_client,
    mark_server,
    prepare_ids,
)
from vfsl.align.limits import NO_CAP, uncapped
from vfsl.channel import Player, Transcript, run_together
from vfsl.crypto import SCHEMES, choose_scheme
from vfsl.data import Kind, PartyTable
from vfsl.data.checks import check_party_name
from vfsl.data.ids import id_parts
from vfsl.data.labels import declare_label
from vfsl.draws import FIXED, SYSTEM, PrivateSeed, public_rng
from vfsl.errors import ConfigError
from vfsl.estimators.base import Part, Roles, StepReport
from vfsl.progress import Event, OnEvent, Watch
from vfsl.record import Flow, PartyFacts, RunRecord, StepRecord, fingerprint, versions
from vfsl.values import Array

__all__ = ["Event", "Federation", "OnEvent", "register_renderer", "simulate"]

Renderer = Callable[[RunRecord, Path], None]
# By suffix; an import path is loaded on first use, so that nothing here imports upwards.
_renderers: dict[str, Renderer | str] = {".html": "vfsl.report:write_page"}


def simulate(
    tables: Mapping[str, pd.DataFrame | PartyTable],
    *,
    id: str | list[str] | Mapping[str, str | list[str]] = "id",
    labels: Mapping[str, str | None] | None = None,
    kinds: Mapping[str, Mapping[str, str]] | None = None,
    scheme: str = "auto",
    security: int = 128,
    seed: int = 0,
    on: str = "memory",
    key_holder: str = "K",
    on_event: OnEvent | None = None,
    private: Mapping[str, PrivateSeed] | None = None,
) -> Federation:
    """A federation of tables, every party on this machine, by the code that organisations run.

    Parameters
    ----------
    tables : mapping of party name to DataFrame or PartyTable
    id : str, list of str, or mapping by party
        The id column; a list for composite ids.
    labels : mapping of party to column, optional
        Columns that are labels: never used as features, and they may have unknown cells. None
        says that no column of the party is a label, whatever one looks like.
    kinds : mapping of party to {column: "numeric" | "categorical"}, optional
        Kinds that differ from the inferred ones.
    scheme : {"auto", "plain", "paillier", "bfv"}
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
    private : mapping of party to PrivateSeed, optional
        Private seeds that the parties of a deployment kept, to repeat its run together.

    Returns
    -------
    Federation
    """
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
    for what, named in (("labels", labels), ("kinds", kinds)):
        for party in named or {}:
            if party not in made:
                raise ConfigError(_unknown_party(f"The {what} parameter names", party, made))
    return Federation(
        made,
        scheme=scheme,
        security=security,
        seed=seed,
        on=on,
        key_holder=key_holder,
        on_event=on_event,
        private=private,
    )


class Federation:
    """Party tables, an alignment of their rows, and a record of all steps. Made by `simulate`.

    Attributes
    ----------
    tables : dict of PartyTable
    plan : RowPlan or None
        The rows that the parties have in common, once aligned.
    transcript : Transcript
        The messages of the last step.
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
        if len(tables) < 2:
            raise ConfigError(
                f"A federation needs at least two parties. Got {len(tables)} instead."
            )
        for party in (*tables, key_holder):
            check_party_name("The name of a party", party)
        if key_holder in tables:
            raise ConfigError(
                f"The key holder must have no data, but {key_holder!r} also has a table; "
                "choose another key_holder name."
            )
        if scheme != "auto" and scheme not in SCHEMES:
            raise ConfigError(
                f"The scheme must be one of {['auto', *SCHEMES]}. Got {scheme!r} instead."
            )
        if on not in ("memory", "processes"):
            raise ConfigError(f"Parties run on 'memory' or 'processes'. Got {on!r} instead.")
        self.tables = dict(tables)
        self.plan: RowPlan | None = None
        self.security = security
        self.seed = seed
        self.key_holder = key_holder
        self.transcript = Transcript()
        self._scheme = scheme
        self._on = on
        self._on_event = on_event
        self._keep_views = keep_views
        self._private = private
        self._steps: list[StepRecord] = []
        self._step = ""
        self._id_options: dict[str, Any] = {}
        self._run_id = secrets.token_hex(8)
        self._created = datetime.now(UTC).isoformat(timespec="seconds")
        self._fingerprint_keys = {party: secrets.token_bytes(32) for party in tables}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{party} {len(table):,} rows" for party, table in self.tables.items())
        aligned = "not aligned" if self.plan is None else f"{len(self.plan.overlap):,} common rows"
        return f"<Federation of {sizes}; {aligned}; {len(self._steps)} steps>"

    # ---- steps --------------------------------------------------------------------------------

    def align(
        self,
        *parties: str,
        protocol: str = "blind-rsa",
        hub: str | None = None,
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
        protocol : {"blind-rsa", "ecdh"}
        hub : str, optional
            The party that asks the others and sets the common order; by default the last one.
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
        chosen = parties or tuple(self.tables)
        for party in chosen:
            self._check_party("align was asked for", party)
        if len(set(chosen)) < 2 or len(set(chosen)) != len(chosen):
            raise ConfigError(f"align needs two or more different parties. Got {chosen} instead.")
        hub = chosen[-1] if hub is None else hub
        if hub not in chosen:
            raise ConfigError(f"The hub must be one of {', '.join(chosen)}. Got {hub!r} instead.")
        cautions: list[str] = []
        how = self._alignments(chosen, protocol, limits, state, cautions)
        self._id_options = {"normalise": normalise, "duplicates": duplicates, "empty": empty}
        ids = {party: self._ids(party) for party in chosen}
        for party in chosen:
            if party != hub:
                cautions += uncapped(hub, len(ids[hub]), ids[party], limits, state)
        roles = alignment_roles(ids, hub, how, self.rng("row order"))
        settings = {"protocol": protocol, "parties": list(chosen), "hub": hub}
        shares, report = self.run("align", roles, settings)
        self.plan = RowPlan({party: shares[party] for party in chosen})
        report(metrics=_flat(self.plan.counts()), notes=tuple(cautions))
        return self.plan

    def save_plan(self, folder: str | Path) -> None:
        """Keep the alignment: each party's share in its own folder, bound to its id list."""
        plan = self._aligned()
        for party in plan.parties:
            plan[party].save(Path(folder) / party, self._ids(party))

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
        self._id_options = {"normalise": normalise}
        chosen = parties or tuple(self.tables)
        shares = {p: RowShare.load(Path(folder) / p, p, self._ids(p)) for p in chosen}
        self.plan = RowPlan(shares)
        return self.plan

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
        other.plan = plan
        other.tables = dict(self.tables if tables is None else tables)
        return other

    def adopt(self, step: StepRecord) -> None:
        """Take over the record of a step that an earlier attempt of the same job finished."""
        self._steps.append(step)

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
        cautions: list[str] = []
        how = self._alignments((positives, label_holder), protocol, limits, state, cautions)
        known = self._ids(positives)
        cautions += uncapped(label_holder, len(plan.overlap), known, limits, state)
        roles: dict[str, Player] = {
            positives: partial(
                mark_server,
                client=label_holder,
                ids=known,
                how=how[positives],
            ),
            label_holder: partial(
                mark_client,
                holder=positives,
                ids=self._ids(label_holder),
                share=plan[label_holder],
                how=how[label_holder],
            ),
        }
        settings = {"protocol": protocol, "positives": positives, "label_holder": label_holder}
        results, report = self.run("mark", roles, settings)
        self.plan = plan.with_share(results[label_holder])
        report(metrics=_flat(self.plan.counts()), notes=tuple(cautions))
        return self.plan

    def run(
        self, step: str, roles: Mapping[str, Player], settings: Mapping[str, Any]
    ) -> tuple[dict[str, Any], StepReport]:
        """Run roles together as one step of this federation.

        Returns
        -------
        results : dict by party
        report : function
            Call it with metrics, rounds and the stop reason; it writes the step's record.
        """
        self._step = step
        started = time.perf_counter()
        watch = Watch(step, settings, self._on_event) if self._on_event is not None else None
        self.transcript = Transcript(keep_views=self._keep_views, listen=watch)
        self._emit(step, "start")
        results = run_together(roles, on=self._on, transcript=self.transcript)
        self._emit(step, "end")
        return results, self._reporter(step, settings, time.perf_counter() - started)

    # ---- what steps ask of a federation -------------------------------------------------------

    def roles(self, label_holder: str, work: str = "linear") -> Roles:
        """Roles with that label holder; the other aligned parties hold features.

        ``work`` picks the scheme where it was left to "auto".
        """
        plan = self._aligned()
        self._check_party("The label names", label_holder)
        if label_holder not in plan.parties:
            raise ConfigError(
                f"Party {label_holder!r} holds the label but was not aligned; aligned are "
                f"{', '.join(plan.parties)}."
            )
        others = tuple(party for party in plan.parties if party != label_holder)
        scheme = choose_scheme(work) if self._scheme == "auto" else self._scheme
        return Roles(label_holder, others, self.key_holder, scheme, self.security)

    def parts(self, label: tuple[str, str], weights: Array | None = None) -> dict[str, Part]:
        """The aligned rows of every party; label and weights go to the label holder only."""
        plan = self._aligned()
        holder, column = label
        self._check_party("The label names", holder)
        parts = {
            party: Part(self.tables[party], plan[party].overlap)
            for party in plan.parties
            if party != holder
        }
        table = self.tables[holder]
        target = table.column(column).iloc[plan[holder].overlap]
        if table.kinds[column] is not Kind.LABEL:
            table = table.without([column])
        values = np.array(target.astype(object).where(target.notna(), None), dtype=object)
        parts[holder] = Part(table, plan[holder].overlap, target=values, weights=weights)
        return parts

    def share(self, party: str) -> RowShare:
        """One party's part of the row plan."""
        return self._aligned()[party]

    def plays(self, party: str) -> bool:
        """Whether that party's role runs here: always, on one machine."""
        return True

    def rng(self, purpose: str) -> np.random.Generator:
        """Draws that every party may know, fixed by the seed."""
        return public_rng(self.seed, purpose)

    def private_rng(self, party: str, purpose: str) -> np.random.Generator:
        """Draws that a party hides from the others; here its seed follows from the simulation's.

        A further step of that name draws anew: the same noise twice would cancel out.
        """
        again = sum(step.name in (purpose, f"train {purpose}") for step in self._steps)
        purpose = f"{purpose} {again + 1}" if again else purpose
        if self._private is not None:
            return self._private[party].rng(purpose)
        return PrivateSeed.of_simulation(party, self.seed).rng(purpose)

    # ---- what happened ------------------------------------------------------------------------

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
            scheme=self._scheme,
            parties=facts,
            steps=tuple(self._steps),
            versions=versions(),
            private_draws=FIXED if self._private is None else SYSTEM,
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
        renderer = _renderers[path.suffix]
        if isinstance(renderer, str):
            module, name = renderer.split(":")
            renderer = getattr(import_module(module), name)
        renderer(self.record, path)
        return path

    # ---- internals ----------------------------------------------------------------------------

    def _ids(self, party: str) -> IdList:
        table = self.tables[party]
        parts = id_parts(table.ids, len(table.id_columns))
        return prepare_ids(party, *parts, **self._id_options)

    def _alignments(
        self,
        parties: Sequence[str],
        protocol: str,
        limits: Limits | None,
        state: Mapping[str, Path | str] | None,
        cautions: list[str],
    ) -> dict[str, Alignment]:
        """How each party takes part; events reach us only from parties in this process."""

        def hear(event: Progress | Caution) -> None:
            if isinstance(event, Caution):
                cautions.append(event.text)
            else:
                self._emit(self._step, f"{event.party} {event.stage}", event.done, event.total)

        return {
            party: Alignment(
                protocol=protocol,
                security=self.security,
                limits=limits or Limits(asked=NO_CAP),
                state=(state or {}).get(party),
                on_event=hear if self._on == "memory" else None,
            )
            for party in parties
        }

    def _reporter(self, step: str, settings: Mapping[str, Any], seconds: float) -> StepReport:
        flows, shown = self.transcript.flows(step), self.transcript.shown(step)

        def report(
            *,
            metrics: Mapping[str, Any] | None = None,
            rounds: Sequence[Mapping[str, Any]] = (),
            stop_reason: str | None = None,
            notes: Sequence[str] = (),
            details: Mapping[str, Any] | None = None,
        ) -> None:
            done = StepRecord(
                step,
                settings,
                seconds,
                metrics or {},
                tuple(rounds),
                stop_reason,
                tuple(notes),
                flows,
                details or {},
                shown,
            )
            self._steps.append(done)

        return report

    def _fingerprint(self, party: str, table: PartyTable) -> str:
        content = pd.util.hash_pandas_object(table.frame, index=False).to_numpy().tobytes()
        ids = "\x1f".join(map(str, table.ids)).encode()
        return fingerprint(self._fingerprint_keys[party], ids, content)

    def _aligned(self) -> RowPlan:
        if self.plan is None:
            raise ConfigError("The parties are not aligned yet: call align first.")
        return self.plan

    def _check_party(self, what: str, party: str) -> None:
        if party not in self.tables:
            raise ConfigError(_unknown_party(what, party, self.tables))

    def _emit(self, step: str, stage: str, done: int = 0, total: int | None = None) -> None:
        if self._on_event is not None:
            self._on_event(Event(step, stage, done, total))


def register_renderer(suffix: str, renderer: Renderer) -> None:
    """Make `Federation.report` write files of that suffix."""
    _renderers[suffix] = renderer


def _unknown_party(what: str, party: str, known: Mapping[str, Any]) -> str:
    return f"{what} party {party!r}, which has no table; the parties are {', '.join(known)}."


def _flat(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Counts by name; nested ones as "rest of A"."""
    flat: dict[str, Any] = {}
    for name, value in counts.items():
        if isinstance(value, Mapping):
            flat |= {f"{name} of {party}": count for party, count in value.items()}
        else:
            flat[name] = value
    return flat
