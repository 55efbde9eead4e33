"""The label holder's passes over the data: outputs of all parties in, their gradients out.

The label holder asks the same of each party, whether it is in this process (`Member`) or another
organisation (`Remote`): it plans a pass, then takes outputs and gives their gradients by turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vfsl.channel import Channel, expect_array
from vfsl.evidence.networks import Floats, Member, drop_empty
from vfsl.evidence.opinion import fuse, losses, opinion_of, probability
from vfsl.evidence.rows import Flags, Numbers, Universe, deal
from vfsl.lead import Leader
from vfsl.values import Array


def receive_floats(channel: Channel, sender: str, name: str, shape: tuple[int, ...]) -> Floats:
    """The next message of that name, which must be numbers of that shape."""
    said = channel.receive(sender, name)
    return expect_array(said, sender=sender, name=name, holds="float", shape=shape)


class Remote:
    """A party's network elsewhere; it says "scores" or "evidence" where it was last ordered to."""

    def __init__(self, party: str, says: str, classes: int, noisy: bool = False) -> None:
        self._party, self._says, self._classes, self._noisy = party, says, classes, noisy
        self.here: Channel
        self._sizes: list[int] = []

    def plan(self, rate: float, batches: Sequence[Numbers], with_fill: bool) -> None:
        work = drop_empty(batches, with_fill)
        self._sizes = [len(rows) + with_fill for rows in work][::-1]
        self._send_rows(work)

    def outputs(self) -> Floats:
        shape = (self._sizes.pop(), self._classes)
        return receive_floats(self.here, self._party, self._says, shape)

    def learn(self, gradient: Floats) -> None:
        what = f"gradient of {self._says}"
        # Of randomised labels these tell nothing beyond what their release was charged.
        new = 0 if self._noisy else None
        self.here.release(self._party, what, gradient.size, about="label", new=new)
        self.here.send(self._party, what, gradient)

    def answer(self, rows: Numbers, with_fill: bool) -> Floats:
        self._send_rows([rows])
        shape = (len(rows) + with_fill, self._classes)
        return receive_floats(self.here, self._party, self._says, shape)

    def _send_rows(self, batches: Sequence[Numbers]) -> None:
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *batches])
        ends = np.cumsum([len(batch) for batch in batches], dtype=np.int64)
        self.here.send(self._party, "rows", {"rows": rows, "ends": ends})


Peer = Member | Remote


@dataclass(frozen=True)
class Team:
    """All parties' networks of one stage."""

    universe: Universe
    peers: Mapping[str, Peer]  # in the order of the universe's parties
    leader: Leader | None = None  # of the parties elsewhere; None: all are in this process
    stage: str = ""

    def order(self, do: str, **facts: Any) -> None:
        """Tell parties elsewhere what comes next, before any peer is asked to do it."""
        if self.leader is None:
            return
        here = self.leader.order(do, stage=self.stage, **facts)
        for peer in self.peers.values():
            if isinstance(peer, Remote):
                peer.here = here

    def answer(self, rows: Numbers, with_fill: bool) -> list[Floats]:
        """What every party says of these rows; where it is absent, that of its mean row, or 0."""
        outputs = []
        self.order("answer", fill=with_fill)
        for party, peer in self.peers.items():
            local = self.universe.local(party, rows)
            here = local >= 0
            said = peer.answer(local[here], with_fill)
            full = np.zeros((len(rows), said.shape[1]), dtype=np.float32)
            full[here] = said[: int(here.sum())]
            if with_fill:
                full[~here] = said[-1]
            outputs.append(full)
        return outputs


# ---- one pass ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """What the networks are trained for."""

    evidential: bool  # outputs are evidence, fused as opinions; else scores, added up
    classes: int
    fills: bool  # an absent party says what it says of its mean row; else nothing
    fusion: str = "sequence"
    party_loss: float = 0.0  # weight of each party's own loss on the rows that it has

    def lengthen(self, output: Tensor, present: Flags) -> Tensor:
        """One output for each row of the batch; what was sent has present rows, then the mean row.

        No evidence at all is the vacuous opinion, and a score of 0 changes no sum.
        """
        if present.all():
            return output[: len(present)]
        index = np.cumsum(present) - 1
        index[~present] = int(present.sum())  # the mean row, or the row of zeros added here
        if not self.fills:
            output = functional.pad(output, (0, 0, 0, 1))
        return output.index_select(0, torch.as_tensor(index))

    def losses(
        self, outputs: Sequence[Tensor], present: Sequence[Flags], labels: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The weighted mean loss, and for each row the class probabilities and the uncertainty."""
        if self.evidential:
            opinions = [opinion_of(output) for output in outputs]
            fused = fuse(opinions, self.fusion)
            each, doubt = losses(fused, labels), fused.uncertainty.detach()
            chances = probability(fused).detach()
            own = [losses(opinion, labels) for opinion in opinions] if self.party_loss else []
        else:
            total = torch.stack(list(outputs)).sum(dim=0)
            each, chances = _cross_entropy(total, labels), torch.softmax(total.detach(), dim=1)
            doubt = 1 - chances.max(dim=1).values
            own = [_cross_entropy(output, labels) for output in outputs] if self.party_loss else []
        loss = (each * weights).mean()
        for losses_, here in zip(own, present, strict=False):
            present_weights = weights * torch.as_tensor(here, dtype=weights.dtype)
            loss = loss + self.party_loss * (losses_ * present_weights).mean()
        return loss, chances, doubt


def _cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores, labels, reduction="none")


class BatchResult(NamedTuple):
    """What one batch came to."""

    loss: float
    disputed: Array  # how much less likely than the likeliest class each row's label is
    uncertainty: Array


def train_batch(
    peers: Sequence[Peer],
    present: Sequence[Flags],
    labels: Numbers,
    weights: Array,
    objective: Objective,
) -> BatchResult:
    """One step of all parties; the others' outputs are waited for last, and answered first."""
    taking = [objective.fills or bool(here.any()) for here in present]
    sent = [peer.outputs() if takes else None for peer, takes in zip(peers, taking, strict=True)]
    leaves = [None if one is None else _leaf(one) for one in sent]
    nobody = torch.zeros(0, objective.classes, dtype=torch.float64)
    outputs = [
        objective.lengthen(nobody if leaf is None else leaf.double(), here)
        for leaf, here in zip(leaves, present, strict=True)
    ]
    loss, chances, uncertainty = objective.losses(
        outputs, present, torch.as_tensor(labels), torch.as_tensor(weights)
    )
    torch.autograd.backward([loss])
    for peer, leaf in reversed(list(zip(peers, leaves, strict=True))):
        if leaf is not None:
            gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            peer.learn(gradient.numpy())
    disputed = dispute(chances.numpy(), labels)
    return BatchResult(float(loss.detach()), disputed, uncertainty.numpy())


def dispute(chances: Array, labels: Numbers) -> Array:
    """1 − p_label / p_max: 0 where the label is the likeliest class, and before anything is known.

    The plain 1 − p_label starts at 1 − 1/K for every row, so at first all rows would leave.
    """
    return np.asarray(1 - chances[np.arange(len(labels)), labels] / chances.max(axis=1))


def _leaf(sent: Floats) -> Tensor:
    # A copy: what came over a channel is read-only.
    return torch.tensor(np.array(sent), requires_grad=True)


def train_pass(
    team: Team,
    rows: Numbers,
    labels: Numbers,
    weights: Array,
    objective: Objective,
    *,
    rate: float,
    batch_size: int,
    rng: np.random.Generator,
    turns: int = 1,
    see: Callable[[Numbers, BatchResult], None] | None = None,
) -> tuple[float, float]:
    """Train on these rows once, or several turns of them; the mean loss and the mean uncertainty.

    ``labels`` and ``weights`` are of all rows. ``see`` is given each batch and what it came to.
    """
    universe = team.universe
    batches = deal(rows, batch_size, rng, turns)
    total = turns * len(rows)
    local = {p: [universe.local(p, batch) for batch in batches] for p in universe.parties}
    team.order("train", rate=rate, fill=objective.fills)
    for party, peer in reversed(list(team.peers.items())):
        own = [numbers[numbers >= 0] for numbers in local[party]]
        peer.plan(rate, own, objective.fills)
    peers = list(team.peers.values())
    loss = uncertainty = 0.0
    for number, batch in enumerate(batches):
        present = [local[party][number] >= 0 for party in universe.parties]
        done = train_batch(peers, present, labels[batch], weights[batch], objective)
        if see is not None:
            see(batch, done)
        loss += done.loss * len(batch) / total
        uncertainty += float(done.uncertainty.sum()) / total
    return loss, uncertainty
