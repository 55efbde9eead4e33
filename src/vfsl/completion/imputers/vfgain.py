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

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.completion.base import Completed
from vfsl.completion.imputers.halves import Embedder, Filler, NetworkShare
from vfsl.completion.layers import source_from
from vfsl.completion.sides import check_pair
from vfsl.completion.training import History, Training, arrays_of, train_networks
from vfsl.data import PartyTable, check_labels
from vfsl.data.checks import counted
from vfsl.draws import ANNOUNCED_BITS, draw_announced_seed
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.federation import Federation
from vfsl.lead import Follower, Leader, disclose_orders
from vfsl.parallel import using_threads
from vfsl.params import check_params, documented, param
from vfsl.parts import Part, Roles
from vfsl.progress import OnEvent
from vfsl.site import Site
from vfsl.store import Checkpoints
from vfsl.values import Array, Disclosure, Disclosures

Rng = np.random.Generator
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
        play = partial(_play_training, roles=Roles(missing, (given,), fed.key_holder))
        own = {given: {"model": replace(self, known=())}, missing: {"model": replace(self)}}
        self._take(fed.play(play, own=own, parties=(given, missing)))
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
        model, roles = replace(self, known=()), Roles(missing, (given,), fed.key_holder)
        own: dict[str, dict[str, Any]] = {
            given: {"share": self.shares_[given]},
            missing: {"share": self.shares_[missing], "preliminary": preliminary},
        }
        play = partial(_play_completion, model=model, roles=roles)
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
        rng: Rng,
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
        missing = channel.me == roles.label_holder
        here, table = channel.within(SCOPE, DISCLOSURES), part.table.take(part.rows)
        with using_threads(self.threads):
            side: _Side
            if missing:
                side = _MissingSide(self, here, table, roles.feature_holders[0], rng)
            else:
                side = _GivenSide(self, here, table, roles.label_holder, rng)
            return side.train(len(table), kept or Checkpoints(None), on_event if missing else None)

    def complete_rows(
        self,
        channel: Channel,
        part: Part,
        share: NetworkShare,
        *,
        roles: Roles,
        rng: Rng,
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
        given, missing = roles.feature_holders[0], roles.label_holder
        with torch.no_grad(), using_threads(self.threads):
            if channel.me == given:
                table = part.table.take(part.rest)
                embedder = Embedder.of_share(self, share, torch.Generator())
                channel.send(missing, "rows", len(table))
                _send_vectors(channel, missing, embedder.embed(embedder.inputs(table)))
                return None
            count = expect_integer(
                channel.receive(given, "rows"), sender=given, name="rows", low=1, high=_MOST
            )
            vectors = _receive_vectors(channel, given, count, self)
            filler = Filler.of_share(self, share, source_from(rng))
            known = filler.empty_table(count) if preliminary is None else preliminary
            if len(known) != count:
                raise DataError(
                    f"Party {channel.me!r} has preliminary values for "
                    f"{counted(len(known), 'row')}, but {given!r} has {count:,} to complete."
                )
            return filler.complete(known, vectors)


def _play_training(site: Site, channel: Channel, roles: Roles, model: VFGAIN) -> NetworkShare:
    """One party's side of :meth:`VFGAIN.fit`."""
    settings = {**_parties(roles), **model.settings(), "threads": model.threads}
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
    part, rng = _part_of(site), site.private_rng("vfgain complete")
    with site.records("complete vfgain", channel, _parties(roles)) as outcome:
        done = model.complete_rows(
            channel, part, share, roles=roles, rng=rng, preliminary=preliminary
        )
        if done is None:
            outcome.metrics = {"rows": len(part.rest)}
    return done


def _parties(roles: Roles) -> dict[str, Any]:
    return {"given": roles.feature_holders[0], "missing": roles.label_holder}


def _part_of(site: Site) -> Part:
    return Part(site.own_table(), site.rows().overlap, rest=site.rows().rest)


# ---- the two sides of training -------------------------------------------------------------------


class _Side(Training):
    """One party's side: both run the same loop over the same batches, each with its own half."""

    half: Embedder | Filler

    def __init__(self, half: Embedder | Filler, channel: Channel, peer: str) -> None:
        self.half, self.networks, self.optimisers = half, half.networks, half.optimisers
        self.channel, self.peer = channel, peer

    def train(self, rows: int, kept: Checkpoints, on_event: OnEvent | None) -> NetworkShare:
        """Train on so many common rows, of which the first tenth only judges."""
        model, channel, peer = self.half.model, self.channel, self.peer
        channel.send(peer, "rows", rows)
        theirs = expect_integer(
            channel.receive(peer, "rows"), sender=peer, name="rows", low=0, high=_MOST
        )
        if theirs != rows or rows < _LEAST_ROWS:
            raise DataError(
                f"VF-GAIN needs the same aligned rows at both parties, at least {_LEAST_ROWS}. "
                f"Party {channel.me!r} has {rows:,} and {peer!r} has {theirs:,}."
            )
        self.held = max(rows // 10, 1)
        seed, start = self.agree(kept.numbers("epoch"))
        history = train_networks(
            self,
            rows - self.held,
            torch.Generator().manual_seed(seed),
            name="train vfgain",
            epochs=model.epochs,
            batch_size=model.batch_size,
            patience=model.patience,
            kept=kept,
            resume=start,
            on_event=on_event,
        )
        return self.share(history, arrays_of(self.networks))

    @abstractmethod
    def agree(self, marks: list[int]) -> tuple[int, int]:
        """The seed of the common order of batches, and the kept epoch that both go on from."""

    @abstractmethod
    def share(self, history: History, arrays: Mapping[str, Array]) -> NetworkShare:
        """What the party keeps of the training."""

    def begin(self, epoch: int, epochs: int) -> None:
        self.epoch, self.scope = epoch, self.channel.within(f"epoch {epoch}")

    def sources(self) -> dict[str, torch.Generator]:
        return {"own": self.half.source}


class _GivenSide(_Side):
    """Vectors go out, gradients come back, and at the end of an epoch a verdict."""

    half: Embedder

    def __init__(
        self, model: VFGAIN, channel: Channel, table: PartyTable, peer: str, rng: Rng
    ) -> None:
        super().__init__(Embedder.learn(model, table, rng), channel, peer)
        self.inputs = self.half.inputs(table)

    def agree(self, marks: list[int]) -> tuple[int, int]:
        came, most = self.channel.receive(self.peer, "order seed"), 2**ANNOUNCED_BITS - 1
        seed = expect_integer(came, sender=self.peer, name="order seed", low=0, high=most)
        return seed, Follower(self.channel, self.peer, marks=marks).resumed

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        vectors = self.half.embed(self.inputs[self.held + rows])
        _send_vectors(self.scope, self.peer, vectors)
        came, shape = self.scope.receive(self.peer, "gradient"), tuple(vectors.shape)
        gradient = expect_array(came, sender=self.peer, name="gradient", holds="float", shape=shape)
        self.half.update(vectors, torch.from_numpy(np.array(gradient)))
        return {}

    def validate(self) -> float:
        """The other party judges: an epoch is better than all before, or it is not."""
        with torch.no_grad():
            _send_vectors(self.scope, self.peer, self.half.embed(self.inputs[: self.held]))
        verdict = self.scope.receive(self.peer, "verdict")
        self.verdict = expect_integer(verdict, sender=self.peer, name="verdict", low=0, high=2)
        return float(-self.epoch) if self.verdict == BEST else 1.0

    def end(self, better: bool, stop: bool) -> None:
        if stop != (self.verdict == STOP):
            raise ProtocolError(
                f"Party {self.peer!r} has another idea of when training stops; give both parties "
                "the same settings.",
                self.peer,
            )

    def share(self, history: History, arrays: Mapping[str, Array]) -> NetworkShare:
        rounds = tuple({"round": number + 1} for number in range(len(history.losses)))
        state = {"role": "embedder", "encoder": self.half.encoder.to_dict()}
        return NetworkShare(self.channel.me, VFGAIN.name, state, rounds, arrays=arrays)


class _MissingSide(_Side):
    """Vectors come in and fill the hidden cells; their gradients go back."""

    half: Filler

    def __init__(
        self, model: VFGAIN, channel: Channel, table: PartyTable, peer: str, rng: Rng
    ) -> None:
        super().__init__(Filler.learn(model, table, rng), channel, peer)
        self.rows, self.rng = self.half.rows(table), rng

    def agree(self, marks: list[int]) -> tuple[int, int]:
        seed = draw_announced_seed(self.rng)
        self.channel.send(self.peer, "order seed", seed)
        return seed, Leader(self.channel, [self.peer], marks=marks).resumed

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        vectors = _receive_vectors(self.scope, self.peer, len(rows), self.half.model)
        gradient = self.half.step(self.rows.take(self.held + rows), vectors)
        self.scope.release(self.peer, "gradients of embeddings", gradient.numel())
        self.scope.send(self.peer, "gradient", gradient.numpy())
        return {}

    def validate(self) -> float:
        vectors = _receive_vectors(self.scope, self.peer, self.held, self.half.model)
        score, self.spread = self.half.judge(self.rows.take(slice(self.held)), vectors)
        return score

    def end(self, better: bool, stop: bool) -> dict[str, float]:
        self.scope.send(self.peer, "verdict", BEST if better else STOP if stop else GO_ON)
        return self.spread

    def share(self, history: History, arrays: Mapping[str, Array]) -> NetworkShare:
        rounds = tuple(
            {"round": number, "held-out loss": losses["held out"]}
            for number, losses in enumerate(history.losses, start=1)
        )
        state = {
            "role": "filler",
            "encoder": self.half.encoder.to_dict(),
            "known": list(self.half.model.known),
            "spread": history.best_facts,
        }
        me, reason = self.channel.me, history.stop_reason
        return NetworkShare(me, VFGAIN.name, state, rounds, reason, arrays=arrays)


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
