"""VF-GAIN: GAIN across two parties; one party's columns help through a learned embedding.

Holds   the given party: its columns, an embedding network. The missing party: its columns, the
        generator, the discriminator. Rows are aligned; the given party also has rows that the
        missing one lacks.
Learns  the missing party: an embedding of each of the given party's rows, aligned or to be
        completed: it may read from them what the network has learned to put there, as much of the
        given party's columns as helps to predict its own. The given party: the gradient of the
        other's loss for each aligned row: over many rounds it tells about the hidden values of that
        row; and when training stops. Nobody else takes part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.completion.base import Completed
from vfsl.completion.imputers.halves import Embedder, Filler, NetworkShare
from vfsl.completion.layers import source_from
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.sides import check_pair
from vfsl.completion.training import arrays_of
from vfsl.data import Kind, PartyTable, check_labels
from vfsl.data.checks import counted
from vfsl.draws import ANNOUNCED_BITS, draw_announced_seed
from vfsl.errors import ConfigError, DataError
from vfsl.federation import Federation
from vfsl.lead import Follower, Leader, disclose_orders
from vfsl.parallel import using_threads
from vfsl.params import check_params, documented, param
from vfsl.parts import Part, Roles
from vfsl.progress import Event, OnEvent
from vfsl.site import Site
from vfsl.store import Checkpoints
from vfsl.values import Disclosure, Disclosures

_HANDSHAKE = disclose_orders("nothing: epochs follow by themselves")
DISCLOSURES: Disclosures = {
    "rows": Disclosure(int, "how many rows of the sender take part"),
    "order seed": Disclosure(int, "a random number that orders the batches; nothing about data"),
    "kept": _HANDSHAKE["kept"],
    "resume": _HANDSHAKE["resume"],
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
_LEAST_ROWS = 20
_MOST = 1 << 40


@documented
@dataclass(kw_only=True)
class VFGAIN:
    """GAIN across two parties: complete one party's columns for rows that only the other has.

    Attributes
    ----------
    shares_ : dict of NetworkShare by party
        Each party's networks.
    rounds_ : tuple of dict
        The held-out loss of each epoch.
    stop_reason_ : str
    """

    name: ClassVar[str] = "vfgain"

    epochs: int = param(100, "Passes over the aligned rows.", ge=1)
    batch_size: int = param(256, "Rows whose embeddings are sent at a time.", ge=1)
    patience: int = param(
        15,
        "A tenth of the aligned rows only judges; training stops when their loss has not fallen "
        "for so many epochs.",
        ge=1,
    )
    embedding: int = param(
        16,
        "How many numbers the given party sends per row; more help more and tell more.",
        ge=1,
    )
    pieces: int = param(
        12,
        "Pieces, cut at quantiles, as which each party's network also sees each of its numbers. "
        "Where they are cut stays with the party; 0 switches them off.",
        ge=0,
    )
    width: int = param(128, "Width of hidden layers.", ge=1)
    rate: float = param(1e-3, "Learning rate of Adam at both parties.", ge=0)
    decay: float = param(1e-5, "Weight decay of Adam at both parties.", ge=0)
    hint: float = param(
        0.9,
        "Fraction of cells of which the discriminator is told whether they are known.",
        ge=0,
        le=1,
    )
    adversarial: float = param(0.01, "Weight of the adversarial loss.", ge=0)
    known: Sequence[str] = param(
        (),
        "Columns of the missing party that it will have for the rows to complete, such as those "
        "completed before; all others are hidden together in training.",
    )
    threads: int = param(1, "Threads of PyTorch.", ge=1)

    # ---- for people ---------------------------------------------------------------------------

    def fit(self, fed: Federation, given: str = "A", missing: str = "B") -> Self:
        """Train on the aligned rows.

        Parameters
        ----------
        fed : Federation
            Aligned.
        given : str
            The party whose columns help.
        missing : str
            The party whose columns will be completed.
        """
        check_params(self)
        for party in (given, missing):
            if party not in fed.tables:
                raise ConfigError(
                    f"VF-GAIN was asked for party {party!r}; known are {', '.join(fed.tables)}."
                )
        check_labels(fed.tables, (given, missing))
        roles = Roles(missing, (given,), fed.key_holder)
        play = partial(_play_training, model=self, roles=roles)
        self._take(fed.play(play, parties=(given, missing)))
        return self

    def complete(self, fed: Federation, preliminary: PartyTable | None = None) -> Completed:
        """The missing party's columns for the other's remaining rows, in that party's order.

        Parameters
        ----------
        fed : Federation
        preliminary : PartyTable, optional
            What the missing party already has of these rows: its columns, in this order.
        """
        if not hasattr(self, "shares_"):
            raise ConfigError("VFGAIN is not fitted yet: call fit first.")
        given, missing = self.parties_
        check_pair(given, missing, fed.sites[given].standing.aligned)
        if not len(fed.share(given).rest):
            raise DataError(f"Party {given!r} has no rows beyond the aligned ones to complete.")
        roles = Roles(missing, (given,), fed.key_holder)
        own: dict[str, dict[str, Any]] = {
            party: {"share": self.shares_[party]} for party in self.parties_
        }
        own[missing]["preliminary"] = preliminary
        play = partial(_play_completion, model=self, roles=roles)
        done: Completed = fed.play(play, own=own, parties=self.parties_)[missing]
        return done

    def settings(self) -> dict[str, Any]:
        """What both parties know of the model, as JSON values.

        Names of known columns are the missing party's and stand in its share; threads belong to
        the machine.
        """
        return {k: v for k, v in asdict(self).items() if k not in ("known", "threads")}

    def restore(self, shares: Mapping[str, NetworkShare], where: str) -> None:
        """Take up the shares of both parties, which must fit the settings."""
        for share in shares.values():
            half = Embedder if share.role == "embedder" else Filler
            half.of_share(self, share, torch.Generator(), where)
        self._take(shares)
        self.known = list(self.shares_[self.parties_[1]].state["known"])

    def _take(self, shares: Mapping[str, NetworkShare]) -> None:
        by_role = {share.role: party for party, share in shares.items()}
        self.parties_ = (by_role["embedder"], by_role["filler"])
        self.shares_ = dict(shares)
        filler = self.shares_[self.parties_[1]]
        self.rounds_, self.stop_reason_ = filler.rounds, filler.stop_reason

    # ---- a party's side -----------------------------------------------------------------------

    def train(
        self,
        channel: Channel,
        part: Part,
        *,
        roles: Roles,
        rng: np.random.Generator,
        kept: Checkpoints | None = None,
        on_event: OnEvent | None = None,
    ) -> NetworkShare:
        """One party's side of training.

        Parameters
        ----------
        channel : Channel
        part : Part
            The party's table and its common rows.
        roles : Roles
            The missing party is the label holder, the given party the first feature holder.
        rng : numpy Generator
            The party's private draws.
        kept : Checkpoints, optional
            Where the party keeps its networks every ten epochs; both go on from the last epoch that
            both have kept. Who calls this clears them once the share is safe.
        on_event : callable, optional
            Hears of each finished epoch, at the missing party.

        Returns
        -------
        NetworkShare
            The party's own; it never leaves it.
        """
        check_params(self)
        channel = channel.within(SCOPE, DISCLOSURES)
        table = part.table.take(part.rows)
        kept = Checkpoints(None) if kept is None else kept
        with using_threads(self.threads):
            if channel.me == roles.label_holder:
                return _train_filler(self, channel, table, roles, rng, kept, on_event)
            return _train_embedder(self, channel, table, roles, rng, kept)

    def complete_rows(
        self,
        channel: Channel,
        part: Part,
        share: NetworkShare,
        *,
        roles: Roles,
        rng: np.random.Generator,
        preliminary: PartyTable | None = None,
    ) -> Completed | None:
        """One party's side of completing the rows that only the given party has.

        Parameters
        ----------
        channel : Channel
        part : Part
            At the given party its table and its remaining rows; the missing party's is not used.
        share : NetworkShare
            What the party's side of training returned.
        roles : Roles
            As in training.
        rng : numpy Generator
            The party's private draws.
        preliminary : PartyTable, optional
            What the missing party already has of these rows, such as columns completed before.

        Returns
        -------
        Completed or None
            At the missing party its columns for these rows, in the given party's order.
        """
        channel = channel.within(SCOPE, DISCLOSURES)
        with torch.no_grad(), using_threads(self.threads):
            if channel.me == roles.label_holder:
                return _fill_rows(self, channel, share, roles, rng, preliminary)
            _send_rows(self, channel, part.table.take(part.rest), share, roles)
            return None


def _play_training(site: Site, channel: Channel, model: VFGAIN, roles: Roles) -> NetworkShare:
    """One party's side of :meth:`VFGAIN.fit`."""
    settings = {"given": roles.feature_holders[0], "missing": roles.label_holder}
    settings |= model.settings() | {"threads": model.threads}
    missing = site.me == roles.label_holder
    if missing:
        settings["known"] = list(model.known)
    with site.records("train vfgain", channel, settings) as outcome:
        share = model.train(
            channel,
            _part_of(site),
            roles=roles,
            rng=site.private_rng("vfgain"),
            kept=site.checkpoints("vfgain", settings),
            on_event=site.on_event,
        )
        if missing:
            outcome.rounds, outcome.stop_reason = share.rounds, share.stop_reason
    return share


def _play_completion(
    site: Site,
    channel: Channel,
    model: VFGAIN,
    roles: Roles,
    share: NetworkShare,
    preliminary: PartyTable | None = None,
) -> Completed | None:
    """One party's side of :meth:`VFGAIN.complete`."""
    settings = {"given": roles.feature_holders[0], "missing": roles.label_holder}
    part, rng = _part_of(site), site.private_rng("vfgain complete")
    with site.records("complete vfgain", channel, settings) as outcome:
        done = model.complete_rows(
            channel, part, share, roles=roles, rng=rng, preliminary=preliminary
        )
        if done is None:
            outcome.metrics = {"rows": len(part.rest)}
    return done


def _part_of(site: Site) -> Part:
    return Part(site.own_table(), site.rows().overlap, rest=site.rows().rest)


# ---- the two sides of training -------------------------------------------------------------------


def _train_embedder(
    model: VFGAIN,
    channel: Channel,
    table: PartyTable,
    roles: Roles,
    rng: np.random.Generator,
    kept: Checkpoints,
) -> NetworkShare:
    """The given party's side: vectors go out, gradients come back."""
    peer = roles.label_holder
    embedder = Embedder.learn(model, table, rng)
    inputs = embedder.inputs(table)
    _check_same_length(channel, peer, len(table))
    seed = channel.receive(peer, "order seed")
    most = 2**ANNOUNCED_BITS - 1
    order = torch.Generator().manual_seed(
        expect_integer(seed, sender=peer, name="order seed", low=0, high=most)
    )
    held = _held_rows(len(table))
    start = Follower(channel, peer, marks=kept.numbers("epoch")).resumed
    _, best = embedder.resume(kept, start, order)
    done = start
    while done < model.epochs:
        scope = channel.within(f"epoch {done}")
        for rows in _batches(model, len(table) - held, order):
            vectors = embedder.embed(inputs[held + rows])
            _send_vectors(scope, peer, vectors)
            gradient = expect_array(
                scope.receive(peer, "gradient"),
                sender=peer,
                name="gradient",
                holds="float",
                shape=tuple(vectors.shape),
            )
            embedder.update(vectors, torch.from_numpy(np.array(gradient)))
        with torch.no_grad():
            _send_vectors(scope, peer, embedder.embed(inputs[:held]))
        verdict = expect_integer(
            scope.receive(peer, "verdict"), sender=peer, name="verdict", low=0, high=2
        )
        done += 1
        if verdict == BEST:
            best = arrays_of(embedder.networks)
        elif verdict == STOP:
            break
        embedder.keep(kept, done, {}, order, best)
    rounds = tuple({"round": number + 1} for number in range(done))
    state = {"role": "embedder", "encoder": embedder.encoder.to_dict()}
    return NetworkShare(channel.me, model.name, state, rounds, arrays=best)


def _train_filler(
    model: VFGAIN,
    channel: Channel,
    table: PartyTable,
    roles: Roles,
    rng: np.random.Generator,
    kept: Checkpoints,
    on_event: OnEvent | None,
) -> NetworkShare:
    """The missing party's side: it fills hidden cells by the vectors, and judges each epoch."""
    peer = roles.feature_holders[0]
    filler = Filler.learn(model, table, rng)
    rows = filler.rows(table)
    _check_same_length(channel, peer, len(table))
    seed = draw_announced_seed(rng)
    channel.send(peer, "order seed", seed)
    order = torch.Generator().manual_seed(seed)
    held = _held_rows(len(table))
    start = Leader(channel, [peer], marks=kept.numbers("epoch")).resumed
    value, best = filler.resume(kept, start, order)
    rounds: list[dict[str, Any]] = value.get("rounds", [])
    best_epoch, filler.spread = value.get("best epoch", 0), value.get("spread", {})
    reason = f"all {model.epochs} epochs"
    for epoch in range(start, model.epochs):
        scope = channel.within(f"epoch {epoch}")
        for batch in _batches(model, len(table) - held, order):
            vectors = _receive_vectors(scope, peer, len(batch), model)
            gradient = filler.step(rows.take(held + batch), vectors)
            scope.release(peer, "gradients of embeddings", gradient.numel())
            scope.send(peer, "gradient", gradient.numpy())
        vectors = _receive_vectors(scope, peer, held, model)
        score, spread = filler.judge(rows.take(slice(held)), vectors)
        better = not rounds or score < min(one["held-out loss"] for one in rounds)
        rounds.append({"round": epoch + 1, "held-out loss": score})
        if better:
            best, best_epoch, filler.spread = arrays_of(filler.networks), epoch, spread
        stop = epoch - best_epoch >= model.patience
        if not stop:
            value = {"rounds": rounds, "best epoch": best_epoch, "spread": filler.spread}
            filler.keep(kept, epoch + 1, value, order, best)
        scope.send(peer, "verdict", BEST if better else STOP if stop else GO_ON)
        if on_event is not None:
            on_event(Event("train vfgain", "epoch", epoch + 1, model.epochs))
        if stop:
            reason = f"no better held-out loss for {model.patience} epochs"
            break
    state = {
        "role": "filler",
        "encoder": filler.encoder.to_dict(),
        "known": list(model.known),
        "spread": filler.spread,
    }
    return NetworkShare(channel.me, model.name, state, tuple(rounds), reason, arrays=best)


def _held_rows(rows: int) -> int:
    """How many of the aligned rows, the first ones, only judge."""
    return max(rows // 10, 1)


def _batches(model: VFGAIN, rows: int, source: torch.Generator) -> tuple[Tensor, ...]:
    """All rows once, in a random order that both parties draw alike."""
    order = torch.randperm(rows, generator=source)
    return order.tensor_split(max(round(rows / model.batch_size), 1))


def _check_same_length(channel: Channel, peer: str, rows: int) -> None:
    channel.send(peer, "rows", rows)
    theirs = expect_integer(
        channel.receive(peer, "rows"), sender=peer, name="rows", low=0, high=_MOST
    )
    if theirs != rows or rows < _LEAST_ROWS:
        raise DataError(
            f"VF-GAIN needs the same aligned rows at both parties, at least {_LEAST_ROWS}. Party "
            f"{channel.me!r} has {rows:,} and {peer!r} has {theirs:,}."
        )


# ---- the two sides of completion -----------------------------------------------------------------


def _send_rows(
    model: VFGAIN, channel: Channel, table: PartyTable, share: NetworkShare, roles: Roles
) -> None:
    """The given party's side: one vector for each of its rows that the other lacks."""
    embedder = Embedder.of_share(model, share, torch.Generator())
    channel.send(roles.label_holder, "rows", len(table))
    _send_vectors(channel, roles.label_holder, embedder.embed(embedder.inputs(table)))


def _fill_rows(
    model: VFGAIN,
    channel: Channel,
    share: NetworkShare,
    roles: Roles,
    rng: np.random.Generator,
    preliminary: PartyTable | None,
) -> Completed:
    """The missing party's side: its columns for these rows, in the order of the given party."""
    peer = roles.feature_holders[0]
    count = expect_integer(
        channel.receive(peer, "rows"), sender=peer, name="rows", low=1, high=_MOST
    )
    vectors = _receive_vectors(channel, peer, count, model)
    filler = Filler.of_share(model, share, source_from(rng))
    table = _empty_table(filler.encoder, count) if preliminary is None else preliminary
    if len(table) != count:
        raise DataError(
            f"Party {channel.me!r} has preliminary values for {counted(len(table), 'row')}, but "
            f"{peer!r} has {count:,} to complete."
        )
    return filler.complete(table, vectors)


def _empty_table(encoder: MixedEncoder, rows: int) -> PartyTable:
    """A table of the learned columns in which every cell is missing."""
    columns = {
        name: np.full(rows, np.nan) if kind is Kind.NUMERIC else [None] * rows
        for name, kind in encoder.kinds.items()
    }
    frame = pd.DataFrame(columns, index=pd.RangeIndex(rows))
    return PartyTable(encoder.party_, np.arange(rows), frame, encoder.kinds)


def _send_vectors(channel: Channel, to: str, vectors: Tensor) -> None:
    channel.release(to, "embeddings", vectors.numel())
    channel.send(to, "embedding", vectors.detach().numpy())


def _receive_vectors(channel: Channel, sender: str, rows: int, model: VFGAIN) -> Tensor:
    came = expect_array(
        channel.receive(sender, "embedding"),
        sender=sender,
        name="embedding",
        holds="float",
        shape=(rows, model.embedding),
    )
    return torch.from_numpy(np.array(came, dtype=np.float32))
