"""VF-GAIN: GAIN across two parties; one party's columns help through a learned embedding.

Holds   the embedder (A): its columns, an embedding network. The imputer (B): its columns, the
        generator, the discriminator. Rows are aligned; A also has rows that B lacks.
Learns  B: an embedding of each of A's rows, aligned or to be completed: it may read from them what
        the network has learned to put there, as much of A's columns as helps to predict B's.
        A: the gradient of B's loss for each aligned row: over many rounds it tells A about B's
        hidden values of that row; and when training stops. Nobody else takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.completion.base import Completed
from vfsl.completion.imputers.split import Embedder, Filler, Plan
from vfsl.completion.layers import source_from
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.training import arrays_of, load_arrays, using_threads
from vfsl.data import PartyTable
from vfsl.data.checks import check_count, check_share, counted
from vfsl.errors import ConfigError, DataError
from vfsl.estimators.base import StepReport
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

GO_ON, BEST, STOP = 0, 1, 2


# ---- roles ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EmbedderShare:
    """A's part of a fitted model, as plain values and arrays. It never leaves A."""

    encoder: Mapping[str, Any]
    arrays: Mapping[str, Array]
    rounds: int

    def embedder(self, plan: Plan) -> Embedder:
        """The network with its learned weights."""
        made = Embedder(plan, MixedEncoder.from_dict(self.encoder), torch.Generator())
        load_arrays(made.network, self.arrays, "this share")
        return made


@dataclass(frozen=True, eq=False)
class FillerShare:
    """B's part of a fitted model, as plain values and arrays, and how training went."""

    encoder: Mapping[str, Any]
    arrays: Mapping[str, Array]
    known: tuple[str, ...]
    spread: Mapping[str, float]
    rounds: tuple[dict[str, Any], ...]
    stop_reason: str

    def filler(self, plan: Plan, source: torch.Generator) -> Filler:
        """The networks with their learned weights."""
        made = Filler(plan, MixedEncoder.from_dict(self.encoder), self.known, source)
        load_arrays(made.networks, self.arrays, "this share")
        made.spread = dict(self.spread)
        return made


def train_embedder(
    channel: Channel, table: PartyTable, imputer: str, plan: Plan, rng: np.random.Generator
) -> EmbedderShare:
    """A's side of training on its aligned rows, in the common order."""
    with using_threads(plan.threads):
        embedder = Embedder.learn(plan, table, rng)
        inputs = embedder.inputs(table)
        _same_length(channel, imputer, len(table))
        seed = channel.receive(imputer, "order seed")
        order = torch.Generator().manual_seed(
            expect_integer(seed, sender=imputer, name="order seed", low=0, high=2**63 - 1)
        )
        held = plan.held(len(table))
        best = _copied(embedder.network)
        for epoch in range(plan.epochs):
            scope = channel.within(f"epoch {epoch}")
            for rows in plan.batches(len(table) - held, order):
                vectors = embedder.embed(inputs[held + rows])
                scope.send(imputer, "embedding", vectors.detach().numpy())
                gradient = expect_array(
                    scope.receive(imputer, "gradient"),
                    sender=imputer,
                    name="gradient",
                    holds="float",
                    shape=tuple(vectors.shape),
                )
                embedder.update(vectors, torch.from_numpy(np.array(gradient)))
            with torch.no_grad():
                scope.send(imputer, "embedding", embedder.embed(inputs[:held]).numpy())
            verdict = expect_integer(
                scope.receive(imputer, "verdict"), sender=imputer, name="verdict", low=0, high=2
            )
            if verdict == BEST:
                best = _copied(embedder.network)
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
    with using_threads(plan.threads):
        filler = Filler.learn(plan, table, known, rng)
        rows = filler.rows(table)
        _same_length(channel, embedder, len(table))
        seed = int(rng.integers(2**63))
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
    with torch.no_grad(), using_threads(plan.threads):
        embedder = share.embedder(plan)
        vectors = embedder.embed(embedder.inputs(table)).numpy()
    channel.send(imputer, "rows", len(table))
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


# ---- what users call -----------------------------------------------------------------------------


class RowsOf(Protocol):
    """One party's part of an alignment."""

    @property
    def overlap(self) -> Any: ...

    @property
    def rest(self) -> Any: ...


class Aligned(Protocol):
    """The little that VF-GAIN needs of a federation."""

    tables: dict[str, PartyTable]

    def share(self, party: str) -> RowsOf:
        """The party's aligned rows, and its own remaining ones."""
        ...

    def rng(self, purpose: str) -> np.random.Generator:
        """Learning randomness for one purpose."""
        ...

    def run(
        self, step: str, roles: Mapping[str, Callable[[Channel], Any]], settings: Mapping[str, Any]
    ) -> tuple[dict[str, Any], StepReport]:
        """Run roles together as one step."""
        ...


@dataclass(kw_only=True)
class VFGAIN:
    """GAIN across two parties: complete one party's columns for rows that only the other has.

    Parameters
    ----------
    epochs, batch_size : int
        Passes over the aligned rows, and rows whose embeddings are sent at a time.
    patience : int
        A tenth of the aligned rows only judges; training stops when their loss has not fallen
        for so many epochs.
    embedding : int
        Numbers that the giving party sends for each row; more help more and tell more.
    width : int
        Of hidden layers.
    rate, decay : float
        Learning rate and weight decay of Adam at both parties.
    hint, adversarial : float
        As in GAIN.
    known : list of str
        Columns of the completed party that it will have for the rows to complete, such as those
        completed before; all others are hidden together in training.
    threads : int
        Threads of PyTorch.

    Attributes
    ----------
    shares_ : dict by party
        Each party's networks.
    rounds_ : tuple of dict
        The held-out loss of each epoch.
    stop_reason_ : str
    """

    epochs: int = 100
    batch_size: int = 256
    patience: int = 15
    embedding: int = 16
    width: int = 128
    rate: float = 1e-3
    decay: float = 1e-5
    hint: float = 0.9
    adversarial: float = 0.01
    known: Sequence[str] = ()
    threads: int = 1

    def fit(self, fed: Aligned, given: str = "A", missing: str = "B") -> Self:
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
        plan = self._plan()
        for party in (given, missing):
            if party not in fed.tables:
                raise ConfigError(
                    f"VF-GAIN was asked for party {party!r}; known are {', '.join(fed.tables)}."
                )
        tables = {p: fed.tables[p].take(fed.share(p).overlap) for p in (given, missing)}
        roles: dict[str, Callable[[Channel], Any]] = {
            given: partial(
                _train_given,
                table=tables[given],
                imputer=missing,
                plan=plan,
                rng=fed.rng("vfgain embedder"),
            ),
            missing: partial(
                _train_missing,
                table=tables[missing],
                embedder=given,
                plan=plan,
                rng=fed.rng("vfgain imputer"),
                known=tuple(self.known),
            ),
        }
        settings = {"given": given, "missing": missing, **asdict(plan), "known": list(self.known)}
        shares, report = fed.run("train vfgain", roles, settings)
        held: FillerShare = shares[missing]
        self.shares_: dict[str, Any] = shares
        self.parties_ = (given, missing)
        self.rounds_, self.stop_reason_ = held.rounds, held.stop_reason
        report(rounds=held.rounds, stop_reason=held.stop_reason)
        return self

    def complete(self, fed: Aligned, preliminary: PartyTable | None = None) -> Completed:
        """The completed party's columns for the other's remaining rows, in that party's order.

        Parameters
        ----------
        fed : Federation
        preliminary : PartyTable, optional
            What the completed party already has of these rows: its columns, in this order.
        """
        if not hasattr(self, "shares_"):
            raise ConfigError("VFGAIN is not fitted yet: call fit first.")
        given, missing = self.parties_
        rest = fed.tables[given].take(fed.share(given).rest)
        if not len(rest):
            raise DataError(f"Party {given!r} has no rows beyond the aligned ones to complete.")
        plan = self._plan()
        roles: dict[str, Callable[[Channel], Any]] = {
            given: partial(
                _complete_given, table=rest, share=self.shares_[given], imputer=missing, plan=plan
            ),
            missing: partial(
                _complete_missing,
                share=self.shares_[missing],
                embedder=given,
                plan=plan,
                rng=fed.rng("vfgain complete"),
                preliminary=preliminary,
            ),
        }
        results, report = fed.run("complete vfgain", roles, {"given": given, "missing": missing})
        report(metrics={"rows": len(rest)})
        done: Completed = results[missing]
        return done

    def _plan(self) -> Plan:
        for name in ("epochs", "batch_size", "patience", "embedding", "width", "threads"):
            check_count("VFGAIN", name, getattr(self, name), 1)
        check_share("VFGAIN", "hint", self.hint)
        return Plan(**{field.name: getattr(self, field.name) for field in fields(Plan)})


def _train_given(channel: Channel, **what: Any) -> EmbedderShare:
    return train_embedder(channel.within("vfgain", DISCLOSURES), **what)


def _train_missing(channel: Channel, **what: Any) -> FillerShare:
    return train_filler(channel.within("vfgain", DISCLOSURES), **what)


def _complete_given(channel: Channel, **what: Any) -> None:
    complete_embedder(channel.within("vfgain", DISCLOSURES), **what)


def _complete_missing(channel: Channel, **what: Any) -> Completed:
    return complete_filler(channel.within("vfgain", DISCLOSURES), **what)
