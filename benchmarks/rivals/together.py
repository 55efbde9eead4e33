"""RISA in one process on the problem that its rivals get: the same course, without a channel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from benchmarks.rivals.harness import Fitted, Problem, View
from vfsl.evidence.course import STAGES, Course, Learned, Stage, opinions_of, run_course
from vfsl.evidence.networks import Inputs, Member, build_network
from vfsl.evidence.opinion import Opinion, fuse_trusted, probability
from vfsl.evidence.rows import UNKNOWN, Universe, add_scores
from vfsl.evidence.training import Team
from vfsl.values import Array

PARTIES = ("A", "B")


class Together:
    """The networks of both parties side by side, and what was learned.

    Parameters
    ----------
    course : Course
        Its budget is replaced by that of the problem.
    """

    def __init__(self, course: Course) -> None:
        self.course = course
        self.learned_: Learned
        self.members_: dict[Stage, dict[str, Member]]

    def fit(self, problem: Problem, rng: np.random.Generator) -> Fitted:
        """Train, and return how to predict."""
        course = self.course = replace(self.course, learning=problem.learning)
        own = {party: len(problem.own(place)) for place, party in enumerate(PARTIES)}
        universe = Universe(PARTIES, problem.overlap, own)
        labels = np.full(universe.total, UNKNOWN, dtype=np.int64)
        labels[: len(problem.labels)] = problem.labels
        self.members_ = {
            stage: {
                party: _member(view, problem, course, stage, rng)
                for party, view in zip(PARTIES, problem.views, strict=True)
            }
            for stage in STAGES
        }
        teams = {stage: Team(universe, members) for stage, members in self.members_.items()}
        self.learned_ = run_course(teams, labels, problem.classes, course, rng)
        return self.predict

    def opinions(self, first: Inputs | None, second: Inputs | None) -> list[Array]:
        """What each party says; the switches decide for an absent one."""
        rows = len(first or second or ())
        said = []
        for given, member in zip((first, second), self.members_["evidence"].values(), strict=True):
            if given is None:
                fill = member.answer(np.zeros(0, dtype=np.int64), with_fill=True)
                mean = self.course.switches.absent == "mean"
                said.append(np.repeat(fill if mean else np.zeros_like(fill), rows, axis=0))
            else:
                kept, member.inputs = member.inputs, given
                said.append(member.answer(np.arange(rows)))
                member.inputs = kept
        return said

    def predict(self, first: Inputs | None, second: Inputs | None) -> Array:
        said = self.opinions(first, second)
        if not self.course.switches.evidential:
            return add_scores(said)
        return np.asarray(probability(self.fuse(said)))

    def fuse(self, said: list[Array]) -> Opinion:
        trust = self.learned_.trust.values()
        return fuse_trusted(opinions_of(said), trust, self.course.switches.fusion)


def _member(
    view: View, problem: Problem, course: Course, stage: Stage, rng: np.random.Generator
) -> Member:
    network = build_network(view.recipe, view.columns, problem.classes, rng)
    evidential = stage == "evidence" and course.switches.evidential
    form = course.risa.evidence if evidential else None
    if stage == "evidence" and not evidential and isinstance(network, nn.Sequential):
        # Heads that add up are drawn as the one head over all parties that they are together.
        with torch.no_grad():
            network[-1].weight /= len(PARTIES) ** 0.5
    return Member(
        network, view.inputs, problem.overlap, view.columns.levels, form, problem.learning
    )
