"""The low route by VF-GAIN, alone or in an ensemble: networks between the parties.

Holds, learns: as in imputers/vfgain.py, once for each fold and once for all common rows. The given
party learns as well which common rows are held out of each fold; folds are random.

At the missing party VF-GAIN stands in for a local method, so it is fitted, judged and asked as
those are: the high columns are known, all low ones are hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from vfsl.channel import Channel, expect_array
from vfsl.completion.base import Completed, Completer, Table, as_table
from vfsl.completion.columns import Filled
from vfsl.completion.low_methods import Chosen
from vfsl.completion.low_route import LowRoute
from vfsl.completion.registry import find
from vfsl.data import PartyTable
from vfsl.draws import draw_by_number
from vfsl.errors import ConfigError, ProtocolError
from vfsl.lead import Follower, Leader, disclose_orders
from vfsl.parts import Part, Roles, no_rows
from vfsl.store import Checkpoints
from vfsl.values import Array, Disclosures

DISCLOSURES: Disclosures = disclose_orders(
    "which network is next, and which common rows it learns from or which rows it completes"
)
FIT, COMPLETE = "fit", "complete"


@dataclass
class NetworkRoute:
    """Complete the low columns by a method of which a part runs between the parties."""

    name: ClassVar[str] = "vf-gain"

    low: Chosen

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator,
        kept: Checkpoints | None = None,
        route: LowRoute | None = None,
        fold_rng: np.random.Generator | None = None,
    ) -> dict[str, Filled]:
        """One party's side; the low columns at the missing party.

        Parameters
        ----------
        part : Part or None
            The party's table and rows; None at the key holder, who has no part in it.
        kept : Checkpoints, optional
            Where this party keeps networks that are not trained yet.
        route : LowRoute
            At the missing party: the low columns, and those that are completed already.
        fold_rng : numpy.random.Generator
            At the missing party: draws the folds.
        """
        if part is None:
            return {}
        channel = channel.within(self.name, DISCLOSURES)
        kept = Checkpoints(None) if kept is None else kept
        # One for each of the method's networks, known to both parties by its place.
        draws = draw_by_number(rng)
        sides = [
            _Side(find(one.label)(**one.settings), roles, draws, kept) for one in self.low.protocols
        ]
        if channel.me == roles.label_holder:
            if route is None or fold_rng is None:
                raise ConfigError(f"Party {channel.me!r} needs its low columns to complete them.")
            leader = Leader(channel, (), roles.feature_holders)

            names = [target.name for target in route.targets]

            def between(one: Chosen) -> Completer:
                return _Asked(sides[one.place], one.place, leader, route)

            filled = route.by_method(self.low.told(names, between), fold_rng)
            leader.end()
            return filled
        for number, here, order in Follower(channel, roles.label_holder):
            sender = roles.label_holder
            places = expect_array(
                order.get("rows"), sender=sender, name="rows", holds="integer", shape=(None,)
            )
            rows, member = part.all_rows, order.get("network")
            if (
                not isinstance(member, int)
                or not 0 <= member < len(sides)
                or order.get("do") not in (FIT, COMPLETE)
                or not _are_places(places, len(rows))
            ):
                raise ProtocolError(f"Party {sender!r} ordered unknown work.", sender)
            side = sides[member]
            if order["do"] == FIT:
                side.fit(here, number, Part(part.table, rows[places]))
            else:
                side.complete(here, number, Part(part.table, no_rows(), rest=rows[places]))
        return {}


def _are_places(places: Array, rows: int) -> bool:
    return bool(len(places)) and places.min() >= 0 and places.max() < rows


class _Side:
    """One party's networks, by the number of the task that trains or asks them."""

    def __init__(
        self,
        model: Any,
        roles: Roles,
        random: Callable[[int], np.random.Generator],
        kept: Checkpoints,
    ) -> None:
        self.model, self._roles, self._kept = model, roles, kept
        self._random, self._share = random, None

    def fit(self, channel: Channel, number: int, part: Part) -> None:
        kept = self._kept.within(f"network {number}")
        draws = self._random(number)
        self._share = self.model.train(channel, part, roles=self._roles, rng=draws, kept=kept)

    def complete(
        self, channel: Channel, number: int, part: Part, preliminary: PartyTable | None = None
    ) -> Any:
        if self._share is None:
            raise ProtocolError(
                f"Party {self._roles.label_holder!r} asks a network that was not trained.",
                self._roles.label_holder,
            )
        more = {} if preliminary is None else {"preliminary": preliminary}
        draws = self._random(number)
        return self.model.complete_rows(
            channel, part, self._share, roles=self._roles, rng=draws, **more
        )


class _Asked:
    """VF-GAIN as a completer of the missing party, which orders the other to take part."""

    def __init__(self, side: _Side, place: int, leader: Leader, route: LowRoute) -> None:
        known = [name for name in route.high if name in route.common.columns]
        side.model = replace(side.model, known=known)
        self._side, self._place, self._leader = side, place, leader
        self._ids, self._others = pd.Index(route.common.ids), route.others

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Train on common rows, which their ids name."""
        known = as_table(table, "VF-GAIN")
        self._whole = len(known) == len(self._ids)
        here, number = self._order(FIT, self._ids.get_indexer(pd.Index(known.ids)))
        self._side.fit(here, number, Part(known, np.arange(len(known), dtype=np.int64)))
        return self

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """Common rows that were held out, or, once all have trained, the remaining rows."""
        asked = as_table(table, "VF-GAIN")
        places = self._ids.get_indexer(pd.Index(asked.ids))
        if self._whole:
            places = len(self._ids) + np.arange(self._others)
        here, number = self._order(COMPLETE, places)
        done: Completed = self._side.complete(here, number, Part(asked, no_rows()), asked)
        return done

    def _order(self, do: str, places: Array) -> tuple[Channel, int]:
        number = self._leader.number
        rows = places.astype(np.int64)
        return self._leader.order(do, network=self._place, rows=rows), number
