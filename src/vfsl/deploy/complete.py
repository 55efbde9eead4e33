"""A completion as one party runs it: the missing party leads, the others follow its word.

Holds   the missing party: its table; the given party: its common and remaining rows; the key
        holder: a secret key for each part of the work, no data.
Learns  what the files of completion/ say of each part. Beyond that the missing party: how many
        columns the given one has. The others: which part comes next, and so how many there are.
Completed rows stay at the missing party, by their number among the given party's remaining rows;
only the given party knows whose rows these are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from vfsl import site as sites
from vfsl.align import RowShare
from vfsl.channel import Channel, expect_integer
from vfsl.completion.completed import Completion
from vfsl.completion.completing import CROSS_FIT, DIRECT, SHIFT, VFPU_M, Completing, Settings
from vfsl.completion.picture import picture
from vfsl.completion.sides import Side, check_pair
from vfsl.data import Kind, PartyTable, write_table
from vfsl.deploy.view import Outcome, Site
from vfsl.errors import ConfigError, ProtocolError
from vfsl.estimators.association import Association
from vfsl.job.completing import provenance_by_cell, quality_by_column
from vfsl.job.schema import CompleteStep
from vfsl.parts import Part, Roles
from vfsl.store import Checkpoints
from vfsl.values import Array, Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "size": Disclosure(
        dict, "how many rows that are not common and how many columns the sender has"
    ),
    "next": Disclosure(dict, "which part of the completion comes next, and by which base"),
}
_NO_ADVICE = ("Advice on training with completed columns is given on one machine only.",)
_ASSOCIATION, _END = "association", "end"
_MOST = 1 << 40


def complete_step(site: Site, channel: Channel, step: CompleteStep) -> Outcome:
    """Complete the missing party's columns for the given party's remaining rows."""
    check_pair(step.given, step.missing, site.job.aligned_before(site.number))
    how = step.method().settings()
    settings = {"given": step.given, "missing": step.missing, **how.plain()}
    if site.me == step.missing:
        return _lead(site, channel, step, how, settings)
    if site.me == step.given:
        _write_remaining(site)
    if site.me in (step.given, site.job.run.key_holder):
        _Follower(site, channel, step, how).run()
    return Outcome("complete", settings)


# ---- the missing party --------------------------------------------------------------------------


def _lead(
    site: Site, channel: Channel, step: CompleteStep, how: Settings, settings: Mapping[str, Any]
) -> Outcome:
    fed = Led(site, channel, step)
    state = {site.me: site.state / f"step-{site.number}-complete"}
    done = Completing(how, fed, step.given, step.missing, state).complete()
    fed.end()
    _write_completed(site, done)
    details = {"given": step.given, "missing": step.missing, **picture(done)}
    metrics = {"columns": len(done.columns), "rows": len(done.ids), **details["verdicts"]}
    notes = (*done.notes, *fed.notes, *(_NO_ADVICE if step.label is not None else ()))
    return Outcome("complete", settings, metrics, notes=notes, details=details)


class Led:
    """A federation as the missing party has it: its own table, and of the others their word.

    A step that is run here is announced to the others, who run their own side of it.
    """

    def __init__(self, site: Site, channel: Channel, step: CompleteStep) -> None:
        self._site, self._channel = site, channel
        self._talk = channel.within("lead", DISCLOSURES)
        self._others = (step.given, site.job.run.key_holder)
        self._number = 0
        size = self._talk.receive(step.given, "size")
        rows, columns = (
            expect_integer(size.get(name), sender=step.given, name=name, low=0, high=_MOST)
            for name in ("rows", "columns")
        )
        nobody = np.empty(0, dtype=np.int64)
        rest = np.arange(rows, dtype=np.int64)
        mine = site.share()
        self.tables = {
            step.given: _nameless(step.given, rows, columns),
            site.me: site.own_table(),
        }
        self.plan = {step.given: RowShare(step.given, mine.plan, nobody, rest), site.me: mine}
        self.notes: tuple[str, ...] = ()

    def align(self, *parties: str) -> Any:
        raise ConfigError("Parties of a deployment are aligned by a step of their own.")

    def plays(self, party: str) -> bool:
        return party == self._site.me

    def share(self, party: str) -> RowShare:
        return self.plan[party]

    def roles(self, label_holder: str, work: str) -> Roles:
        return self._site.roles(label_holder, work)

    def parts(self, label: tuple[str, str], weights: Array | None = None) -> dict[str, Part]:
        part = self._site.part(label)
        return {} if part is None else {self._site.me: replace(part, weights=weights)}

    def private_rng(self, party: str, purpose: str) -> np.random.Generator:
        if party != self._site.me:
            raise ConfigError(f"Nobody but {party!r} can draw what {party!r} hides.")
        return self._site.private_rng(purpose)

    def run(
        self, step: str, roles: Mapping[str, Callable[[Channel], Any]], settings: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Any]:
        """Run the own side of a step, after telling the others; the own answer only."""
        self._tell({"step": step, "base": int(settings.get("base", 0))})
        here = self._channel.within(f"part {self._number}")
        self._number += 1
        return {self._site.me: roles[self._site.me](here)}, self._report

    @property
    def key_holder(self) -> str:
        return self._site.job.run.key_holder

    def play(self, play: Callable[..., Any], *, parties: Sequence[str]) -> dict[str, Any]:
        """Play the own side of an association, after telling the others."""
        self._tell({"step": _ASSOCIATION, "base": 0})
        here = self._channel.within(f"part {self._number}")
        self._number += 1
        mine, run = self._site, self._site.job.run
        aligned = tuple(mine.job.aligned_before(mine.number))
        terms = sites.Terms(aligned, run.key_holder, run.scheme, run.security)
        standing = sites.Standing(mine.share(), aligned)
        own = sites.Site(mine.me, terms, mine.private, mine.table, standing)
        return {mine.me: play(own, here)}

    def end(self) -> None:
        self._tell({"step": _END, "base": 0})

    def _tell(self, order: Mapping[str, Any]) -> None:
        for party in self._others:
            self._talk.send(party, "next", dict(order))

    def _report(
        self,
        *,
        metrics: Mapping[str, Any] | None = None,
        rounds: tuple[Mapping[str, Any], ...] = (),
        stop_reason: str | None = None,
        notes: tuple[str, ...] = (),
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self.notes += notes


def _nameless(party: str, rows: int, columns: int) -> PartyTable:
    """A stand-in for the given party's remaining rows: their number and nothing in them."""
    names = [f"column {number}" for number in range(columns)]
    frame = pd.DataFrame(np.zeros((rows, columns), dtype=np.int8), columns=pd.Index(names))
    ids = np.array([str(row) for row in range(rows)], dtype=object)
    return PartyTable(party, ids, frame, dict.fromkeys(names, Kind.NUMERIC))


def _write_completed(site: Site, done: Completion) -> None:
    """The completed cells, where each comes from, and what the columns are worth."""
    for name, frame in (
        ("completed", done.table.rename_axis("row").reset_index()),
        ("provenance", provenance_by_cell(done).rename_axis("row").reset_index()),
        ("quality", quality_by_column(done)),
    ):
        write_table(frame, site.work / f"{name}-{site.number}.csv")


# ---- the given party and the key holder ---------------------------------------------------------


class _Follower:
    """The given party's or the key holder's side of a completion."""

    def __init__(self, site: Site, channel: Channel, step: CompleteStep, how: Settings) -> None:
        self._site, self._channel, self._step, self._how = site, channel, step, how
        self._side: Side | None = None
        if site.me == step.given:
            share = site.share()
            self._side = Side(site.own_table(), share.overlap, share.rest)

    def run(self) -> None:
        """Do what the missing party says comes next, until it says that this was all."""
        leader = self._step.missing
        talk = self._channel.within("lead", DISCLOSURES)
        if self._side is not None:
            columns = len(self._side.table.features)
            talk.send(leader, "size", {"rows": len(self._side.rest), "columns": columns})
        number = 0
        kept: list[Checkpoints] = []
        while True:
            order = talk.receive(leader, "next")
            name, most = order.get("step"), len(self._how.bases) - 1
            base = expect_integer(order.get("base"), sender=leader, name="base", low=0, high=most)
            if name == _END:
                for keeper in kept:
                    keeper.clear()
                return
            here = self._channel.within(f"part {number}")
            if name == _ASSOCIATION:
                self._associate(here)
            elif name in (CROSS_FIT, VFPU_M, DIRECT, SHIFT):
                if name != SHIFT and self._side is not None:
                    kept.append(self._keeper(f"{number} {name} {base}"))
                    self._play(here, name, base, {"kept": kept[-1]})
                else:
                    self._play(here, name, base, {})
            else:
                raise ProtocolError(f"Party {leader!r} ordered unknown work.", leader)
            number += 1

    def _play(self, channel: Channel, step: str, base: int, more: Mapping[str, Any]) -> None:
        pair = self._how.bases[base]
        rng = self._site.private_rng(step)
        run = self._how.role(step, pair)
        run(channel, side=self._side, roles=self._roles(pair.work), rng=rng, **more)

    def _associate(self, channel: Channel) -> None:
        model = Association(aggregate=self._how.aggregate)
        part = None if self._side is None else Part(self._side.table, self._side.overlap)
        model.train(channel, part, roles=self._roles("association"))

    def _roles(self, work: str) -> Roles:
        roles = self._site.roles(self._step.missing, work)
        return replace(roles, feature_holders=(self._step.given,))

    def _keeper(self, step: str) -> Checkpoints:
        """Where the given party keeps its shares, bound to the settings and its row plan."""
        facts = [self._how.plain(), step, self._site.plan_name()]
        mark = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
        folder = self._site.state / f"step-{self._site.number}-complete"
        return Checkpoints(folder / step.replace(" ", "-"), mark)


def _write_remaining(site: Site) -> None:
    """Whose rows the numbers stand for: known at the given party only."""
    rows = site.own_table().take(site.share().rest)
    frame = rows.to_frame()[list(rows.id_columns)]
    frame.insert(0, "row", np.arange(len(frame)))
    write_table(frame, site.work / f"remaining-{site.number}.csv")
