"""How strongly each column of one party goes with the columns of another, over the common rows.

Holds   the label holder (whose columns are to be predicted): columns; the one feature holder (whose
        columns are given): columns; the key holder: no data.
Learns  on shares (the default), the label holder: one rounded number for each of its columns. The
        others learn sizes only: how many rows, columns and derived columns there are, not how many
        groups a column has, nor whether it is numeric. The key holder is the dealer.
        Under encryption, the label holder: the same. The feature holder: for each column of the
        other, in a secret order and without names, whether it is numeric or how many groups it has,
        how large the groups are or how often values repeat, and its inner products with each own
        column (rank sums, counts of rows in pairs of groups). The key holder: uniformly masked
        numbers, how many rows and derived columns there are.

Three measures, all functions of inner products between ranks or indicators of groups:

    both numeric        |Spearman's ρ|
    one categorical     correlation ratio η of the other's ranks: √(variance between groups / total)
    both categorical    Cramér's V, without bias correction

A missing cell has the mean rank, or is of a group of its own; groups under 10 rows are merged.
Whether a number is above a threshold is asked where it is computed, before it is rounded: a bit per
column is told. A test of independence (significance.py) tells one more rounded number per column,
and of the given columns how many they are worth. On shares, shared/strengths.py says how the number
is found and how far it may be off.

Under encryption every column becomes integer columns: a numeric one its centred ranks, doubled so
that averaged ties stay whole; a categorical one an indicator for each group. One encrypted matrix
product is enough, and the sums are exact. Groups are never small, but a *numeric* value that few
rows have is not merged: the feature holder can test a guess about which rows these are. Declare
such columns categorical.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from vfsl.channel import Channel, expect_array
from vfsl.crypto import EncryptedArray, KeyHolder, PublicKey
from vfsl.crypto.shares import DISCLOSURES as DEALING
from vfsl.crypto.shares import Session
from vfsl.data import PartyTable, check_labels
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.estimators.exchange import MOST, MOST_ROWS, receive_count, receive_key, send_fresh_key
from vfsl.estimators.measures import (
    Derived,
    Profile,
    aggregate_strengths,
    derive,
    measure_strengths,
    orthonormalise,
    rank_bound,
)
from vfsl.estimators.shared.strengths import Side, count_explained_bits, find_strengths
from vfsl.estimators.significance import count_independent, find_p_values
from vfsl.federation import Federation
from vfsl.params import check_params, documented, param, settings_of
from vfsl.parts import Part, Roles
from vfsl.site import Site
from vfsl.values import (
    Aggregate,
    Array,
    Ciphertext,
    Disclosure,
    Disclosures,
    Floats,
    Integers,
    Masked,
)

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
    "above": Disclosure(
        Aggregate, "whether that number, before it is rounded, is above the agreed threshold"
    ),
    "explained": Disclosure(
        Aggregate, "for a test, how much of each of the receiver's columns the sender's explain"
    ),
    "worth": Disclosure(
        dict, "how many columns the sender has, and how many independent ones they are worth"
    ),
}

SHARED: Disclosures = {
    **DEALING,
    "strengths": Disclosure(
        Masked, "how strongly each of the receiver's columns goes with the sender's, rounded"
    ),
    "above": Disclosure(
        Masked, "whether that number, before it is rounded, is above the agreed threshold"
    ),
    "explained": Disclosure(
        Masked, "for a test, how much of each of the receiver's columns the sender's explain"
    ),
    "worth": DISCLOSURES["worth"],
}

_RESULT_WIDTH = 16  # bits of 10^4 and a sign
_BIT_WIDTH = 8
_EXPLAINED_WIDTH = 64
_CHUNK_CELLS = 1 << 21  # of one message: about 130 MB under bfv

# Orders that protect come from the operating system; no result depends on them.
_protecting = secrets.SystemRandom()


@documented
@dataclass
class Association:
    """How strongly one party's columns go with another's: which of them could be predicted."""

    name: ClassVar[str] = "association"

    aggregate: Literal["mean", "max", "top-k"] = param(
        "mean",
        "How the associations with all given columns become one number: their mean (as in "
        "FedPSG-PUM; over many columns it rarely exceeds 0.5), the largest one, or the mean of the "
        "k largest.",
    )
    k: int = param(3, "How many columns 'top-k' averages; all if there are fewer.", ge=1)
    decimals: int = param(2, "Decimal places of the numbers that leave.", ge=0, le=4)
    rows_per_column: int = param(
        10,
        "Under encryption, refuse to work on fewer common rows than this many per derived column "
        "of the given party: with as many columns as rows it could solve the products for the "
        "other's cells. On shares it sees no products, and this is not used.",
        ge=2,
    )
    above: float | None = param(
        None,
        "Also say of each column whether its number is strictly above this. The number is compared "
        "before it is rounded.",
        ge=0,
        le=1,
    )
    test: bool = param(
        False,
        "Also test whether each column is independent of all given ones: p-values, by a scaled "
        "chi-squared approximation (vfsl/estimators/significance.py).",
    )

    def measure(
        self, fed: Federation, given: str = "A", missing: str = "B"
    ) -> pd.Series[float] | pd.DataFrame:
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
            From 0 to 1, rounded, by column of ``missing``, in the order of its table. With
            ``above`` or ``test`` a DataFrame: strength, and above or p.
        """
        check_params(self)
        others = fed.roles(missing, self.name).feature_holders
        if given not in others:
            raise ConfigError(
                f"The given parameter of measure must be an aligned party other than {missing!r}: "
                f"{', '.join(others)}. Got {given!r} instead."
            )
        check_labels(fed.tables, (given, missing))
        results = fed.play(
            partial(self.compare, given=given, missing=missing),
            parties=(missing, given, fed.key_holder),
        )
        strengths: pd.Series[float] | pd.DataFrame = results[missing]
        return strengths

    def compare(
        self, site: Site, channel: Channel, given: str, missing: str
    ) -> pd.Series[float] | pd.DataFrame | None:
        """One party's whole side, wherever that party is; it returns what `train` does."""
        roles = replace(site.roles(missing, self.name), feature_holders=(given,))
        settings = {"given": given, "missing": missing, **settings_of(self)}
        settings |= {"scheme": roles.scheme, "security": roles.security}
        with site.records(self.name, channel, settings) as outcome:
            found = self.train(channel, site.part(), roles=roles)
            if found is not None and site.me == missing:
                outcome.metrics = {"columns": len(found)}
        return found

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
    ) -> pd.Series[float] | pd.DataFrame | None:
        """One party's side.

        Returns
        -------
        Series, DataFrame or None
            At the label holder its rounded strengths by column, or what `measure` returns; at the
            feature holder, under encryption, the association of its columns (down) with the
            nameless ones (across); None elsewhere.
        """
        check_params(self)
        if len(roles.feature_holders) != 1:
            raise ConfigError(
                "An association is between one label holder and one feature holder. "
                f"Got {len(roles.feature_holders)} feature holders instead."
            )
        table = None
        if channel.me != roles.key_holder:
            if part is None:
                raise ConfigError(f"Party {channel.me!r} needs a part of the data to compare.")
            table = _common_rows(channel.me, part)
        if roles.scheme == "shares":
            return self._share(channel.within(self.name, SHARED), table, roles)
        channel = channel.within(self.name, DISCLOSURES)
        if table is None:
            self._hold_key(channel, roles)
            return None
        key = receive_key(channel, roles)
        if channel.me == roles.label_holder:
            return self._hold_missing(channel, table, roles, key)
        return self._hold_given(channel, table, roles, key)

    def _share(
        self, channel: Channel, table: PartyTable | None, roles: Roles
    ) -> pd.Series[float] | pd.DataFrame | None:
        """Any party's side on shares; the label holder learns the rounded strengths."""
        missing, (given,) = roles.label_holder, roles.feature_holders
        own = None if table is None else _find_side(channel.me, table)
        with Session.join(channel, roles.data_holders, roles.key_holder) as session:
            sizes = session.agree({} if own is None else own.sizes)
            sides = {party: _read_side(party, sizes[party]) for party in (given, missing)}
            if sides[given].rows != sides[missing].rows:
                raise ProtocolError(
                    f"Party {given!r} compares {sides[given].rows} rows, party {missing!r} "
                    f"{sides[missing].rows}; both must have the same.",
                    given if channel.me == missing else missing,
                )
            if own is not None:
                sides[own.owner] = own
            found = find_strengths(
                session,
                sides[given],
                sides[missing],
                self.aggregate,
                self.k,
                self.decimals,
                above=self.above,
                explained=self.test,
            )
            about = ("columns",) if channel.me == given else ()
            opened = {
                name: value.narrow(width).open(missing, name=name, about=about)
                for name, value, width in (
                    ("strengths", found.rounded, _RESULT_WIDTH),
                    ("above", found.above, _BIT_WIDTH),
                    ("explained", found.explained, _EXPLAINED_WIDTH),
                )
                if value is not None
            }
        if self.test and own is not None and channel.me == given:
            _send_worth(channel, missing, np.asarray(own.cells))
        if own is None or table is None or channel.me != missing:
            return None
        # Errors can take a strength of 1 above it.
        strengths = np.clip(np.asarray(opened["strengths"]), 0, 10**self.decimals)
        explained = None
        if self.test:
            explained = np.asarray(opened["explained"]) / 2.0 ** count_explained_bits(own.rows)
        answer = strengths / 10**self.decimals
        dimensions = np.asarray(own.dimensions)
        return self._tell(channel, given, table, answer, opened.get("above"), explained, dimensions)

    def _tell(
        self,
        channel: Channel,
        given: str,
        table: PartyTable,
        strengths: Floats,
        above: Array | None,
        explained: Floats | None,
        dimensions: Integers,
    ) -> pd.Series[float] | pd.DataFrame:
        """What the label holder has found, by its columns in the order of its table."""
        index = pd.Index(table.features)
        found: pd.Series[float] = pd.Series(strengths, index=index, name="strength", dtype=float)
        if above is None and explained is None:
            return found
        frame = found.to_frame()
        if above is not None:
            frame["above"] = above > 0
        if explained is not None:
            total, worth = _receive_worth(channel, given)
            frame["p"] = find_p_values(explained, dimensions, len(table), total, worth)
        return frame

    def _hold_key(self, channel: Channel, roles: Roles) -> None:
        secret = send_fresh_key(channel, roles)
        (given,) = roles.feature_holders
        rows = receive_count(channel, roles.label_holder, "rows", 1, MOST_ROWS)
        down = receive_count(channel, roles.label_holder, "columns", 1, MOST)
        across = receive_count(channel, given, "columns", 1, MOST)
        # Checked again here, on the word of the party whose cells are at stake.
        self._check_rows(given, rows, across)
        holder = KeyHolder(secret, {"products": (down, across)})
        request = channel.receive(given, "products")
        channel.send(given, "opened products", holder.open("products", request))

    def _hold_missing(
        self, channel: Channel, table: PartyTable, roles: Roles, key: PublicKey
    ) -> pd.Series[float] | pd.DataFrame:
        """Send nameless columns in a secret order; learn their rounded strengths."""
        (given,) = roles.feature_holders
        names = _protecting.sample(table.features, len(table.features))
        sources = [_shuffle_groups(derive(table.column(name), table.kinds[name])) for name in names]
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
        for number, chunk in enumerate(_split_rows(columns, columns.shape[1])):
            encrypted = key.encrypt(chunk, use="inner", bound=bound)
            channel.within(f"block {number}").send(given, "derived columns", encrypted.to_wire())
        lines = {
            name: _receive_line(channel, given, name, len(names))
            for name, asked in (
                ("strengths", True),
                ("above", self.above is not None),
                ("explained", self.test),
            )
            if asked
        }
        if (lines["strengths"] < 0).any() or (lines["strengths"] > 1).any():
            raise ProtocolError(f"Party {given!r} sent strengths outside 0 to 1.", given)
        order = [names.index(name) for name in table.features]
        lines = {name: line[order] for name, line in lines.items()}
        widths = np.array([max(source.groups - 1, 1) for source in sources])[order]
        return self._tell(
            channel,
            given,
            table,
            lines["strengths"],
            lines.get("above"),
            lines.get("explained"),
            widths,
        )

    def _hold_given(
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
                channel.within(f"block {number}"), other, key, (len(chunk), width)
            ).inner(chunk)
            for number, chunk in enumerate(_split_rows(columns, width))
        )
        request, mask = reduce(add, products).mask()
        channel.send(roles.key_holder, "products", request)
        opened = mask.remove(channel.receive(roles.key_holder, "opened products"))
        matrix = measure_strengths(opened, nameless, [source.profile for source in own], rows)
        exact = aggregate_strengths(matrix, self.aggregate, self.k)
        lines = {"strengths": np.round(exact, self.decimals)}
        if self.above is not None:
            lines["above"] = (exact > self.above).astype(np.float64)
        if self.test:
            widths = ([max(one.groups - 1, 1) for one in side] for side in (own, nameless))
            smaller = np.minimum.outer(*widths)
            units = 2.0 ** count_explained_bits(rows)
            lines["explained"] = np.rint((matrix**2 * smaller).sum(axis=0) * units) / units
        for name, line in lines.items():
            channel.release(other, name, len(line))
            channel.send(other, name, Aggregate(line))
        if self.test:
            spaces = [orthonormalise(table.column(n), table.kinds[n]) for n in table.features]
            _send_worth(channel, other, np.hstack(spaces))
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


def _send_worth(channel: Channel, to: str, columns: Floats) -> None:
    """How many orthonormal columns there are, and how many independent ones, in tenths."""
    total, worth = count_independent(columns)
    channel.send(to, "worth", {"columns": total, "worth": round(worth, 1)})


def _receive_worth(channel: Channel, sender: str) -> tuple[int, float]:
    came = channel.receive(sender, "worth")
    total, worth = came.get("columns"), came.get("worth")
    if not (isinstance(total, int) and isinstance(worth, float) and 0 <= worth <= total + 0.05):
        raise ProtocolError(f"Party {sender!r} sent a number of columns that none has.", sender)
    return total, worth


def _receive_line(channel: Channel, sender: str, name: str, columns: int) -> Floats:
    value = channel.receive(sender, name).payload
    return expect_array(value, sender=sender, name=name, holds="float", shape=(columns,))


def _find_side(party: str, table: PartyTable) -> Side:
    """A party's columns as orthonormal ones."""
    spaces = [orthonormalise(table.column(name), table.kinds[name]) for name in table.features]
    belongs = np.repeat(np.arange(len(spaces)), [space.shape[1] for space in spaces])
    return Side(party, len(table), len(spaces), len(belongs), np.hstack(spaces), belongs)


def _read_side(party: str, sizes: dict[str, int]) -> Side:
    """What a party tells all others of its columns."""
    if set(sizes) != {"rows", "columns", "derived"}:
        raise ProtocolError(f"Party {party!r} sent other sizes than expected.", party)
    side = Side(party, sizes["rows"], sizes["columns"], sizes["derived"])
    if side.rows < 1 or not 1 <= side.columns <= side.derived <= MOST:
        raise ProtocolError(f"Party {party!r} sent sizes that no table has.", party)
    return side


def _shuffle_groups(source: Derived) -> Derived:
    """The same column with its groups in a secret order: theirs would tell about names or rows."""
    count = source.columns.shape[1]
    return replace(source, columns=source.columns[:, _protecting.sample(range(count), count)])


def _split_rows(columns: npt.NDArray[np.int32], width: int) -> Iterator[Integers]:
    """Chunks of rows, one per message: equally long, so that their encrypted products add up.

    ``width`` is the number of encrypted columns, which both sides know; zeros fill the last chunk.
    """
    rows = len(columns)
    count = -(-rows * width // _CHUNK_CELLS)
    length = -(-rows // count)
    for start in range(0, rows, length):
        chunk = columns[start : start + length].astype(np.int64)
        yield np.pad(chunk, ((0, length - len(chunk)), (0, 0)))


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
    if not groups.size or not possible.all() or widths.sum() > MOST:
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


def _common_rows(party: str, part: Part) -> PartyTable:
    """The common rows of a party's table, if there is anything to compare."""
    if not part.table.features:
        raise DataError(
            f"Party {party!r} has no columns besides its id and labels; an association needs some."
        )
    if not len(part.rows):
        raise DataError(f"Party {party!r} has no rows in common with the other; align others.")
    return part.table.take(part.rows)
