"""How the label holder gets the sums of others' candidates, level by level.

It sees the sums of nameless, shuffled candidates of at least ten rows: of encrypted (g, h) through
the key holder, or of shares (shared_sums.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.crypto import PublicKey, SecretKey
from vfsl.crypto.fixed import unfold
from vfsl.crypto.words import Words
from vfsl.errors import ProtocolError
from vfsl.estimators.trees.judging import Judges
from vfsl.estimators.trees.protocol import Growth, count_sides
from vfsl.estimators.trees.shared_sums import PairSums
from vfsl.estimators.trees.splits import FOLD_BITS, row_bound
from vfsl.estimators.trees.tree import (
    OWN,
    Cut,
    Node,
    Partition,
    Sum,
    keep_live,
    note_sums,
    pack_sides,
    unpack_sides,
)
from vfsl.parts import Roles
from vfsl.values import Array, Ciphertext, Integers, Masked

# Of one node: the sums on the left of a party's candidates, and by which handle it knows each.
Offer = tuple[Integers, Array]

# What is summed of the rows of a node for the columns of a party, by its place: (g, h) folded.
Values = Callable[[int, Node], Integers]


class Offers(ABC):
    """What feature holders offer for the trees that grow together, and how they are answered.

    Here every data holder learns the sides of all rows; hidden_offers.py has another way.
    """

    def __init__(self, partition: Partition, roles: Roles) -> None:
        self._partition, self._roles = partition, roles

    @abstractmethod
    def announce(self, channel: Channel, nodes: int, sums: int = 0) -> None:
        """Tell the key holder how many nodes are looked at next, or that there are no more."""

    def forget(self, cuts: list[Cut]) -> None:  # noqa: B027
        """Drop what is not needed any more once these nodes are split: here nothing is kept."""

    def ask_sides(
        self, channel: Channel, place: int, nodes: list[Node], handles: list[Array]
    ) -> dict[Node, Array]:
        """Tell a feature holder which of its handles are best, and learn the sides of rows.

        ``place`` is that of the feature holder among the data holders, from 1 on.
        """
        party = self._roles.feature_holders[place - 1]
        chosen = {
            "nodes": np.array(nodes, dtype=np.int64).reshape(-1, 2),
            "lengths": np.array([len(each) for each in handles], dtype=np.int64),
            "handles": np.concatenate([*handles, np.zeros(0, dtype=np.int64)]),
        }
        channel.send(party, "chosen", chosen)
        if not nodes:
            return {}
        came = channel.receive(party, "sides")
        bits = expect_array(came, sender=party, name="sides", holds="bytes", shape=(None,))
        lengths = [len(self._partition.rows(node)) for node in nodes]
        return dict(zip(nodes, unpack_sides(bits, lengths, party), strict=True))

    def tell(self, channel: Channel, news: News) -> None:
        """Every feature holder learns where the rows went, except by its own splits.

        With block dropout these do not send all rows where the owner said.
        """
        for place, party in enumerate(self._roles.feature_holders, start=1):
            nodes = [cut.parent for cut in news.cuts]
            others = [node for node in nodes if news.moved or news.owner[node] != place]
            partition = {
                "splits": np.array(nodes, dtype=np.int64).reshape(-1, 2),
                "sides": pack_sides([news.sides[node] for node in others]),
                "wanted": np.array(news.wanted, dtype=np.int64).reshape(-1, 2),
                "more": int(news.more),
            }
            own = [news.sides[node] for node in others if news.owner[node] == OWN]
            channel.release(party, "sides", count_sides(own), new=0)  # see release_binned
            channel.send(party, "partition", partition)


@dataclass(frozen=True)
class News:
    """What became of a level.

    Attributes
    ----------
    cuts : list of Cut
    sides, owner : dict by split node
        Of its rows; the place of its owner.
    dropped : list of Node
        Nodes that were to be split, but one side had too few rows.
    wanted : list of Node
        What is looked at next.
    more : bool
        Whether there is a further level.
    moved : bool
        Whether rows without a block went elsewhere than the owner of a split said.
    """

    cuts: list[Cut]
    sides: dict[Node, Array]
    owner: dict[Node, int]
    dropped: list[Node]
    wanted: list[Node]
    more: bool
    moved: bool = False


class BestOffers(Offers):
    """Only of the best candidate of each node it is said how good it is; its handle is 0."""

    @abstractmethod
    def rate(
        self,
        channel: Channel,
        wanted: list[Node],
        judges: Sequence[Judges],
        columns: Sequence[Array],
    ) -> list[Integers]:
        """How good every feature holder's best candidate of each node is.

        ``judges`` are for each of them; ``columns`` are those of all parties that a node may use.
        """


class SumOffers(Offers):
    """The sums of candidates are shown."""

    @abstractmethod
    def ask_sums(self, channel: Channel, level: int, sums: list[Sum], values: Values) -> None:
        """Send what feature holders need to sum, if anything: both sides then work at once."""

    @abstractmethod
    def collect(
        self, channel: Channel, sums: list[Sum], wanted: list[Node], values: Values
    ) -> list[list[Offer]]:
        """Every feature holder's candidates of the wanted nodes, after :meth:`ask_sums`."""


def offer_nothing(wanted: Sequence[Node]) -> list[Offer]:
    """The offers of a party without columns."""
    return [(np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64))] * len(wanted)


# ---- of encrypted (g, h) -------------------------------------------------------------------------


class EncryptedOffers(SumOffers):
    """The label holder encrypts (g, h); the key holder, or itself, opens masked sums."""

    def __init__(
        self,
        partition: Partition,
        *,
        roles: Roles,
        growth: Growth,
        key: PublicKey,
        secret: SecretKey | None,
        asked: Mapping[str, tuple[int, int]],
        rows: int,
    ) -> None:
        super().__init__(partition, roles)
        self._growth, self._key, self._secret = growth, key, secret
        self._asked, self._rows = asked, rows

    def announce(self, channel: Channel, nodes: int, sums: int = 0) -> None:
        if self._roles.feature_holders and self._secret is None:
            channel.send(self._roles.key_holder, "nodes", nodes)

    def collect(
        self, channel: Channel, sums: list[Sum], wanted: list[Node], values: Values
    ) -> list[list[Offer]]:
        return [
            self._read_offers_of(party, channel, wanted)
            if party in self._asked
            else offer_nothing(wanted)
            for party in self._roles.feature_holders
        ]

    def ask_sums(self, channel: Channel, level: int, sums: list[Sum], values: Values) -> None:
        if level and not self._growth.sends_each_level:
            return
        arrays: list[Any] = []
        for place, party in enumerate(self._roles.feature_holders, start=1):
            if place == 1 or self._growth.block_dropout > 0:
                arrays = self._encrypt([values(place, one.node) for one in sums])
            channel.send(party, "gradients", Ciphertext(arrays))

    def _encrypt(self, parts: list[Integers]) -> list[Any]:
        """What a feature holder is to sum."""
        bound = row_bound(self._rows)
        if self._growth.packing == "level":
            parts = [np.concatenate(parts)]
        arrays = []
        for part in parts:
            encrypted = self._key.encrypt(part, use="sum_by", bound=bound)
            arrays.append(encrypted.to_wire(bound=bound).payload)
        return arrays

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


class SharedOffers(SumOffers):
    """Every feature holder's sums are shared with the label holder, who sees candidates of them."""

    def __init__(self, partition: Partition, *, roles: Roles, pairs: Sequence[PairSums]) -> None:
        super().__init__(partition, roles)
        self._pairs = pairs
        self._words: list[dict[Node, Words]] = [{} for _ in pairs]

    def announce(self, channel: Channel, nodes: int, sums: int = 0) -> None:
        if not self._pairs:
            return
        channel.send(self._roles.key_holder, "nodes", nodes)
        if nodes > 0:
            channel.send(self._roles.key_holder, "sums", sums)

    def ask_sums(self, channel: Channel, level: int, sums: list[Sum], values: Values) -> None:
        pass  # its own words of the sums are half of the work

    def collect(
        self, channel: Channel, sums: list[Sum], wanted: list[Node], values: Values
    ) -> list[list[Offer]]:
        nodes = [one.node for one in sums]
        rows, found = [self._partition.rows(node) for node in nodes], []
        for place, (pair, kept) in enumerate(zip(self._pairs, self._words, strict=True), start=1):
            if not pair.columns:
                found.append(offer_nothing(wanted))
                continue
            folded = [values(place, node) for node in nodes]
            spread = partial(spread_values, pair.rows, rows, folded)
            found.append(self._collect_of(pair, kept, sums, wanted, spread))
        return found

    def _collect_of(
        self,
        pair: PairSums,
        kept: dict[Node, Words],
        sums: list[Sum],
        wanted: list[Node],
        spread: Callable[[slice], Integers],
    ) -> list[Offer]:
        found = pair.sum(len(sums), spread)
        for one, words in zip(sums, found, strict=True):
            note_sums(kept, one, words)
        words, _ = pair.shuffle(np.stack([kept[node] for node in wanted]))
        return [(shown, np.arange(len(shown))) for shown in pair.read(words)]

    def forget(self, cuts: list[Cut]) -> None:
        self._words = [keep_live(kept, self._partition, cuts) for kept in self._words]


def spread_values(
    rows: int, rows_of: Sequence[Array], values: Sequence[Integers], some: slice
) -> Integers:
    """Two numbers for the rows of some nodes and zeros elsewhere, (rows, 2 · nodes).

    ``values`` has them folded.
    """
    chosen = list(zip(rows_of[some], values[some], strict=True))
    plain = np.zeros((rows, 2 * len(chosen)), dtype=np.int64)
    for at, (here, folded) in enumerate(chosen):
        plain[here, 2 * at : 2 * at + 2] = unfold(folded, 2, FOLD_BITS)
    return plain
