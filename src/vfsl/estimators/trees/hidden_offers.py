"""How the label holder learns of others' best candidates on shares, and of nothing else.

What it, the feature holders and the dealer learn is said in shared_best.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from vfsl.channel import Channel
from vfsl.crypto.words import Words
from vfsl.errors import ProtocolError
from vfsl.estimators.exchange import receive_count
from vfsl.estimators.trees.judging import Judges
from vfsl.estimators.trees.offers import BestOffers, News, spread_values
from vfsl.estimators.trees.protocol import MOST_NODES, MOST_TREES, NO_MORE
from vfsl.estimators.trees.shared_best import PairBest, keep_columns
from vfsl.estimators.trees.shared_sums import join_pairs
from vfsl.estimators.trees.tree import Cut, Node, Partition
from vfsl.parts import Roles
from vfsl.values import Array, Integers


class HiddenOffers(BestOffers):
    """The best candidate of every feature holder and node, found on shares.

    ``order`` has the row behind each row of the partition; the first feature holder's columns begin
    at ``offset`` among those of all parties.
    """

    def __init__(
        self,
        partition: Partition,
        *,
        roles: Roles,
        pairs: Mapping[str, PairBest],
        order: Array,
        offset: int,
    ) -> None:
        super().__init__(partition, roles)
        self._pairs, self._order, self._offset = pairs, order, offset
        self._numbers: dict[str, dict[Node, Words]] = {party: {} for party in pairs}

    def announce(self, channel: Channel, nodes: int, sums: int = 0) -> None:
        if self._pairs:
            channel.send(self._roles.key_holder, "nodes", nodes)

    def rate(
        self,
        channel: Channel,
        wanted: list[Node],
        judges: Sequence[Judges],
        columns: Sequence[Array],
    ) -> list[Integers]:
        rows, found, offset = [self._rows(node) for node in wanted], [], self._offset
        for (party, pair), mine in zip(self._pairs.items(), judges, strict=True):
            layout = pair.layout
            if layout is None:
                found.append(np.zeros(len(wanted), dtype=np.int64))
                continue
            channel.send(party, "size classes", mine.marks[:, 2:])
            rating, number = pair.find(
                len(wanted),
                mine.sizes,
                keep_columns(layout, columns, offset),
                partial(spread_values, pair.rows, rows, mine.split()),
                mine.marks[:, :2] * np.array([-1, 1]),
            )
            opened = pair.show_rating(rating)
            if opened is None:
                raise ProtocolError("The label holder must see how good candidates are.")
            self._numbers[party] |= dict(zip(wanted, number, strict=True))
            found.append(opened)
            offset += pair.columns
        return found

    def _rows(self, node: Node) -> Array:
        return self._order.take(self._partition.rows(node))

    def ask_sides(
        self, channel: Channel, place: int, nodes: list[Node], handles: list[Array]
    ) -> dict[Node, Array]:
        party = self._roles.feature_holders[place - 1]
        pair = self._pairs[party]
        if not pair.has_candidates:
            return {}
        chosen = {"nodes": np.array(nodes, dtype=np.int64).reshape(-1, 2)}
        channel.send(party, "chosen", chosen)
        channel.within(party).send(self._roles.key_holder, "won", len(nodes))
        if not nodes:
            return {}
        pair.show_number(np.array([self._numbers[party][node] for node in nodes]))
        inside = np.zeros((len(nodes), pair.rows), dtype=np.uint8)
        for at, node in enumerate(nodes):
            inside[at, self._rows(node)] = 1
        sides = pair.show_sides(len(nodes), inside=inside)
        if sides is None:
            raise ProtocolError("The label holder must see sides of rows.")
        return {
            node: side[self._rows(node)].astype(bool)
            for node, side in zip(nodes, sides, strict=True)
        }

    def tell(self, channel: Channel, news: News) -> None:
        """What is looked at next, and nothing of rows."""
        for party, pair in self._pairs.items():
            if pair.has_candidates:
                following = {
                    "wanted": np.array(news.wanted, dtype=np.int64).reshape(-1, 2),
                    "dropped": np.array(news.dropped, dtype=np.int64).reshape(-1, 2),
                    "more": int(news.more),
                }
                channel.send(party, "next", following)

    def forget(self, cuts: list[Cut]) -> None:
        open_nodes = self._partition.leaves()
        for party, kept in self._numbers.items():
            self._numbers[party] = {node: one for node, one in kept.items() if node in open_nodes}


# ---- the dealer ----------------------------------------------------------------------------------


def deal_best(channel: Channel, roles: Roles, rng: np.random.Generator | None) -> None:
    """The dealer's side of a training: as many nodes and splits as the label holder announces."""
    leader = roles.label_holder
    with join_pairs(channel, roles, rng) as sessions:
        pairs = {party: PairBest.begin(session) for party, session in sessions.items()}
        asked = {party: pair for party, pair in pairs.items() if pair.has_candidates}

        def count(here: Channel, name: str, low: int, high: int) -> int:
            for pair in pairs.values():  # whoever has to send it may need what was dealt so far
                pair.session.flush()
            return receive_count(here, leader, name, low, high)

        batch = 0
        while count(channel, "trees", 0, MOST_TREES):
            level = 0
            while True:
                here = channel.within(f"trees {batch}").within(f"level {level}")
                nodes = count(here, "nodes", NO_MORE, MOST_NODES)
                if nodes == NO_MORE:
                    break
                for pair in asked.values() if nodes else ():
                    pair.find(nodes)
                for party, pair in asked.items():
                    if won := count(here.within(party), "won", 0, MOST_NODES):
                        pair.show_sides(won)
                level += 1
            batch += 1
