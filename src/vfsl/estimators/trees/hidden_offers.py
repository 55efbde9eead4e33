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
from vfsl.estimators.trees.judging import Judge
from vfsl.estimators.trees.offers import News, Offer, Offers, Values, spread_values
from vfsl.estimators.trees.protocol import MOST_NODES, MOST_TREES, NO_MORE
from vfsl.estimators.trees.shared_best import PairBest, keep_columns
from vfsl.estimators.trees.shared_sums import join_pairs
from vfsl.estimators.trees.tree import Cut, Node, Partition, Sum
from vfsl.parts import Roles
from vfsl.values import Array

# Of one node: how good a party's best split is, and by which handles it knows those that are.
Rated = tuple[int, Array]
_THE_BEST = np.zeros(1, dtype=np.int64)


class HiddenOffers(Offers):
    """The best candidate of every feature holder and node, found on shares."""

    def __init__(
        self, partition: Partition, *, roles: Roles, pairs: Mapping[str, PairBest]
    ) -> None:
        super().__init__(partition, roles)
        self._pairs = pairs
        self._numbers: dict[str, dict[Node, Words]] = {party: {} for party in pairs}

    def announce(self, channel: Channel, nodes: int, sums: int = 0) -> None:
        if self._pairs:
            channel.send(self._roles.key_holder, "nodes", nodes)

    def ask_sums(self, channel: Channel, level: int, sums: list[Sum], values: Values) -> None:
        pass  # nothing is sent before both sides work

    def collect(
        self,
        channel: Channel,
        sums: list[Sum],
        wanted: list[Node],
        values: Values,
    ) -> list[list[Offer]]:
        raise ProtocolError("No sums of candidates are shown where only the best one is.")

    def rate(
        self,
        channel: Channel,
        wanted: list[Node],
        judges: Sequence[Mapping[Node, Judge]],
        columns: Sequence[Array],
        offset: int,
    ) -> list[list[Rated]]:
        """How good every feature holder's best candidate of each node is.

        ``judges`` are for each of them, by node. ``columns`` are those that a node may use, of all
        parties; the first feature holder's begin at ``offset``.
        """
        rows, found = {node: self._partition.rows(node) for node in wanted}, []
        for place, (party, pair) in enumerate(self._pairs.items()):
            layout = pair.layout
            if layout is None:
                found.append([(0, _THE_BEST)] * len(wanted))
                continue
            mine = [judges[place][node] for node in wanted]
            values = {node: one.folded for node, one in judges[place].items()}.__getitem__
            sizes = np.array([[one.size.edge, one.size.shift] for one in mine], dtype=np.int64)
            shifts = np.array([[-one.less, one.plus] for one in mine], dtype=np.int64)
            channel.send(party, "size classes", sizes)
            rating, number = pair.find(
                len(wanted),
                [one.size for one in mine],
                keep_columns(layout, columns, offset),
                partial(spread_values, pair.rows, rows, values),
                shifts,
            )
            opened = pair.show_rating(rating)
            if opened is None:
                raise ProtocolError("The label holder must see how good candidates are.")
            self._numbers[party] |= dict(zip(wanted, number, strict=True))
            found.append([(int(one), _THE_BEST) for one in opened])
            offset += pair.columns
        return found

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
            inside[at, self._partition.rows(node)] = 1
        sides = pair.show_sides(len(nodes), inside=inside)
        if sides is None:
            raise ProtocolError("The label holder must see sides of rows.")
        return {
            node: side[self._partition.rows(node)].astype(bool)
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
