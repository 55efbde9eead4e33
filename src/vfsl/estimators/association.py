"""How strongly each column of one party goes with the columns of another, over the common rows.

Holds   the label holder (whose columns are to be predicted): columns; the one feature holder (whose
        columns are given): columns; the key holder: the secret key, no data.
Learns  the label holder: one rounded number for each of its columns. The feature holder: for each
        column of the other, in a secret order and without names, whether it is numeric or how many
        groups it has, how large the groups are or how often values repeat, and its inner products
        with each own column (rank sums, counts of rows in pairs of groups). The key holder:
        uniformly masked numbers, how many rows and derived columns there are.

Every column becomes integer columns: a numeric one its centred ranks, doubled so that averaged ties
stay whole, a missing cell the mean rank 0; a categorical one an indicator for each group, a missing
cell a group of its own, groups under 10 rows merged. All three measures are functions of inner
products between such columns, so one encrypted matrix product is enough:

    both numeric        |Spearman's ρ|
    one categorical     correlation ratio η of the other's ranks: √(variance between groups / total)
    both categorical    Cramér's V, without bias correction

The sums are exact. Groups are never small, but a *numeric* value that few rows have is not merged:
the feature holder can test a guess about which rows these are. Declare such columns categorical.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import EncryptedArray, KeyHolder, PublicKey
from vfsl.data import PartyTable, check_labels
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.estimators.base import WithTables
from vfsl.estimators.descent import Integers
from vfsl.estimators.exchange import receive_key, send_fresh_key
from vfsl.estimators.ranks import (
    AGGREGATES,
    Derived,
    Profile,
    aggregated,
    derive,
    rank_bound,
    strength_matrix,
)
from vfsl.parts import Part, Roles, Rows
from vfsl.values import Aggregate, Ciphertext, Disclosure, Disclosures, Masked

DISCLOSURES: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "rows": Disclosure(int, "how many rows the two parties have in common"),
    "columns": Disclosure(int, "how many derived columns the sender has"),
    "groups": Disclosure(
        np.ndarray, "how many columns the sender has; of each, nameless: numeric, or its groups"
    ),
    "lengths": Disclosure(
        Aggregate, "rows of each nameless group; how often values of a nameless column repeat"
    ),
    "derived columns": Disclosure(Ciphertext, "nothing without the secret key"),
    "products": Disclosure(Ciphertext, "uniformly masked sums"),
    "opened products": Disclosure(
        Masked, "how the receiver's columns go with nameless columns, after it removes its mask"
    ),
    "strengths": Disclosure(
        Aggregate, "how strongly each of the receiver's columns goes with the sender's, rounded"
    ),
}

MOST_DECIMALS = 4
# Cells of one message: about 130 MB under bfv.
_BLOCK_CELLS = 1 << 21
_MOST_COLUMNS = 10**6

# Orders that protect come from the operating system; no result depends on them.
_protecting = secrets.SystemRandom()


class _Share(Protocol):
    @property
    def overlap(self) -> Rows: ...


class _Plan(Protocol):
    def __getitem__(self, party: str, /) -> _Share: ...


class Aligned(WithTables, Protocol):
    """A federation whose rows are aligned."""

    @property
    def plan(self) -> _Plan | None: ...


@dataclass
class Association:
    """How strongly one party's columns go with another's: which of them could be predicted.

    Parameters
    ----------
    aggregate : {"mean", "max", "top-k"}
        How the associations with all given columns become one number: their mean (as in FedPSG-PUM;
        over many columns it rarely passes 0.5), the largest, or the mean of the ``k`` largest.
    k : int
        For "top-k"; all columns if there are fewer.
    decimals : int
        Digits behind the point of the numbers that leave, 0 to 4.
    rows_per_column : int
        Refuse to work on fewer common rows than this many times the derived columns of the given
        party: with as many columns as rows it could solve the products for the other's cells.
    """

    name: ClassVar[str] = "association"

    aggregate: str = "mean"
    k: int = 3
    decimals: int = 2
    rows_per_column: int = 10

    def measure(self, fed: Aligned, given: str = "A", missing: str = "B") -> pd.Series[float]:
        """How strongly each column of ``missing`` goes with those of ``given``.

        Parameters
        ----------
        fed : Federation
            Aligned.
        given, missing : str
            The parties. Labels of both are left out.

        Returns
        -------
        Series
            From 0 to 1, rounded, by column of ``missing``, in the order of its table.
        """
        self._check()
        roles = fed.roles(missing, "association")
        if fed.plan is None or given not in roles.feature_holders:
            raise ConfigError(
                f"The given parameter of measure must be an aligned party other than {missing!r}: "
                f"{', '.join(roles.feature_holders)}. Got {given!r} instead."
            )
        check_labels(fed.tables, (given, missing))
        roles = replace(roles, feature_holders=(given,))
        parts = {
            party: Part(fed.tables[party], fed.plan[party].overlap) for party in roles.data_holders
        }
        jobs = {
            party: partial(self.train, part=parts.get(party), roles=roles)
            for party in roles.everyone
        }
        settings = {"given": given, "missing": missing, "aggregate": self.aggregate, "k": self.k}
        settings |= {"decimals": self.decimals, "rows_per_column": self.rows_per_column}
        settings |= {"scheme": roles.scheme, "security": roles.security}
        results, report = fed.run("association", jobs, settings)
        strengths: pd.Series[float] = results[missing]
        report(metrics={"columns": len(strengths)})
        return strengths

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator | None = None,
    ) -> pd.Series[float] | pd.DataFrame | None:
        """One party's side.

        Returns
        -------
        Series, DataFrame or None
            At the label holder its rounded strengths by column; at the feature holder the
            association of its columns (down) with the nameless ones (across); None at the key
            holder.
        """
        self._check()
        if len(roles.feature_holders) != 1:
            raise ConfigError(
                "An association is between one label holder and one feature holder. "
                f"Got {len(roles.feature_holders)} feature holders instead."
            )
        channel = channel.within(self.name, DISCLOSURES)
        if channel.me == roles.key_holder:
            self._hold_key(channel, roles)
            return None
        if part is None:
            raise ConfigError(f"Party {channel.me!r} needs a part of the data to compare.")
        table = _checked(channel.me, part)
        key = receive_key(channel, roles)
        if channel.me == roles.label_holder:
            return self._missing(channel, table, roles, key)
        return self._given(channel, table, roles, key)

    def _hold_key(self, channel: Channel, roles: Roles) -> None:
        secret = send_fresh_key(channel, roles)
        (given,) = roles.feature_holders
        rows = _announced(channel, roles.label_holder, "rows", 1 << 40)
        down = _announced(channel, roles.label_holder, "columns", _MOST_COLUMNS)
        across = _announced(channel, given, "columns", _MOST_COLUMNS)
        # Asked again here, on the word of the party whose cells are at stake.
        self._check_rows(given, rows, across)
        holder = KeyHolder(secret, {"products": (down, across)})
        request = channel.receive(given, "products")
        channel.send(given, "opened products", holder.open("products", request))

    def _missing(
        self, channel: Channel, table: PartyTable, roles: Roles, key: PublicKey
    ) -> pd.Series[float]:
        """Send nameless columns in a secret order; learn their rounded strengths."""
        (given,) = roles.feature_holders
        names = _protecting.sample(table.features, len(table.features))
        sources = [_shuffled(derive(table.column(name), table.kinds[name])) for name in names]
        columns = np.hstack([source.columns for source in sources])
        channel.send(roles.key_holder, "rows", len(columns))
        channel.send(roles.key_holder, "columns", columns.shape[1])
        channel.send(given, "groups", np.array([source.groups for source in sources]))
        lengths = np.concatenate([source.profile.lengths for source in sources])
        channel.send(given, "lengths", Aggregate(lengths))
        bound = rank_bound(len(columns))
        # The key holder opens products with no more columns than this many rows allow.
        most = len(columns) // self.rows_per_column
        channel.release(given, "products of columns", len(lengths) + columns.shape[1] * most)
        for number, block in enumerate(_blocks(columns, columns.shape[1])):
            encrypted = key.encrypt(block, use="inner", bound=bound)
            channel.within(f"block {number}").send(given, "derived columns", encrypted.to_wire())
        value = channel.receive(given, "strengths").payload
        answer = expect_array(
            value, sender=given, name="strengths", holds="float", shape=(len(names),)
        )
        if (answer < 0).any() or (answer > 1).any():
            raise ProtocolError(f"Party {given!r} sent strengths outside 0 to 1.", given)
        named = dict(zip(names, answer.tolist(), strict=True))
        ordered = [named[name] for name in table.features]
        return pd.Series(ordered, index=pd.Index(table.features), name="strength", dtype=float)

    def _given(
        self, channel: Channel, table: PartyTable, roles: Roles, key: PublicKey
    ) -> pd.DataFrame:
        """Form inner products with nameless encrypted columns; return one number for each."""
        other = roles.label_holder
        own = [derive(table.column(name), table.kinds[name]) for name in table.features]
        columns = np.hstack([source.columns for source in own])
        rows = len(columns)
        self._check_rows(channel.me, rows, columns.shape[1])
        channel.send(roles.key_holder, "columns", columns.shape[1])
        nameless = _receive_profiles(channel, other, rows)
        width = sum(len(profile.lengths) for profile in nameless)
        products = (
            _receive_columns(
                channel.within(f"block {number}"), other, key, (len(block), width)
            ).inner(block)
            for number, block in enumerate(_blocks(columns, width))
        )
        request, mask = reduce(add, products).masked()
        channel.send(roles.key_holder, "products", request)
        opened = mask.remove(channel.receive(roles.key_holder, "opened products"))
        matrix = strength_matrix(opened, nameless, [source.profile for source in own], rows)
        answer = np.round(aggregated(matrix, self.aggregate, self.k), self.decimals)
        channel.release(other, "strengths", len(answer))
        channel.send(other, "strengths", Aggregate(answer))
        return pd.DataFrame(matrix, index=pd.Index(table.features))

    def _check_rows(self, party: str, rows: int, columns: int) -> None:
        needed = self.rows_per_column * columns
        if rows < needed:
            raise DataError(
                f"Party {party!r} has {columns} derived columns (one for a numeric column, groups "
                f"less one for a categorical) but there are only {rows} common rows; at least "
                f"{needed} are needed, or their products would reveal single cells. Use fewer "
                "columns or groups, or more rows."
            )

    def _check(self) -> None:
        if self.aggregate not in AGGREGATES:
            raise ConfigError(
                f"The aggregate parameter of Association must be one of {', '.join(AGGREGATES)}. "
                f"Got {self.aggregate!r} instead."
            )
        for name, low, high in (
            ("k", 1, _MOST_COLUMNS),
            ("decimals", 0, MOST_DECIMALS),
            ("rows_per_column", 2, 1 << 40),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ConfigError(
                    f"The {name} parameter of Association must be an integer from {low} to {high}. "
                    f"Got {value!r} instead."
                )


def _shuffled(source: Derived) -> Derived:
    """The same column with its groups in a secret order: theirs would tell about names or rows."""
    count = source.columns.shape[1]
    return replace(source, columns=source.columns[:, _protecting.sample(range(count), count)])


def _blocks(columns: npt.NDArray[np.int32], width: int) -> Iterator[Integers]:
    """Runs of rows, one a message: equally long, so that their encrypted products add up.

    ``width`` is the number of encrypted columns, which both sides know; zeros fill the last run.
    """
    rows = len(columns)
    count = -(-rows * width // _BLOCK_CELLS)
    length = -(-rows // count)
    for start in range(0, rows, length):
        run = columns[start : start + length].astype(np.int64)
        yield np.pad(run, ((0, length - len(run)), (0, 0)))


def _receive_profiles(channel: Channel, sender: str, rows: int) -> list[Profile]:
    groups = expect_array(
        channel.receive(sender, "groups"),
        sender=sender,
        name="groups",
        holds="integer",
        shape=(None,),
    ).astype(np.int64)
    possible = (groups == 0) | ((groups >= 2) & (groups <= rows))
    widths = np.where(groups > 0, groups - 1, 1)
    if not groups.size or not possible.all() or widths.sum() > _MOST_COLUMNS:
        raise ProtocolError(f"Party {sender!r} sent numbers of groups that no column has.", sender)
    lengths = expect_array(
        channel.receive(sender, "lengths").payload,
        sender=sender,
        name="lengths",
        holds="integer",
        shape=(int(widths.sum()),),
    ).astype(np.int64)
    ends = np.cumsum(widths)
    profiles = [
        Profile(int(count), lengths[end - width : end])
        for count, width, end in zip(groups, widths, ends, strict=True)
    ]
    for profile in profiles:
        if (profile.lengths < 0).any() or (profile.groups and (profile.totals(rows) < 1).any()):
            raise ProtocolError(f"Party {sender!r} sent lengths that no column has.", sender)
    return profiles


def _receive_columns(
    channel: Channel, sender: str, key: PublicKey, shape: tuple[int, int]
) -> EncryptedArray:
    encrypted = key.load(channel.receive(sender, "derived columns"))
    if encrypted.shape != shape:
        raise ProtocolError(
            f"Party {sender!r} sent encrypted columns {encrypted.shape}; expected {shape}.",
            sender,
        )
    return encrypted


def _announced(channel: Channel, sender: str, name: str, high: int) -> int:
    return expect_integer(channel.receive(sender, name), sender=sender, name=name, low=1, high=high)


def _checked(party: str, part: Part) -> PartyTable:
    """The common rows of a party's table, if there is anything to compare."""
    if not part.table.features:
        raise DataError(
            f"Party {party!r} has no columns besides its id and labels; an association needs some."
        )
    if not len(part.rows):
        raise DataError(f"Party {party!r} has no rows in common with the other; align others.")
    return part.table.take(part.rows)
