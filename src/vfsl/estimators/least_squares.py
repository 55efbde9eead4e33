"""Least squares across parties for many models at once, by the four steps of the VFL literature.

Holds   the label holder: columns, targets and row weights; each feature holder: columns; the key
        holder: the secret key, no data.
Learns  a feature holder: its own gradients, the common step lengths, the effective penalty, how
        many columns the label holder has (it counts what that one's gradients show of it). The
        label holder: its own gradients and, from each feature holder, three sums per round and
        model; with several stages, the total score of each row between two of them, with noise
        that each feature holder adds. The key holder: uniformly masked numbers, how many columns,
        rows, models and rounds there are. The first gradient is a sum over rows by label, see
        privacy.py.

Each round (1) uses the key that the key holder made for this run; (2) the parties exchange
encrypted scores and residuals; (3) every party forms its encrypted gradients, masks them and sends
them to the key holder; (4) the key holder returns the masked values, each party unmasks and moves.
The objective, which is a quadratic, needs no message: each exact step lowers it by half its length
times the gain. It is not the log-loss; shared/true_loss.py says how that is found.

With equal row weights, or several feature holders, the label holder forms the encrypted residual
v ∘ (Σ scores − y) and returns it. With row weights and one feature holder B nothing needs an
element-wise product of ciphertexts: B's gradient is ⟨Enc(v), x ∘ s_B⟩ + ⟨Enc(v ∘ (s_C − y)), x⟩,
the label holder's is ⟨Enc(s_B), v ∘ x⟩ + plain terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vfsl.channel import Channel
from vfsl.crypto import EncryptedArray, KeyHolder, PublicKey
from vfsl.crypto.fixed import decode, encode, shift
from vfsl.crypto.scheme import Use
from vfsl.errors import BoundExceeded, ProtocolError
from vfsl.estimators import privacy
from vfsl.estimators.descent import Block, Problem, Program, RoundSums, Search, Step
from vfsl.estimators.exchange import (
    MOST,
    MOST_ROWS,
    SCORE_BOUND,
    TOTALS,
    bundle,
    encode_scores,
    load_array,
    open_masked,
    open_total,
    receive_count,
    receive_numbers,
    send_fresh_key,
    unbundle,
)
from vfsl.parts import Roles
from vfsl.values import (
    Aggregate,
    Ciphertext,
    Disclosure,
    Disclosures,
    Floats,
    Integers,
    Masked,
)

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
    "total": TOTALS["total"],
}


def disclosures(program: Program) -> Disclosures:
    """The same with what the label holder sees of total scores in that program."""
    fact = privacy.describe_look(program.look_noise)
    return {**DISCLOSURES, "opened total": Disclosure(Masked, fact)}


@dataclass(frozen=True)
class Problems:
    """What a model makes of its label: a problem per stage, and what must be known of the label.

    ``pose_problem`` takes the number of a stage and the total scores so far, (rows, models).
    """

    pose_problem: Callable[[int, Floats], Problem]
    rarest: privacy.Rarest
    weighted: bool
    facts: dict[str, Any]  # for the label holder's share


@dataclass(frozen=True)
class Solution:
    """One party's weights (columns, models); at the label holder also what happened.

    ``path`` has its weights after each round, the last ones if there was none.
    """

    weights: Floats
    path: Sequence[Floats]
    rounds: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str | None = None


# ---- the three roles side by side ----------------------------------------------------------------


def train_key_holder(channel: Channel, roles: Roles, program: Program) -> None:
    """Make a key, then open what was announced: each party's masked gradients, once per round."""
    secret = send_fresh_key(channel, roles)
    models = receive_count(channel, roles.label_holder, "models", 1, MOST)
    program = replace(program, weighted=channel.receive(roles.label_holder, "weighted"))
    rows = receive_count(channel, roles.label_holder, "rows", 1, MOST_ROWS)
    columns = {
        party: receive_count(channel, party, "columns", 0, MOST) for party in roles.data_holders
    }
    asking = [party for party in roles.data_holders if columns[party]]
    holder = KeyHolder(secret, _declared(roles, program, columns, models, rows))
    for stage in range(program.stages):
        here = channel.within(f"stage {stage}")
        for number in range(program.max_rounds + 1):
            now = here.within(f"round {number}")
            for party in asking:
                requests = unbundle(now.receive(party, "gradient"), party)
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
) -> Solution:
    """Send encrypted scores, learn one's own gradients, move as all others do.

    ``rng`` gives the noise on the scores that the label holder looks at.
    """
    leader = roles.label_holder
    models = receive_count(channel, leader, "models", 1, MOST)
    program = replace(program, weighted=channel.receive(leader, "weighted"))
    size = columns.shape[1]
    channel.send(roles.key_holder, "columns", size)
    channel.send(leader, "columns", size)
    theirs = receive_count(channel, leader, "columns", 1, MOST)
    weights: Floats = np.zeros((size, models))
    path: list[Floats] = []
    for stage in range(program.stages):
        here = channel.within(f"stage {stage}")
        width = program.width(len(columns), stage, roles)
        penalty = receive_numbers(here, leader, "penalty", (models,))
        block = Block(columns, np.tile(penalty, (size, 1)), width, weights)
        row_weights: list[EncryptedArray] = []
        if program.two_terms(stage, roles):
            sent = unbundle(here.receive(leader, "row weights"), leader)
            row_weights = [load_array(key, one, leader, (len(columns),)) for one in sent]
        for number in range(program.max_rounds + 1):
            now = here.within(f"round {number}")
            privacy.release_sums(now, leader, models, (size, theirs), number)
            if program.two_terms(stage, roles):
                sums = _feature_two_terms(now, roles, key, block, row_weights)
            else:
                sums = _feature_residual(now, roles, key, block)
            now.note_opened("gradient", (columns, decode(sums, width.sums)))
            if number == 0:
                now.send(leader, "gain", Aggregate(block.begin(sums)))
            else:
                now.send(leader, "terms", Aggregate(np.array(block.measure(sums))))
                block.move(Step(*receive_numbers(now, leader, "step", (3, models))))
                path.append(block.best)
            if not now.receive(leader, "another round"):
                break
        weights = block.best
        if stage + 1 < program.stages:
            noise = program.look_noise * rng.standard_normal((len(columns), models))
            total = key.encrypt(
                encode_scores(columns, weights, noise), bound=SCORE_BOUND, use="add"
            )
            worth = privacy.count_look(noise.size, program.look_noise)
            here.release(leader, "total scores", noise.size, new=worth)
            here.send(leader, "scores", total.to_wire())
    return Solution(weights, path or [weights])


def train_label_holder(
    channel: Channel,
    columns: Floats,
    problems: Problems,
    roles: Roles,
    key: PublicKey,
    program: Program,
) -> Solution:
    """Pose the problem of each stage, lead its descent, and learn the scores between stages.

    ``columns`` ends with the constant column of the intercept, which is not penalised.
    """
    rows = len(columns)
    models = problems.pose_problem(0, np.zeros((rows, 0))).targets.shape[1]
    for party in (roles.key_holder, *roles.feature_holders):
        channel.send(party, "models", models)
        channel.send(party, "weighted", program.weighted)
    channel.send(roles.key_holder, "rows", rows)
    channel.send(roles.key_holder, "columns", columns.shape[1])
    for party in roles.feature_holders:
        channel.send(party, "columns", columns.shape[1])
    sizes = {channel.me: columns.shape[1] - 1}
    for party in roles.feature_holders:
        sizes[party] = receive_count(channel, party, "columns", 0, MOST)
    program.check_sizes(sizes, channel.me, rows, problems.rarest)
    weights: Floats = np.zeros((columns.shape[1], models))
    scores: Floats = np.zeros((rows, models))
    history: list[Mapping[str, Any]] = []
    path: list[Floats] = []
    reason = ""
    for stage in range(program.stages):
        here = channel.within(f"stage {stage}")
        problem = problems.pose_problem(stage, scores)
        size = problem.size
        for party in roles.feature_holders:
            here.send(party, "penalty", Aggregate(program.l2 / size))
        led = _Stage(here, roles, key, columns, problem, program, stage, weights, sizes)
        search = led.descend(history, path, _objective(problem, scores, size))
        weights = led.block.best
        reason = search.reason
        if stage + 1 < program.stages:
            scores = open_total(here, roles, key, encode_scores(columns, weights))
    return Solution(weights, path or [weights], tuple(history), reason)


@dataclass
class _Stage:
    """The label holder's side of one stage."""

    channel: Channel
    roles: Roles
    key: PublicKey
    columns: Floats
    problem: Problem
    program: Program
    stage: int
    start: Floats  # weights where the descent begins
    sizes: Mapping[str, int]  # every party's columns

    def __post_init__(self) -> None:
        self.width = self.program.width(len(self.columns), self.stage, self.roles)
        self.two_terms = self.program.two_terms(self.stage, self.roles)
        weighted, size = self.program.is_weighted(self.stage), self.problem.size
        penalty = np.tile(self.program.l2 / size, (self.columns.shape[1], 1))
        penalty[-1] = 0.0  # the intercept
        self.block = Block(self.columns, penalty, self.width, self.start)
        targets = self.problem.targets
        self.shown = privacy.GradientCount.of(targets, weighted, self.columns.shape[1])
        self.targets = encode(targets, self.width.scores, bound=self.width.score_bound)
        self.row_weights = self.problem.weights / size
        if weighted and self.row_weights.max() > 2**self.width.row_weight_range:
            raise BoundExceeded(
                f"A row weighs more than {2**self.width.row_weight_range} times the average; "
                "use less extreme row weights."
            )

    def descend(self, history: list[Mapping[str, Any]], path: list[Floats], loss: float) -> Search:
        """All rounds of the stage; each adds a line and its weights."""
        holders = self.roles.feature_holders
        if self.two_terms:
            self._send_row_weights()
        here = self.channel.within("round 0")
        gain = self.block.begin(self._gradient(here, 0))
        for party in holders:
            gain = gain + receive_numbers(here, party, "gain", gain.shape)
        search, number = Search(gain, self.program.tolerance), 0
        while self._goes_on(here, search, number):
            number += 1
            here = self.channel.within(f"round {number}")
            terms = [self.block.measure(self._gradient(here, number))]
            shape = (len(RoundSums._fields), *gain.shape)
            terms += [RoundSums(*receive_numbers(here, party, "terms", shape)) for party in holders]
            step = search.step(terms)
            for party in holders:
                here.send(party, "step", Aggregate(np.array(step)))
            self.block.move(step)
            path.append(self.block.best)
            value = loss - float(search.decrease.mean())
            line = {"stage": self.stage, "round": number, "objective": value}
            history.append({**line, "gain": float(search.gain.mean())})
        return search

    def _goes_on(self, channel: Channel, search: Search, number: int) -> bool:
        """Whether another round follows; everybody is told."""
        more = not search.done and number < self.program.max_rounds
        for party in (*self.roles.feature_holders, self.roles.key_holder):
            channel.send(party, "another round", more)
        return more

    def _gradient(self, channel: Channel, number: int) -> Integers:
        for party in self.roles.feature_holders:
            self.shown.release(channel, party, self.sizes[party], number)
        return self._from_two_terms(channel) if self.two_terms else self._from_residual(channel)

    def _from_residual(self, channel: Channel) -> Integers:
        """Step 2 by residual: v ∘ (Σ scores − y), encrypted, goes back to all feature holders."""
        own = self.block.scores() - self.targets
        products = self.width.row_weights > 0
        use: Use = "any" if products else "inner"
        residual = self.key.encrypt(own, use=use, bound=2 * self.width.score_bound)
        for party in self.roles.feature_holders:
            scores = load_array(self.key, channel.receive(party, "scores"), party, own.shape)
            residual = residual + scores
        if products:
            residual = residual * encode(self.row_weights, self.width.row_weights)
        for party in self.roles.feature_holders:
            channel.send(party, "residual", residual.to_wire())
        return open_masked(channel, self.roles, [residual.inner(self.block.columns)])[0]

    def _send_row_weights(self) -> None:
        (party,) = self.roles.feature_holders
        bits = self.width.scores
        bound = 1 << (self.width.row_weight_range + bits)
        weights = encode(self.row_weights, bits)
        arrays = [self.key.encrypt(v, use="inner", bound=bound) for v in weights.T]
        self.channel.send(party, "row weights", bundle(arrays))

    def _from_two_terms(self, channel: Channel) -> Integers:
        """Step 2 in two terms: what each side needs crosses at once, nobody waits for the other."""
        (party,) = self.roles.feature_holders
        own = self.block.scores() - self.targets
        bits, columns = self.width.scores, self.block.columns
        weighted = encode(self.row_weights * decode(own, bits), bits)
        bound = (2 * self.width.score_bound) << self.width.row_weight_range
        arrays = [self.key.encrypt(u, use="inner", bound=bound) for u in weighted.T]
        channel.send(party, "residual", bundle(arrays))
        requests = []
        for t, value in enumerate(unbundle(channel.receive(party, "scores"), party)):
            theirs = load_array(self.key, value, party, (len(columns),))
            mine = np.rint(columns * self.row_weights[:, [t]]).astype(np.int64)
            requests.append(theirs.inner(mine) + columns.T @ weighted[:, t])
        return np.stack(open_masked(channel, self.roles, requests))


def _feature_residual(channel: Channel, roles: Roles, key: PublicKey, block: Block) -> Integers:
    """A feature holder's gradient from the encrypted residual that the label holder returns."""
    leader = roles.label_holder
    scores = block.scores()
    use: Use = "any" if block.width.row_weights else "inner"
    encrypted = key.encrypt(scores, use=use, bound=block.width.score_bound)
    channel.send(leader, "scores", encrypted.to_wire())
    residual = load_array(key, channel.receive(leader, "residual"), leader, scores.shape)
    if block.columns.shape[1] == 0:
        return np.zeros((scores.shape[1], 0), dtype=np.int64)
    return open_masked(channel, roles, [residual.inner(block.columns)])[0]


def _feature_two_terms(
    channel: Channel, roles: Roles, key: PublicKey, block: Block, row_weights: list[EncryptedArray]
) -> Integers:
    """A feature holder's gradient from encrypted row weights and weighted residuals."""
    leader, scores = roles.label_holder, block.scores()
    arrays = [key.encrypt(s, use="inner", bound=block.width.score_bound) for s in scores.T]
    channel.send(leader, "scores", bundle(arrays))
    residuals = unbundle(channel.receive(leader, "residual"), leader)
    if block.columns.shape[1] == 0:
        return np.zeros((scores.shape[1], 0), dtype=np.int64)
    requests = []
    for v, value, own in zip(row_weights, residuals, scores.T, strict=True):
        residual = load_array(key, value, leader, (len(own),))
        scored = shift(block.columns * own[:, None], block.width.scores)
        requests.append(v.inner(scored) + residual.inner(block.columns))
    return np.stack(open_masked(channel, roles, requests))


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


def _objective(problem: Problem, scores: Floats, size: Floats) -> float:
    """The data part of the objective where a stage begins, averaged over the models."""
    squares = problem.weights / size * (scores - problem.targets) ** 2
    return float(squares.mean()) / 2
