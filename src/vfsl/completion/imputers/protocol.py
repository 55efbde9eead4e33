"""VF-GAIN: GAIN across two parties; one party's columns help through a learned embedding.

Holds   the embedder (A): its columns, an embedding network. The imputer (B): its columns, the
        generator, the discriminator. Rows are aligned; A also has rows that B lacks.
Learns  B: an embedding of each of A's rows, aligned or to be completed: it may read from them what
        the network has learned to put there, as much of A's columns as helps to predict B's.
        A: the gradient of B's loss for each aligned row: over many rounds it tells A about B's
        hidden values of that row; and when training stops. Nobody else takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.completion.base import Completed
from vfsl.completion.imputers.shares import EmbedderShare, FillerShare
from vfsl.completion.imputers.split import Embedder, Filler, Plan
from vfsl.completion.layers import source_from
from vfsl.completion.training import arrays_of
from vfsl.data import PartyTable
from vfsl.data.checks import counted
from vfsl.draws import ANNOUNCED_BITS, draw_announced_seed
from vfsl.errors import DataError
from vfsl.parallel import using_threads
from vfsl.values import Array, Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "rows": Disclosure(int, "how many rows of the sender take part"),
    "order seed": Disclosure(int, "a random number that orders the batches; nothing about data"),
    "embedding": Disclosure(
        np.ndarray,
        "a learned vector of each row, from which its receiver may guess the sender's columns as "
        "far as they help to predict the receiver's own",
    ),
    "gradient": Disclosure(
        np.ndarray,
        "how the sender's loss changes with each row's vector, from which its receiver may guess "
        "the sender's hidden values of that row",
    ),
    "verdict": Disclosure(
        int, "whether this round was the best so far, and whether it is the last"
    ),
}

SCOPE = "vfgain"
GO_ON, BEST, STOP = 0, 1, 2


def train_embedder(
    channel: Channel, table: PartyTable, imputer: str, plan: Plan, rng: np.random.Generator
) -> EmbedderShare:
    """A's side of training on its aligned rows, in the common order."""
    channel = channel.within(SCOPE, DISCLOSURES)
    with using_threads(plan.threads):
        embedder = Embedder.learn(plan, table, rng)
        inputs = embedder.inputs(table)
        _same_length(channel, imputer, len(table))
        seed = channel.receive(imputer, "order seed")
        order = torch.Generator().manual_seed(
            expect_integer(
                seed, sender=imputer, name="order seed", low=0, high=2**ANNOUNCED_BITS - 1
            )
        )
        held = plan.held(len(table))
        best = _copied(embedder.networks)
        for epoch in range(plan.epochs):
            scope = channel.within(f"epoch {epoch}")
            for rows in plan.batches(len(table) - held, order):
                vectors = embedder.embed(inputs[held + rows])
                scope.release(imputer, "embeddings", vectors.numel())
                scope.send(imputer, "embedding", vectors.detach().numpy())
                gradient = expect_array(
                    scope.receive(imputer, "gradient"),
                    sender=imputer,
                    name="gradient",
                    holds="float",
                    shape=tuple(vectors.shape),
                )
                embedder.update(vectors, torch.from_numpy(np.array(gradient)))
            scope.release(imputer, "embeddings", held * plan.embedding)
            with torch.no_grad():
                scope.send(imputer, "embedding", embedder.embed(inputs[:held]).numpy())
            verdict = expect_integer(
                scope.receive(imputer, "verdict"), sender=imputer, name="verdict", low=0, high=2
            )
            if verdict == BEST:
                best = _copied(embedder.networks)
            elif verdict == STOP:
                break
        return EmbedderShare(embedder.encoder.to_dict(), best, epoch + 1)


def train_filler(
    channel: Channel,
    table: PartyTable,
    embedder: str,
    plan: Plan,
    rng: np.random.Generator,
    known: Sequence[str] = (),
) -> FillerShare:
    """B's side of training on its aligned rows, in the common order."""
    channel = channel.within(SCOPE, DISCLOSURES)
    with using_threads(plan.threads):
        filler = Filler.learn(plan, table, known, rng)
        rows = filler.rows(table)
        _same_length(channel, embedder, len(table))
        seed = draw_announced_seed(rng)
        channel.send(embedder, "order seed", seed)
        order = torch.Generator().manual_seed(seed)
        held = plan.held(len(table))
        rounds: list[dict[str, Any]] = []
        best, best_epoch = _copied(filler.networks), 0
        reason = f"all {plan.epochs} epochs"
        for epoch in range(plan.epochs):
            scope = channel.within(f"epoch {epoch}")
            for batch in plan.batches(len(table) - held, order):
                vectors = _vectors(scope, embedder, len(batch), plan)
                gradient = filler.step(rows.take(held + batch), vectors)
                scope.release(embedder, "gradients of embeddings", gradient.numel())
                scope.send(embedder, "gradient", gradient.numpy())
            score = filler.judge(rows.take(slice(held)), _vectors(scope, embedder, held, plan))
            better = not rounds or score < min(one["held-out loss"] for one in rounds)
            rounds.append({"round": epoch + 1, "held-out loss": score})
            if better:
                best_epoch = epoch
                best = _copied(filler.networks)
                filler.keep_spread()
            stop = epoch - best_epoch >= plan.patience
            scope.send(embedder, "verdict", BEST if better else STOP if stop else GO_ON)
            if stop:
                reason = f"no better held-out loss for {plan.patience} epochs"
                break
        return FillerShare(
            filler.encoder.to_dict(), best, filler.known, filler.spread, tuple(rounds), reason
        )


def complete_embedder(
    channel: Channel, table: PartyTable, share: EmbedderShare, imputer: str, plan: Plan
) -> None:
    """A's side of completion: one vector for each of its rows that B lacks."""
    channel = channel.within(SCOPE, DISCLOSURES)
    with torch.no_grad(), using_threads(plan.threads):
        embedder = share.embedder(plan)
        vectors = embedder.embed(embedder.inputs(table)).numpy()
    channel.send(imputer, "rows", len(table))
    channel.release(imputer, "embeddings", vectors.size)
    channel.send(imputer, "embedding", vectors)


def complete_filler(
    channel: Channel,
    share: FillerShare,
    embedder: str,
    plan: Plan,
    rng: np.random.Generator,
    preliminary: PartyTable | None = None,
) -> Completed:
    """B's side of completion: its columns for rows that only A has, in A's order.

    ``preliminary`` holds what B already has of these rows, such as columns completed before.
    """
    channel = channel.within(SCOPE, DISCLOSURES)
    count = expect_integer(
        channel.receive(embedder, "rows"), sender=embedder, name="rows", low=1, high=1 << 40
    )
    vectors = _vectors(channel, embedder, count, plan)
    filler = share.filler(plan, source_from(rng))
    table = filler.encoder.empty(count) if preliminary is None else preliminary
    if len(table) != count:
        raise DataError(
            f"Party {channel.me!r} has preliminary values for {counted(len(table), 'row')}, but "
            f"{embedder!r} has {count:,} to complete."
        )
    with using_threads(plan.threads):
        return filler.complete(table, vectors)


def _vectors(channel: Channel, sender: str, rows: int, plan: Plan) -> Tensor:
    came = expect_array(
        channel.receive(sender, "embedding"),
        sender=sender,
        name="embedding",
        holds="float",
        shape=(rows, plan.embedding),
    )
    return torch.from_numpy(np.array(came, dtype=np.float32))


def _copied(networks: nn.Module) -> dict[str, Array]:
    """Weights as they are now; what arrays_of gives would change with the next step."""
    return {key: value.copy() for key, value in arrays_of(networks).items()}


def _same_length(channel: Channel, peer: str, rows: int) -> None:
    channel.send(peer, "rows", rows)
    theirs = expect_integer(
        channel.receive(peer, "rows"), sender=peer, name="rows", low=0, high=1 << 40
    )
    if theirs != rows or rows < 20:
        raise DataError(
            f"VF-GAIN needs the same aligned rows at both parties, at least 20. Party "
            f"{channel.me!r} has {rows:,} and {peer!r} has {theirs:,}."
        )
