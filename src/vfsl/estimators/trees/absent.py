"""Feature holders that are not there: trained for by block dropout, and left out of predictions.

The label holder knows the training weight on each side of every split. A row that has no cells of a
split's owner goes to the heavier side. So one model answers for every set of parties that has the
label holder, who leads and is always there.

A model that never did without a party in training loses more than it must: all rows go the same way
at every split of that party, and nothing below was fitted to them. With block dropout some rows
train as if a party had no cells for them. The label holder draws them privately and leaves them out
of what it lets that party sum; at a split of that party it moves them to the heavier side itself.
Each tree draws anew: on made-up data that costs less while all are there than rows that lack a
block in all trees, and helps as much when one is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from vfsl.errors import ConfigError
from vfsl.estimators.trees.splits import NO_COLUMN
from vfsl.estimators.trees.tree import OWN, Tree
from vfsl.values import Array


def draw_absent(used: Array, parties: int, fraction: float, rng: np.random.Generator) -> Array:
    """Which of the used rows are to do without which party's block, (rows, parties)."""
    drawn = rng.random((len(used), parties)) < fraction
    return np.asarray(drawn & used[:, None])


def leave_out(trees: Sequence[Tree], present: Sequence[int]) -> list[Tree]:
    """The trees as they are for the feature holders in these places, who get places 1, 2, …

    Each split of any other feature holder becomes one of the label holder that sends all rows to
    the heavier side. Nodes keep their numbers: a feature holder knows its splits by them.
    """
    places = {old: new for new, old in enumerate(present, start=OWN + 1)}
    return [_leave_out(tree, places) for tree in trees]


def _leave_out(tree: Tree, places: Mapping[int, int]) -> Tree:
    owner, rules = list(tree.owner), dict(tree.rules)
    for node, place in enumerate(tree.owner):
        if place in places:
            owner[node] = places[place]
        elif place > OWN:
            owner[node], rules[node] = OWN, (NO_COLUMN, 0, tree.default(node))
    return replace(tree, owner=owner, rules=rules)


def find_present(names: Sequence[str], present: Sequence[str]) -> list[int]:
    """The places of these feature holders in the training, whose data holders had these names."""
    for party in present:
        if party not in names:
            raise ConfigError(
                f"Party {party!r} took no part in the training, whose parties were "
                f"{', '.join(names)}."
            )
    return [names.index(party) for party in present]
