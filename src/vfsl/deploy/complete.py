"""A completion as one party of a deployment runs it, and what it writes of it.

Completed rows stay at the missing party, by their number among the given party's remaining rows;
only the given party knows whose rows these are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vfsl import site as sites
from vfsl.channel import Channel
from vfsl.completion.completed import Completion
from vfsl.data import write_table
from vfsl.deploy.view import Outcome, Site
from vfsl.job.completing import provenance_by_cell, quality_by_column
from vfsl.job.schema import CompleteStep

_NO_ADVICE = ("Advice on training with completed columns is given on one machine only.",)


@dataclass
class _Party(sites.Site):
    """This party, which draws as its deployment does."""

    deployed: Site | None = None

    def private_rng(self, purpose: str) -> np.random.Generator:
        if self.deployed is None:
            return super().private_rng(purpose)
        return self.deployed.private_rng(purpose)


def complete_step(site: Site, channel: Channel, step: CompleteStep) -> Outcome:
    """Complete the missing party's columns for the given party's remaining rows."""
    run, method = site.job.run, step.method()
    concerned = site.me in (step.given, step.missing)
    party = _Party(
        site.me,
        sites.Terms(tuple(site.job.parties), run.key_holder, run.scheme, run.security, run.seed),
        site.private,
        site.own_table() if concerned else None,
        sites.Standing(site.share() if concerned else None, site.job.aligned_before(site.number)),
        folder=site.state / f"step-{site.number}-complete",
        deployed=site,
    )
    if site.me == step.given:
        _write_remaining(site)
    done = method.play(party, channel, step.given, step.missing)
    settings = method.resolve().describe(step.given, step.missing)
    if done is None:
        return Outcome("complete", settings)
    _write_completed(site, done)
    last = party.outcomes[-1]
    notes = [note for one in (last, *party.outcomes[:-1]) for note in one.notes]
    notes += _NO_ADVICE if step.label is not None else ()
    return Outcome("complete", settings, last.metrics, notes=tuple(notes), details=last.details)


def _write_completed(site: Site, done: Completion) -> None:
    """The completed cells, where each comes from, and what the columns are worth."""
    for name, frame in (
        ("completed", done.table.rename_axis("row").reset_index()),
        ("provenance", provenance_by_cell(done).rename_axis("row").reset_index()),
        ("quality", quality_by_column(done)),
    ):
        write_table(frame, site.work / f"{name}-{site.number}.csv")


def _write_remaining(site: Site) -> None:
    """Whose rows the numbers stand for: known at the given party only."""
    rows = site.own_table().take(site.share().rest)
    frame = rows.to_frame()[list(rows.id_columns)]
    frame.insert(0, "row", np.arange(len(frame)))
    write_table(frame, site.work / f"remaining-{site.number}.csv")
