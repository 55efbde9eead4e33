"""How the label holder gets the sums of others' candidates, level by level.

It sees the sums of nameless, shuffled candidates of at least ten rows: of encrypted (g, h) through
the key holder, or of shares (shared_sums.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.crypto import PublicKey, SecretKey
from vfsl.crypto.fixed import fold, unfold
from vfsl.crypto.words import Words
from vfsl.errors import ProtocolError
from vfsl.estimators.trees.protocol import Growth
from vfsl.estimators.trees.shared_sums import PairSums
from vfsl.estimators.trees.splits import FOLD_BITS, row_bound
from vfsl.estimators.trees.tree import (
    Cut,
    Goal,
    Node,
    Partition,
    Sum,
    keep_live,
    note_sums,
)
from vfsl.parts import Roles
from vfsl.values import Array, Ciphertext, Integers, Masked

# Of one node: the sums on the left of a party's candidates, and by which handle it knows each.
Offer = tuple[Integers, Array]


class Offers(ABC):
    """What feature holders offer for the trees that grow together."""

    def __init__(self, goals: Sequence[Goal], partition: Partition) -> None:
        self._goals, self._partition = goals, partition

    @abstractmethod
    def announce(self, channel: Channel, nodes: int, sums: int = 0) -> None:
        """Tell the key holder how many nodes are looked at next, or that there are no more."""

    @abstractmethod
    def ask(self, channel: Channel, level: int, sums: list[Sum]) -> None:
        """Send what feature holders need to sum; they work while the label holder does."""

    @abstractmethod
    def collect(
        self, channel: Channel, level: int, sums: list[Sum], wanted: list[Node]
    ) -> list[list[Offer]]:
        """Every feature holder's candidates of the wanted nodes, after :meth:`ask`."""

    @abstractmethod
    def forget(self, cuts: list[Cut]) -> None:
        """Drop what is not needed any more once these nodes are split."""


def offer_nothing(wanted: Sequence[Node]) -> list[Offer]:
    """The offers of a party without columns."""
    return [(np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64))] * len(wanted)


# ---- of encrypted (g, h) -------------------------------------------------------------------------


class EncryptedOffers(Offers):
    """The label holder encrypts (g, h); the key holder, or itself, opens masked sums."""

    def __init__(
        self,
        goals: Sequence[Goal],
        partition: Partition,
        *,
        roles: Roles,
        growth: Growth,
        key: PublicKey,
        secret: SecretKey | None,
        asked: Mapping[str, tuple[int, int]],
        rows: int,
    ) -> None:
        super().__init__(goals, partition)
        self._roles, self._growth, self._key, self._secret = roles, growth, key, secret
        self._asked, self._rows = asked, rows

    def announce(self, channel: Channel, nodes: int, sums: int = 0) -> None:
        if self._roles.feature_holders and self._secret is None:
            channel.send(self._roles.key_holder, "nodes", nodes)

    def collect(
        self, channel: Channel, level: int, sums: list[Sum], wanted: list[Node]
    ) -> list[list[Offer]]:
        return [
            self._read_offers_of(party, channel, wanted)
            if party in self._asked
            else offer_nothing(wanted)
            for party in self._roles.feature_holders
        ]

    def forget(self, cuts: list[Cut]) -> None:
        pass

    def ask(self, channel: Channel, level: int, sums: list[Sum]) -> None:
        packing = self._growth.packing
        if not self._roles.feature_holders or (level and packing != "node"):
            return
        bound = row_bound(self._rows)
        parts = [self._goals[one.node.tree].values for one in sums]
        if packing == "node":
            rows = [self._partition.rows(one.node) for one in sums]
            parts = [values[at] for values, at in zip(parts, rows, strict=True)]
        elif packing == "level":
            parts = [np.concatenate(parts)]
        arrays = []
        for part in parts:
            encrypted = self._key.encrypt(fold(part, FOLD_BITS), use="sum_by", bound=bound)
            arrays.append(encrypted.to_wire(bound=bound).payload)
        for party in self._roles.feature_holders:
            channel.send(party, "gradients", Ciphertext(arrays))

    def _read_offers_of(self, party: str, channel: Channel, wanted: list[Node]) -> list[Offer]:
        declared = self._growth.requests(len(wanted), *self._asked[party])
        if self._secret is None:
            opener = self._roles.key_holder
            opened = channel.within(party).receive(opener, "opened")
            answers = _read_list(opened.payload, opener, len(declared))
        else:
            came = channel.receive(party, "histograms").payload
            requests = _read_list(came, party, len(declared))
            answers = [
                self._secret.open(Ciphertext(one), shape).payload
                for one, shape in zip(requests, declared, strict=True)
            ]
        masks, shown = _read_masks(channel.receive(party, "masks"), party, declared, len(wanted))
        folded = np.concatenate(
            [
                self._key.load_mask(Masked(mask)).remove(Masked(answer))
                for mask, answer in zip(masks, answers, strict=True)
            ]
        )
        if len(folded) != shown.sum():
            raise ProtocolError(f"Party {party!r} shows other sums than it says.", party)
        each = np.split(unfold(folded, 2, FOLD_BITS), np.cumsum(shown)[:-1])
        return [(sums, np.arange(len(sums))) for sums in each]


def _read_masks(
    value: Masked, party: str, declared: list[tuple[int, int]], nodes: int
) -> tuple[list[Any], Array]:
    """The masks of all requests, and how many candidates of each node they uncover."""
    content = value.payload if isinstance(value.payload, dict) else {}
    shown = expect_array(
        content.get("shown"), sender=party, name="masks", holds="integer", shape=(nodes,)
    )
    if (shown < 0).any():
        raise ProtocolError(f"Party {party!r} shows a negative number of sums.", party)
    return _read_list(content.get("masks"), party, len(declared)), shown


def _read_list(value: Any, sender: str, count: int) -> list[Any]:
    """The parts of a message, as many as were asked for."""
    if not isinstance(value, list) or len(value) != count:
        raise ProtocolError(f"Party {sender!r} did not answer {count} requests.", sender)
    return value


# ---- in shares -----------------------------------------------------------------------------------


class SharedOffers(Offers):
    """Every feature holder's sums are shared with the label holder, who sees candidates of them."""

    def __init__(
        self,
        goals: Sequence[Goal],
        partition: Partition,
        *,
        roles: Roles,
        pairs: Sequence[PairSums],
    ) -> None:
        super().__init__(goals, partition)
        self._roles, self._pairs = roles, pairs
        self._words: list[dict[Node, Words]] = [{} for _ in pairs]

    def announce(self, channel: Channel, nodes: int, sums: int = 0) -> None:
        if not self._pairs:
            return
        channel.send(self._roles.key_holder, "nodes", nodes)
        if nodes > 0:
            channel.send(self._roles.key_holder, "sums", sums)

    def ask(self, channel: Channel, level: int, sums: list[Sum]) -> None:
        pass  # its own words of the sums are half of the work

    def collect(
        self, channel: Channel, level: int, sums: list[Sum], wanted: list[Node]
    ) -> list[list[Offer]]:
        return [
            self._collect_of(pair, kept, sums, wanted) if pair.columns else offer_nothing(wanted)
            for pair, kept in zip(self._pairs, self._words, strict=True)
        ]

    def _collect_of(
        self, pair: PairSums, kept: dict[Node, Words], sums: list[Sum], wanted: list[Node]
    ) -> list[Offer]:
        found = pair.sum(len(sums), lambda some: self._spread(pair.rows, sums[some]))
        for one, words in zip(sums, found, strict=True):
            note_sums(kept, one, words)
        words, _ = pair.shuffle(np.stack([kept[node] for node in wanted]))
        return [(shown, np.arange(len(shown))) for shown in pair.read(words)]

    def _spread(self, rows: int, sums: Sequence[Sum]) -> Integers:
        """(g, h) of each node's rows and zeros elsewhere, (rows, 2 · nodes)."""
        plain = np.zeros((rows, 2 * len(sums)), dtype=np.int64)
        for at, one in enumerate(sums):
            here = self._partition.rows(one.node)
            plain[here, 2 * at : 2 * at + 2] = self._goals[one.node.tree].values[here]
        return plain

    def forget(self, cuts: list[Cut]) -> None:
        self._words = [keep_live(kept, self._partition, cuts) for kept in self._words]
