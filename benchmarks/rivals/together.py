"""RISA in one process on the problem that its rivals get: the same course, without a channel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.rivals.harness import Fitted, Problem, View
from vfsl.evidence.course import STAGES, Learned, Settings, run_course
from vfsl.evidence.encoders import Inputs, build_network
from vfsl.evidence.member import Member
from vfsl.evidence.opinion import Opinion, discount, fuse, probability
from vfsl.evidence.rows import UNKNOWN, Universe
from vfsl.evidence.selftrain import self_trained
from vfsl.evidence.training import Local, opinions_from
from vfsl.values import Array

PARTIES = ("A", "B")


class Together:
    """The networks of both parties side by side, and what was learned.

    Parameters
    ----------
    settings : Settings
        Its budget is replaced by that of the problem.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.learned_: Learned
        self.members_: dict[str, dict[str, Member]]

    def fit(
        self,
        problem: Problem,
        rng: np.random.Generator,
    ) -> Fitted:
        """Train, and return how to predict."""
        settings = self.settings = replace(self.settings, learning=problem.learning)
        own = {party: len(problem.own(place)) for place, party in enumerate(PARTIES)}
        universe = Universe(PARTIES, problem.overlap, own)
        labels = np.full(universe.total, UNKNOWN, dtype=np.int64)
        labels[: len(problem.labels)] = problem.labels
        self.members_ = {
            stage: {
                party: _member(view, problem, settings, stage, rng)
                for party, view in zip(PARTIES, problem.views, strict=True)
            }
            for stage in STAGES
        }
        peers = {
            stage: {party: Local(member) for party, member in members.items()}
            for stage, members in self.members_.items()
        }
        self.learned_ = run_course(peers, universe, labels, problem.classes, settings, rng)
        return self.predict

    def opinions(self, first: Inputs | None, second: Inputs | None) -> list[Array]:
        """What each party says; the switches decide for an absent one."""
        rows = len(first or second or ())
        said = []
        for given, member in zip((first, second), self.members_["evidence"].values(), strict=True):
            if given is None:
                fill = member.answer(np.zeros(0, dtype=np.int64), with_fill=True)
                mean = self.settings.switches.absent == "mean"
                said.append(np.repeat(fill if mean else np.zeros_like(fill), rows, axis=0))
            else:
                kept, member.inputs = member.inputs, given
                said.append(member.answer(np.arange(rows)))
                member.inputs = kept
        return said

    def predict(self, first: Inputs | None, second: Inputs | None) -> Array:
        said = self.opinions(first, second)
        if not self.settings.switches.evidential:
            return self_trained(said)
        return np.asarray(probability(self.fused(said)))

    def fused(self, said: list[Array]) -> Opinion:
        trusts = self.learned_.trust.values()
        opinions = [discount(o, t) for o, t in zip(opinions_from(said), trusts, strict=True)]
        return fuse(opinions, self.settings.switches.fusion)


def _member(
    view: View, problem: Problem, settings: Settings, stage: str, rng: np.random.Generator
) -> Member:
    network = build_network(view.recipe, view.columns, problem.classes, rng)
    evidential = stage == "evidence" and settings.switches.evidential
    form = settings.evidence if evidential else None
    return Member(
        network, view.inputs, problem.overlap, view.columns.levels, form, problem.learning
    )
