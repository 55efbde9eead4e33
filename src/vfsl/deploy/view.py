"""One party's own view of a run: its table, its rows of the plan, where it keeps things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vfsl.align import Alignment, Caution, IdList, Progress, RowShare, prepare_ids
from vfsl.crypto import SCHEME_FOR
from vfsl.data import Kind, PartyTable
from vfsl.data.ids import id_parts
from vfsl.deploy.config import PartyFile
from vfsl.deploy.job import SharedJob
from vfsl.draws import PrivateSeed
from vfsl.errors import ConfigError
from vfsl.job.schema import Step
from vfsl.parts import Part, Roles


def _kind(step: Step) -> tuple[str, str]:
    return step.do, str(getattr(step, "model", ""))


@dataclass
class Outcome:
    """What a step adds to the party's record."""

    name: str
    settings: Mapping[str, Any]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    rounds: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str | None = None
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Site:
    """One party's own view of a run: its table, its rows of the plan, where it keeps things."""

    mine: PartyFile
    job: SharedJob
    table: PartyTable | None
    folder: Path  # the party's own folder
    state: Path  # of this run
    progress: Callable[[], None]  # long work without a message calls it, so that others wait on
    private: PrivateSeed
    number: int = 0  # of the step that runs
    _drawn: Counter[tuple[int, str]] = field(default_factory=Counter, init=False, repr=False)

    @property
    def me(self) -> str:
        return self.mine.party

    @property
    def work(self) -> Path:
        """What becomes the results when the run has ended well."""
        return self.state / "work"

    @property
    def feature_holders(self) -> int:
        """How many aligned parties hold features beside the label holder."""
        return len(self.job.aligned_before(self.number)) - 1

    def ids(self) -> IdList:
        table = self.own_table()
        return prepare_ids(self.me, *id_parts(table.ids, len(table.id_columns)))

    def own_table(self) -> PartyTable:
        if self.table is None:
            raise ConfigError(f"Party {self.me!r} has no table, but the step needs one.")
        return self.table

    def alignment(self, protocol: str, cautions: list[str]) -> Alignment:
        """How this party takes part in set intersections; its key and counts outlive the run."""

        def hear(event: Progress | Caution) -> None:
            if isinstance(event, Caution):
                cautions.append(event.text)
            else:
                self.progress()

        return Alignment(
            protocol=protocol,
            security=self.job.run.security,
            limits=self.mine.alignment_limits(),
            state=self.folder / "alignment",
            lasting=True,
            on_event=hear,
        )

    def share(self) -> RowShare:
        """This party's part of the row plan."""
        return RowShare.load(self.state / "plan", self.me, self.ids())

    def plan_name(self) -> str:
        """The name of the row plan that this party holds, or nothing."""
        if not any((self.state / "plan").glob("rows-*.json")):
            return ""
        return self.share().plan

    def private_rng(self, purpose: str) -> np.random.Generator:
        """What this party draws and hides; its seed never leaves its folder of the run.

        A further step of that kind, or a further part of a step, draws anew: the same noise twice
        would cancel out. A step that is done again after a failure repeats its draws.
        """
        self._drawn[self.number, purpose] += 1
        part = self._drawn[self.number, purpose]
        same = [_kind(step) for step in self.job.steps[: self.number]]
        step = same.count(same[-1]) if same else 1
        if step > 1:
            purpose = f"{purpose} {step}.{part}"
        elif part > 1:
            purpose = f"{purpose} {part}"
        return self.private.rng(purpose)

    def roles(self, label_holder: str, work: str) -> Roles:
        """Roles with that label holder; the other aligned parties hold features."""
        aligned = self.job.aligned_before(self.number)
        if label_holder not in aligned:
            raise ConfigError(
                f"Party {label_holder!r} holds the label but was not aligned; aligned are "
                f"{', '.join(aligned)}."
            )
        terms = self.job.run
        scheme = SCHEME_FOR[work] if terms.scheme == "auto" else terms.scheme
        others = tuple(party for party in aligned if party != label_holder)
        return Roles(label_holder, others, terms.key_holder, scheme, terms.security)

    def part(self, label: tuple[str, str]) -> Part | None:
        """This party's rows in the common order; the target at the label holder only."""
        if self.mine.role != "data":
            return None
        table, share = self.own_table(), self.share()
        if label[0] != self.me:
            return Part(table, share.overlap)
        target = table.column(label[1]).iloc[share.overlap]
        if table.kinds[label[1]] is not Kind.LABEL:
            table = table.without([label[1]])
        values = np.array(target.astype(object).where(target.notna(), None), dtype=object)
        return Part(table, share.overlap, target=values)
