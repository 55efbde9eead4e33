"""A whole training of trees: agree on a start, then grow round after round until it is enough.

What a round is to fit, which values its leaves get and when to stop is the label holder's
`Strategy`, computed in the clear; others see only encrypted (g, h).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import PublicKey, SecretKey, make_scheme
from vfsl.crypto.shares import Session
from vfsl.draws import draw_announced_seed, draw_private_seed
from vfsl.errors import DataError
from vfsl.estimators.base import find_labelled, scale_weights
from vfsl.estimators.exchange import receive_count
from vfsl.estimators.trees.absent import draw_absent
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.feature_holder import FeatureHolder
from vfsl.estimators.trees.hidden_holder import grow_hidden
from vfsl.estimators.trees.hidden_offers import HiddenOffers
from vfsl.estimators.trees.label_holder import LabelHolder
from vfsl.estimators.trees.offers import EncryptedOffers, Offers, SharedOffers
from vfsl.estimators.trees.plain_best import PlainOffers, receive_order
from vfsl.estimators.trees.protocol import (
    MOST_COLUMNS,
    MOST_ROUNDS,
    MOST_TREES,
    Growth,
    release_binned,
)
from vfsl.estimators.trees.shared_best import PairBest
from vfsl.estimators.trees.shared_sums import PairSums
from vfsl.estimators.trees.splits import Candidates, Penalty, quantise
from vfsl.estimators.trees.tree import LEAF, Goal, Partition, Tree
from vfsl.parts import Part, Roles
from vfsl.store import Checkpoints
from vfsl.values import Array, Floats

# ---- the label -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    """The target of all rows as trees take it.

    Attributes
    ----------
    target : array
        Numbers or class codes; 0 for rows without a label.
    classes : list
        Empty for numbers.
    weights : array of shape (rows, models)
        Zero for rows without a label.
    """

    target: Array
    classes: list[Any]
    weights: Floats

    @property
    def facts(self) -> dict[str, Any]:
        """What the label holder's share keeps of it."""
        if not self.classes:
            return {"task": "regression"}
        return {"task": "binary" if len(self.classes) == 2 else "classes", "classes": self.classes}


def read_label(party: str, part: Part, task: str) -> Label:
    """The label holder's target and row weights, checked; ``task``: "classes" or "regression"."""
    known, values = find_labelled(party, part.target), np.asarray(part.target)
    weights = scale_weights(part.weights, len(known)) * known[:, None]
    if (weights.sum(axis=0) == 0).any():
        raise DataError(
            "Row weights must not be 0 for all rows with a known label; some model has no row to "
            "learn from."
        )
    if task == "regression":
        numbers = np.zeros(len(values))
        try:
            numbers[known] = values[known].astype(np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"The label of party {party!r} must be numbers for a regression; use "
                "task='classes' for categories."
            ) from None
        if not np.isfinite(numbers).all():
            raise DataError(f"The label of party {party!r} has values that are not finite.")
        return Label(numbers, [], weights)
    classes, codes = np.unique(values[known], return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"Trees for classes need at least two among the labelled aligned rows of party "
            f"{party!r}; there is {len(classes)}."
        )
    all_codes = np.zeros(len(values), dtype=np.int64)
    all_codes[known] = codes
    return Label(all_codes, classes.tolist(), weights)


# ---- how trees follow each other -----------------------------------------------------------------


class Objective(ABC):
    """A loss. Scores are (rows, models · outputs), model by model; weights are (rows, models)."""

    @property
    def outputs(self) -> int:
        """Scores, and so trees, per model."""
        return 1

    @abstractmethod
    def start(self, weights: Floats) -> Floats:
        """The best constant scores, (models · outputs)."""

    @abstractmethod
    def gradients(self, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """First and second derivatives of the weighted loss by the scores."""

    @abstractmethod
    def losses(self, scores: Floats) -> Floats:
        """The loss of each row and model."""

    def loss(self, scores: Floats, weights: Floats) -> Floats:
        """The weighted mean loss of each model."""
        total = weights.sum(axis=0)
        safe = np.where(total > 0, total, 1.0)
        return np.asarray((self.losses(scores) * weights).sum(axis=0) / safe)


@dataclass
class Ensemble:
    """Trees so far, round by round, and the scores of all training rows."""

    start: Floats
    scores: Floats
    rounds: list[list[Tree]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    history: list[Mapping[str, Any]] = field(default_factory=list)
    keep: int | None = None  # rounds, where the last ones made it worse
    kept_scores: Floats | None = None
    stop_reason: str | None = None

    @property
    def trees_grown(self) -> int:
        return sum(len(trees) for trees in self.rounds)

    @property
    def rounds_kept(self) -> int:
        return len(self.rounds) if self.keep is None else self.keep

    @property
    def final_scores(self) -> Floats:
        return self.scores if self.kept_scores is None else self.kept_scores


@dataclass(kw_only=True)
class Strategy(ABC):
    """How a model's trees follow each other: goals, leaf values, when to stop.

    Parameters
    ----------
    objective : Objective
    weights : array of shape (rows, models)
        Zero for rows without a label.
    rounds : int
    step : float
        What a leaf's value is multiplied by.
    penalty : Penalty
    """

    objective: Objective
    weights: Floats
    rounds: int
    step: float
    penalty: Penalty

    @property
    def models(self) -> int:
        return int(self.weights.shape[1])

    @property
    def trees_planned(self) -> int:
        """How many trees there will be, if nothing ends the training before."""
        return self.rounds * self.models * self.objective.outputs

    def begin(self, kept: Checkpoints, done: int) -> Ensemble:
        """The state after ``done`` rounds of an earlier attempt."""
        start = self.objective.start(self._training_weights())
        ensemble = Ensemble(start, np.tile(start, (len(self.weights), 1)))
        for number in range(done):
            value = kept.load(f"round-{number}")
            trees = [Tree.from_dict(tree) for tree in value["trees"]]
            self._append(ensemble, trees, value["outputs"], kept.load_arrays(f"round-{number}"))
        return ensemble

    @abstractmethod
    def set_goals(self, ensemble: Ensemble, number: int, rng: np.random.Generator) -> list[Goal]:
        """What the trees of a round are to fit."""

    def add_round(
        self, ensemble: Ensemble, goals: Sequence[Goal], trees: list[Tree], leaf: Array
    ) -> dict[str, Array]:
        """Give leaves their values and add the trees; the arrays to keep of the round."""
        scores = ensemble.scores.copy()
        for at, (goal, tree) in enumerate(zip(goals, trees, strict=True)):
            values = solve_leaves(leaf[:, at], len(tree.owner), goal, self.penalty.l2)
            values = np.where(np.array(tree.owner) == LEAF, self.step * values, 0.0)
            tree.value = values.tolist()
            # Tree by tree, as a prediction adds them up: both give the same to the last digit.
            scores[:, goal.output] += values[leaf[:, at]]
        arrays = {"scores": scores, **self._more(goals, trees, leaf)}
        self._append(ensemble, trees, [goal.output for goal in goals], arrays)
        return arrays

    def _more(self, goals: Sequence[Goal], trees: list[Tree], leaf: Array) -> dict[str, Array]:
        """Further arrays of a round."""
        return {}

    def _append(
        self, ensemble: Ensemble, trees: list[Tree], outputs: list[int], arrays: Mapping[str, Array]
    ) -> None:
        ensemble.scores = arrays["scores"]
        ensemble.rounds.append(trees)
        ensemble.outputs.append(outputs)
        self._judge(ensemble)

    @abstractmethod
    def _judge(self, ensemble: Ensemble) -> None:
        """Note how good the model is now, and whether it is finished."""

    def _training_weights(self) -> Floats:
        return self.weights

    @property
    def judges(self) -> Array | None:
        """Which rows do not train but judge, if there are such."""
        return None

    def oob_score(self) -> float | None:
        """How well trees predict rows that they did not draw, if there are such."""
        return None


def make_goal(g: Floats, h: Floats, judged_by: Floats, output: int) -> Goal:
    """A goal whose leaves fit (g, h) and whose splits are judged by g and another weight."""
    values, scale = quantise(g, judged_by, len(g))
    return Goal(values, scale, g, h, output)


def solve_leaves(leaf: Array, nodes: int, goal: Goal, l2: float) -> Floats:
    """−Σg / (Σh + λ) over the rows of each node, 0 where nothing counts: a Newton step."""
    g = np.bincount(leaf, weights=goal.first, minlength=nodes)
    h = np.bincount(leaf, weights=goal.second, minlength=nodes) + l2
    return np.asarray(np.where(h > 0, -g / np.where(h > 0, h, 1.0), 0.0))


# ---- the data holders' sides of a whole training -------------------------------------------------


def count_finished(kept: Checkpoints) -> int:
    """How many rounds an earlier attempt has finished.

    No key, mask or order of candidates is kept. What the label holder keeps has the seed of its
    rows and their scores, which must stay with it.
    """
    finished = 0
    while kept.load(f"round-{finished}") is not None:
        finished += 1
    return finished


def draw_seeds(kept: Checkpoints, rng: np.random.Generator) -> tuple[int, int]:
    """For columns, which everybody is told, and for rows, which nobody else may know.

    A later attempt takes those of the first.
    """
    first = kept.load("round-0")
    if first is not None:
        announced_seed, private_seed = first["seeds"]
        return announced_seed, private_seed
    return draw_announced_seed(rng), draw_private_seed(rng)


def train_feature_holder(
    channel: Channel,
    roles: Roles,
    growth: Growth,
    bins: Bins,
    codes: Array,
    kept: Checkpoints,
    sessions: Mapping[str, Session],
) -> dict[str, Any]:
    """Take part in all rounds; the state of one's own share.

    ``sessions`` has the one with the label holder, where sums are shared.
    """
    leader, key, pair, best = roles.label_holder, None, None, None
    candidates = Candidates.of(bins)
    if growth.hides:
        best = PairBest.begin(sessions[channel.me], codes=codes, candidates=candidates)
    elif growth.on_shares:
        pair = PairSums.begin(sessions[channel.me], codes=codes, candidates=candidates)
    elif growth.best:
        channel.send(leader, "columns", np.array([codes.shape[1], bins.width], dtype=np.int64))
    else:
        secret_holder = growth.secret_holder(roles)
        public = channel.receive(secret_holder, "public key")
        key = make_scheme(roles.scheme, roles.security).load_public(public)
        size = np.array([codes.shape[1], bins.width], dtype=np.int64)
        for party in dict.fromkeys((leader, secret_holder)):
            channel.send(party, "columns", size)
    channel.send(leader, "finished", count_finished(kept))
    setup = channel.receive(leader, "setup")
    offset, in_all, seed, done, grown = (
        expect_integer(setup.get(name), sender=leader, name=name, low=0, high=1 << 62)
        for name in ("offset", "columns", "seed", "finished", "trees")
    )
    for party in roles.data_holders:
        if party == leader or (party != channel.me and not growth.hides):
            release_binned(channel, party, codes, bins.width)
    if growth.best and not growth.hides:
        codes = codes[receive_order(channel, leader, len(codes))]
    holder = FeatureHolder(channel, roles, key, growth, bins, codes, offset, in_all, seed, pair)
    rounds = [kept.load(f"round-{number}") for number in range(done)]
    while trees := receive_count(channel, leader, "trees", 0, MOST_TREES):
        number = len(rounds) - done
        if best is None:
            rules, divided = holder.grow(number, trees, grown)
        else:
            rules, divided = grow_hidden(holder, best, number, trees, grown)
        found = [[node.tree + grown, node.number, *rule] for node, rule in sorted(rules.items())]
        rounds.append({"rules": found, "divided": divided})
        kept.save(f"round-{len(rounds) - 1}", rounds[-1])
        grown += trees
    rounds = rounds[: receive_count(channel, leader, "keep", 0, len(rounds))]
    divided_in_all = np.sum([each["divided"] for each in rounds], axis=0, dtype=np.int64)
    return {
        "bins": bins.to_dict(),
        "rules": [rule for each in rounds for rule in each["rules"]],
        "importance": np.broadcast_to(divided_in_all, codes.shape[1]).tolist(),
    }


def train_label_holder(
    channel: Channel,
    roles: Roles,
    growth: Growth,
    bins: Bins,
    codes: Array,
    kept: Checkpoints,
    strategy: Strategy,
    seeds: tuple[int, int],
    sessions: Mapping[str, Session],
    order: Array,
) -> Ensemble:
    """Lead all rounds, from the last one that every data holder has finished.

    ``seeds`` are for columns, which everybody learns, and for rows, which nobody else may know;
    ``sessions`` are those with feature holders, where sums are shared; ``order`` has all rows
    in an order that does not depend on how they came.
    """
    others = roles.feature_holders
    if not growth.best:
        order = np.arange(len(codes))
    columns_of, offers, third = _begin_offers(
        channel, roles, growth, codes, strategy, sessions, order
    )
    finished = [receive_count(channel, party, "finished", 0, MOST_ROUNDS) for party in others]
    done = min([count_finished(kept), *finished])
    seed, draws = seeds
    ensemble = strategy.begin(kept, done)
    offset = codes.shape[1]
    columns = offset + sum(columns_of.values())
    for party in others:
        if not growth.hides:
            release_binned(channel, party, codes, bins.width)
        setup = {"offset": offset, "columns": columns, "seed": seed, "finished": done}
        channel.send(party, "setup", setup | {"trees": ensemble.trees_grown})
        if growth.best and not growth.hides:
            channel.send(party, "order", order)
        offset += columns_of[party]
    holder = LabelHolder(
        channel, roles, offers, growth, strategy.penalty, bins, codes[order], columns, seed, order
    )
    told = (*others, *third)
    while ensemble.stop_reason is None:
        number = len(ensemble.rounds)
        goals = strategy.set_goals(ensemble, number, np.random.default_rng([draws, 1, number]))
        goals = drop_blocks(goals, growth, others, draws, ensemble.trees_grown)
        for party in told:
            channel.send(party, "trees", len(goals))
        # The key holder, who keeps no rounds, counts those of this attempt.
        trees, leaf = holder.grow(number - done, goals, ensemble.trees_grown)
        arrays = strategy.add_round(ensemble, goals, trees, leaf)
        value = {"trees": [tree.to_dict() for tree in trees], "outputs": ensemble.outputs[-1]}
        kept.save(f"round-{number}", value | {"seeds": [seed, draws]}, arrays)
    for party in told:
        channel.send(party, "trees", 0)
    for party in others:
        channel.send(party, "keep", ensemble.rounds_kept)
    return ensemble


def drop_blocks(
    goals: Sequence[Goal], growth: Growth, parties: Sequence[str], draws: int, first_tree: int
) -> list[Goal]:
    """The goals of a round, each with rows that are to do without a feature holder's block.

    Rows that do not count in a tree keep all blocks: those that validate, or are out of the bag,
    then judge the model as it is with everybody there.
    """
    if not growth.block_dropout or not parties:
        return list(goals)
    dropped = []
    for tree, goal in enumerate(goals, start=first_tree):
        rng = np.random.default_rng([draws, 2, tree])
        used = goal.second != 0
        absent = draw_absent(used, len(parties), growth.block_dropout, rng)
        dropped.append(replace(goal, absent=absent))
    return dropped


def label_state(
    roles: Roles, bins: Bins, label: Label, strategy: Strategy, ensemble: Ensemble
) -> dict[str, Any]:
    """The state of the label holder's share: the rounds that the model keeps."""
    kept = slice(ensemble.rounds_kept)
    trees = [tree for each in ensemble.rounds[kept] for tree in each]
    gains = np.zeros(len(roles.data_holders))
    importance = np.zeros(len(bins.columns))
    for tree in trees:
        for node, owner in enumerate(tree.owner):
            if owner >= 0:
                gains[owner] += tree.gain[node]
        for node, rule in tree.rules.items():
            importance[rule[0]] += tree.gain[node]
    return {
        "bins": bins.to_dict(),
        "trees": [tree.to_dict() for tree in trees],
        "output": [output for each in ensemble.outputs[kept] for output in each],
        "start": ensemble.start.tolist(),
        "models": strategy.models,
        "parties": list(roles.data_holders),
        "importance": importance.tolist(),
        "gain by party": dict(zip(roles.data_holders, gains.tolist(), strict=True)),
        "oob": strategy.oob_score(),
        **label.facts,
    }


_MakeOffers = Callable[[Partition], Offers]


def _begin_offers(
    channel: Channel,
    roles: Roles,
    growth: Growth,
    codes: Array,
    strategy: Strategy,
    sessions: Mapping[str, Session],
    order: Array,
) -> tuple[dict[str, int], _MakeOffers, tuple[str, ...]]:
    """How many columns others have, how their sums will come, and the third party that helps."""
    rows = len(codes)
    if growth.hides:
        planned = 2 * strategy.trees_planned * growth.count_sums(rows)
        best = {
            party: PairBest.begin(session, rows=rows, plain_columns=planned)
            for party, session in sessions.items()
        }
        offset = codes.shape[1]
        hidden = partial(HiddenOffers, roles=roles, pairs=best, order=order, offset=offset)
        third = (roles.key_holder,) if best else ()
        return {party: one.columns for party, one in best.items()}, hidden, third
    if growth.on_shares and roles.feature_holders:
        planned = 2 * strategy.trees_planned * growth.count_sums(rows)
        pairs = {
            party: PairSums.begin(session, rows=rows, plain_columns=planned)
            for party, session in sessions.items()
        }
        shared = partial(SharedOffers, roles=roles, pairs=list(pairs.values()))
        return {party: pair.columns for party, pair in pairs.items()}, shared, (roles.key_holder,)
    if growth.on_shares:
        return {}, partial(SharedOffers, roles=roles, pairs=[]), ()
    if growth.best:
        columns = {party: _receive_size(channel, party)[0] for party in roles.feature_holders}
        return columns, partial(PlainOffers, roles=roles, columns=columns), ()
    key, secret = _agree_on_keys(channel, roles, growth)
    sizes = {party: _receive_size(channel, party) for party in roles.feature_holders}
    encrypted = partial(
        EncryptedOffers,
        roles=roles,
        growth=growth,
        key=key,
        secret=secret,
        asked={party: size for party, size in sizes.items() if size[0]},
        rows=rows,
    )
    third = (roles.key_holder,) if roles.feature_holders and secret is None else ()
    return {party: size[0] for party, size in sizes.items()}, encrypted, third


def _agree_on_keys(
    channel: Channel, roles: Roles, growth: Growth
) -> tuple[PublicKey, SecretKey | None]:
    """The public key of the key holder, or a pair of one's own if there is none."""
    made = make_scheme(roles.scheme, roles.security)
    if roles.feature_holders and growth.keys == "key-holder":
        return made.load_public(channel.receive(roles.key_holder, "public key")), None
    public, secret = made.generate()
    for party in roles.feature_holders:
        channel.send(party, "public key", public.to_wire())
    return public, secret


def _receive_size(channel: Channel, party: str) -> tuple[int, int]:
    """How many columns a party has, and how many codes per column."""
    came = channel.receive(party, "columns")
    sizes = expect_array(came, sender=party, name="columns", holds="integer", shape=(2,))
    columns, width = (
        expect_integer(int(size), sender=party, name="columns", low=0, high=MOST_COLUMNS)
        for size in sizes
    )
    return columns, width
