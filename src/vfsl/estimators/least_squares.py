"""Least squares across parties for many models at once, by the four steps of the VFL literature.

Holds   the label holder: columns, targets and row weights; each feature holder: columns; the key
        holder: the secret key, no data.
Learns  a feature holder: its own gradients, the common step lengths, the effective penalty, how
        many columns the label holder has (it counts what that one's gradients show of it). The
        label holder: its own gradients and three sums a round and model of each feature holder;
        with several stages, the total score of each row between two of them, with noise that each
        feature holder adds. The key holder: uniformly masked numbers, how many columns, rows,
        models and rounds there are. The first gradient is a sum over rows by label: exposure.py.

Each round (1) uses the key that the key holder made for this run; (2) the parties exchange
encrypted scores and residuals; (3) every party forms its encrypted gradients, masks them and sends
them to the key holder; (4) the key holder returns the masked values, each party unmasks and moves.
The loss needs no message: each exact step lowers it by half its length times the gain.

With equal row weights, or several feature holders, the label holder forms the encrypted residual
v ∘ (Σ scores − y) and returns it. With row weights and one feature holder B nothing needs an
element-wise product of ciphertexts: B's gradient is ⟨Enc(v), x ∘ s_B⟩ + ⟨Enc(v ∘ (s_C − y)), x⟩,
the label holder's is ⟨Enc(s_B), v ∘ x⟩ + plain terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vfsl.channel import Channel
from vfsl.crypto import EncryptedArray, KeyHolder, PublicKey
from vfsl.crypto.fixed import decode, encode, shift
from vfsl.crypto.scheme import Use
from vfsl.errors import BoundExceeded, DataError, ProtocolError
from vfsl.estimators import exposure, totals
from vfsl.estimators.descent import Block, Floats, Integers, Search, Step, Terms, Width
from vfsl.estimators.exchange import (
    MOST,
    announced,
    bundled,
    load_array,
    numbers_of,
    open_masked,
    send_fresh_key,
    unbundled,
)
from vfsl.estimators.exposure import Rarest, check_sizes
from vfsl.estimators.gradient_count import GradientCount, release_sums
from vfsl.estimators.posing import Posed, Problem, Program, Trained
from vfsl.estimators.totals import SCORE_BOUND, fine_scores, open_total
from vfsl.parts import Roles
from vfsl.values import Aggregate, Ciphertext, Disclosure, Disclosures, Masked

__all__ = [
    "DISCLOSURES",
    "Program",
    "disclosures",
    "train_feature_holder",
    "train_key_holder",
    "train_label_holder",
]

_NOTHING = "nothing without the secret key"

DISCLOSURES: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "columns": Disclosure(int, "how many encoded columns the sender has"),
    "models": Disclosure(int, "how many models are trained together"),
    "rows": Disclosure(int, "how many rows take part"),
    "weighted": Disclosure(bool, "whether rows have weights of their own"),
    "penalty": Disclosure(Aggregate, "the l2 penalty over the average row weight, by model"),
    "row weights": Disclosure(Ciphertext, _NOTHING),
    "scores": Disclosure(Ciphertext, _NOTHING),
    "residual": Disclosure(Ciphertext, _NOTHING),
    "gradient": Disclosure(Ciphertext, "uniformly masked sums"),
    "opened gradient": Disclosure(
        Masked,
        "the receiver's own gradient, after it removes its mask: at a feature holder the first one "
        "is the sum of its rows by label",
    ),
    "gain": Disclosure(Aggregate, "how much the sender's columns can still explain, by model"),
    "terms": Disclosure(Aggregate, "three sums over all rows and columns: the round's curvature"),
    "step": Disclosure(Aggregate, "the common step lengths"),
    "another round": Disclosure(bool, "whether training goes on"),
    "total": totals.DISCLOSURES["total"],
}


def disclosures(program: Program) -> Disclosures:
    """The same with what the label holder sees of total scores in that program."""
    fact = exposure.describe_look(program.look_noise)
    return {**DISCLOSURES, "opened total": Disclosure(Masked, fact)}


# ---- the three roles side by side ----------------------------------------------------------------


def train_key_holder(channel: Channel, roles: Roles, program: Program) -> None:
    """Make a key, then answer what was announced: each party's masked gradients, once a round."""
    secret = send_fresh_key(channel, roles)
    models = announced(channel, roles.label_holder, "models", 1, MOST)
    program = replace(program, weighted=channel.receive(roles.label_holder, "weighted"))
    rows = announced(channel, roles.label_holder, "rows", 1, 1 << 40)
    columns = {party: announced(channel, party, "columns", 0, MOST) for party in roles.data_holders}
    asking = [party for party in roles.data_holders if columns[party]]
    holder = KeyHolder(secret, _declared(roles, program, columns, models, rows))
    for stage in range(program.stages):
        here = channel.within(f"stage {stage}")
        for number in range(program.max_rounds + 1):
            now = here.within(f"round {number}")
            for party in asking:
                requests = unbundled(now.receive(party, "gradient"), party)
                names = _requests(program, roles, stage, number, party, models)
                if len(requests) != len(names):
                    raise ProtocolError(
                        f"Party {party!r} sent {len(requests)} requests; expected {len(names)}.",
                        party,
                    )
                answers = [
                    holder.open(name, request).payload
                    for name, request in zip(names, requests, strict=True)
                ]
                now.send(party, "opened gradient", Masked(answers))
            if not now.receive(roles.label_holder, "another round"):
                break
        if stage + 1 < program.stages:
            request = here.receive(roles.label_holder, "total")
            here.send(roles.label_holder, "opened total", holder.open(f"{stage}/total", request))


def train_feature_holder(
    channel: Channel,
    columns: Floats,
    roles: Roles,
    key: PublicKey,
    program: Program,
    rng: np.random.Generator,
) -> Trained:
    """Send encrypted scores, learn one's own gradients, move as all others do.

    ``rng`` gives the noise of the scores that the label holder looks at.
    """
    leader = roles.label_holder
    models = announced(channel, leader, "models", 1, MOST)
    program = replace(program, weighted=channel.receive(leader, "weighted"))
    size = columns.shape[1]
    channel.send(roles.key_holder, "columns", size)
    channel.send(leader, "columns", size)
    theirs = announced(channel, leader, "columns", 1, MOST)
    weights: Floats = np.zeros((size, models))
    for stage in range(program.stages):
        here = channel.within(f"stage {stage}")
        width = program.width(len(columns), stage, roles)
        penalty = numbers_of(here.receive(leader, "penalty"), leader, "penalty", (models,))
        block = Block(columns, np.tile(penalty, (size, 1)), width, weights)
        row_weights: list[EncryptedArray] = []
        if program.two_terms(stage, roles):
            sent = unbundled(here.receive(leader, "row weights"), leader)
            row_weights = [load_array(key, one, leader, (len(columns),)) for one in sent]
        for number in range(program.max_rounds + 1):
            now = here.within(f"round {number}")
            release_sums(now, leader, models, (size, theirs), number)
            if program.two_terms(stage, roles):
                sums = _feature_two_terms(now, roles, key, block, row_weights)
            else:
                sums = _feature_residual(now, roles, key, block)
            if number == 0:
                now.send(leader, "gain", Aggregate(block.begin(sums)))
            else:
                now.send(leader, "terms", Aggregate(np.array(block.measure(sums))))
                numbers = numbers_of(now.receive(leader, "step"), leader, "step", (3, models))
                block.move(Step(*numbers))
            if not now.receive(leader, "another round"):
                break
        weights = block.best
        if stage + 1 < program.stages:
            noise = program.look_noise * rng.standard_normal((len(columns), models))
            total = key.encrypt(fine_scores(columns, weights, noise), bound=SCORE_BOUND, use="add")
            worth = exposure.count_look(noise.size, program.look_noise)
            here.release(leader, "total scores", noise.size, new=worth)
            here.send(leader, "scores", total.to_wire())
    return Trained(weights)


def train_label_holder(
    channel: Channel,
    columns: Floats,
    posed: Posed,
    roles: Roles,
    key: PublicKey,
    program: Program,
) -> Trained:
    """Pose the problem of each stage, lead its descent, and between stages learn the scores.

    ``columns`` ends with the constant column of the intercept, which is not penalised.
    """
    rows = len(columns)
    models = posed.pose(0, np.zeros((rows, 0))).targets.shape[1]
    for party in (roles.key_holder, *roles.feature_holders):
        channel.send(party, "models", models)
        channel.send(party, "weighted", program.weighted)
    channel.send(roles.key_holder, "rows", rows)
    channel.send(roles.key_holder, "columns", columns.shape[1])
    for party in roles.feature_holders:
        channel.send(party, "columns", columns.shape[1])
    sizes = _check_sizes(channel, roles, columns, posed.rarest, program)
    weights: Floats = np.zeros((columns.shape[1], models))
    scores: Floats = np.zeros((rows, models))
    history: list[Mapping[str, Any]] = []
    reasons: list[str] = []
    for stage in range(program.stages):
        here = channel.within(f"stage {stage}")
        problem = posed.pose(stage, scores)
        size = problem.size
        for party in roles.feature_holders:
            here.send(party, "penalty", Aggregate(program.l2 / size))
        leader = _Leader(here, roles, key, columns, problem, program, stage, weights, sizes)
        search = leader.descend(history, _objective(problem, scores, size))
        weights = leader.block.best
        reasons.append(_reason(search))
        if stage + 1 < program.stages:
            scores = open_total(here, roles, key, fine_scores(columns, weights))
    return Trained(weights, tuple(history), reasons[-1])


class _Leader:
    """The label holder's side of one stage."""

    def __init__(
        self,
        channel: Channel,
        roles: Roles,
        key: PublicKey,
        columns: Floats,
        problem: Problem,
        program: Program,
        stage: int,
        weights: Floats,
        sizes: Mapping[str, int],
    ) -> None:
        width = program.width(len(columns), stage, roles)
        size = problem.size
        penalty = np.tile(program.l2 / size, (columns.shape[1], 1))
        penalty[-1] = 0.0  # the intercept
        self.block = Block(columns, penalty, width, weights)
        self._channel, self._roles, self._key = channel, roles, key
        self._program, self._stage, self._width = program, stage, width
        self._counts = GradientCount.of(problem, program.is_weighted(stage), columns.shape[1])
        self._sizes = sizes
        self._targets = encode(problem.targets, width.scores, bound=width.score_bound)
        self._weights = problem.weights / size
        if program.is_weighted(stage) and self._weights.max() > 2**width.row_weight_range:
            raise BoundExceeded(
                f"A row weighs more than {2**width.row_weight_range} times the average; "
                "use less extreme row weights."
            )

    def descend(self, history: list[Mapping[str, Any]], loss: float) -> Search:
        """All rounds of the stage."""
        search: Search | None = None
        two_terms = self._program.two_terms(self._stage, self._roles)
        if two_terms:
            self._send_row_weights()
        for number in range(self._program.max_rounds + 1):
            here = self._channel.within(f"round {number}")
            for party in self._roles.feature_holders:
                self._counts.release(here, party, self._sizes[party], number)
            sums = self._two_terms(here) if two_terms else self._residual(here)
            if search is None:
                gain = self.block.begin(sums)
                shape = (len(gain),)
                for party in self._roles.feature_holders:
                    gain = gain + numbers_of(here.receive(party, "gain"), party, "gain", shape)
                search = Search(gain, self._program.tolerance)
            else:
                step = search.step([self.block.measure(sums), *self._receive_terms(here, shape)])
                for party in self._roles.feature_holders:
                    here.send(party, "step", Aggregate(np.array(step)))
                self.block.move(step)
                value = loss - float(search.decrease.mean())
                line = {"stage": self._stage, "round": number, "loss": value}
                history.append({**line, "gain": float(search.gain.mean())})
            go_on = not search.done and number < self._program.max_rounds
            for party in (*self._roles.feature_holders, self._roles.key_holder):
                here.send(party, "another round", go_on)
            if not go_on:
                break
        if search is None:
            raise DataError("A descent needs at least one round.")
        return search

    def _residual(self, channel: Channel) -> Integers:
        """Step 2 by residual: v ∘ (Σ scores − y) under encryption, back to all feature holders."""
        own = self.block.scores() - self._targets
        products = self._width.row_weights > 0
        use: Use = "any" if products else "inner"
        residual = self._key.encrypt(own, use=use, bound=2 * self._width.score_bound)
        for party in self._roles.feature_holders:
            scores = load_array(self._key, channel.receive(party, "scores"), party, own.shape)
            residual = residual + scores
        if products:
            residual = residual * encode(self._weights, self._width.row_weights)
        for party in self._roles.feature_holders:
            channel.send(party, "residual", residual.to_wire())
        return open_masked(channel, self._roles, [residual.inner(self.block.columns)])[0]

    def _send_row_weights(self) -> None:
        (party,) = self._roles.feature_holders
        bits = self._width.scores
        bound = 1 << (self._width.row_weight_range + bits)
        weights = encode(self._weights, bits)
        arrays = [self._key.encrypt(v, use="inner", bound=bound) for v in weights.T]
        self._channel.send(party, "row weights", bundled(arrays))

    def _two_terms(self, channel: Channel) -> Integers:
        """Step 2 in two terms: what each side needs crosses at once, nobody waits for the other."""
        (party,) = self._roles.feature_holders
        own = self.block.scores() - self._targets
        bits, columns = self._width.scores, self.block.columns
        weighted = encode(self._weights * decode(own, bits), bits)
        bound = (2 * self._width.score_bound) << self._width.row_weight_range
        arrays = [self._key.encrypt(u, use="inner", bound=bound) for u in weighted.T]
        channel.send(party, "residual", bundled(arrays))
        requests = []
        came = unbundled(channel.receive(party, "scores"), party)
        for t, value in enumerate(came):
            theirs = load_array(self._key, value, party, (len(columns),))
            mine = np.rint(columns * self._weights[:, [t]]).astype(np.int64)
            requests.append(theirs.inner(mine) + columns.T @ weighted[:, t])
        return np.stack(open_masked(channel, self._roles, requests))

    def _receive_terms(self, channel: Channel, shape: tuple[int]) -> list[Terms]:
        wanted = (len(Terms._fields), *shape)
        return [
            Terms(*numbers_of(channel.receive(party, "terms"), party, "terms", wanted))
            for party in self._roles.feature_holders
        ]


def _feature_residual(channel: Channel, roles: Roles, key: PublicKey, block: Block) -> Integers:
    leader = roles.label_holder
    scores = block.scores()
    use: Use = "any" if block.width.row_weights else "inner"
    encrypted = key.encrypt(scores, use=use, bound=block.width.score_bound)
    channel.send(leader, "scores", encrypted.to_wire())
    residual = load_array(key, channel.receive(leader, "residual"), leader, scores.shape)
    requests = [residual.inner(block.columns)] if block.columns.shape[1] else []
    opened = open_masked(channel, roles, requests)
    return opened[0] if opened else np.zeros((scores.shape[1], 0), dtype=np.int64)


def _feature_two_terms(
    channel: Channel, roles: Roles, key: PublicKey, block: Block, row_weights: list[EncryptedArray]
) -> Integers:
    leader = roles.label_holder
    scores = block.scores()
    bound = block.width.score_bound
    arrays = [key.encrypt(s, use="inner", bound=bound) for s in scores.T]
    channel.send(leader, "scores", bundled(arrays))
    residuals = unbundled(channel.receive(leader, "residual"), leader)
    if block.columns.shape[1] == 0:
        return np.zeros((scores.shape[1], 0), dtype=np.int64)
    requests = []
    for v, value, own in zip(row_weights, residuals, scores.T, strict=True):
        residual = load_array(key, value, leader, (len(own),))
        scored = _product(block.columns, own, block.width)
        requests.append(v.inner(scored) + residual.inner(block.columns))
    return np.stack(open_masked(channel, roles, requests))


# ---- small pieces --------------------------------------------------------------------------------


def _requests(
    program: Program, roles: Roles, stage: int, number: int, party: str, models: int
) -> list[str]:
    """The names of a party's requests in one round."""
    count = models if program.two_terms(stage, roles) else 1
    return [f"{stage}/{number}/{party}/{model}" for model in range(count)]


def _declared(
    roles: Roles, program: Program, columns: Mapping[str, int], models: int, rows: int
) -> dict[str, tuple[int, ...]]:
    """Every request that the training may make, with its shape."""
    declared: dict[str, tuple[int, ...]] = {}
    for stage in range(program.stages):
        if stage + 1 < program.stages:
            declared[f"{stage}/total"] = (rows, models)
        for number in range(program.max_rounds + 1):
            for party, size in columns.items():
                shape = (size,) if program.two_terms(stage, roles) else (models, size)
                names = _requests(program, roles, stage, number, party, models)
                declared |= dict.fromkeys(names, shape)
    return declared


def _product(columns: Integers, scores: Integers, width: Width) -> Integers:
    """Columns times one party's own scores, at the width of the columns."""
    return shift(columns * scores[:, None], width.scores)


def _objective(problem: Problem, scores: Floats, size: Floats) -> float:
    """The data part of the objective where a stage begins, averaged over the models."""
    squares = problem.weights / size * (scores - problem.targets) ** 2
    return float(squares.mean()) / 2


def _reason(search: Search) -> str:
    """Why a stage ended: the reason of the model that took longest."""
    if not search.done:
        return "max_rounds"
    return "precision" if "precision" in search.reasons else "converged"


def _check_sizes(
    channel: Channel, roles: Roles, columns: Floats, rarest: Rarest, program: Program
) -> dict[str, int]:
    """Everybody's columns, once they are few enough for the rows."""
    sizes = {channel.me: columns.shape[1] - 1}
    for party in roles.feature_holders:
        sizes[party] = announced(channel, party, "columns", 0, MOST)
    check_sizes(
        sizes,
        channel.me,
        len(columns),
        rarest,
        program.rows_per_column,
        program.rare_rows_per_column,
    )
    return sizes
