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
On shares, shared/strengths.py says how the number is found and how far it may be off.

Under encryption every column becomes integer columns: a numeric one its centred ranks, doubled so
that averaged ties stay whole; a categorical one an indicator for each group. One encrypted matrix
product is enough, and the sums are exact. Groups are never small, but a *numeric* value that few
rows have is not merged: the feature holder can test a guess about which rows these are. Declare
such columns categorical.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from vfsl.channel import Channel, expect_array
from vfsl.crypto import EncryptedArray, KeyHolder, PublicKey
from vfsl.crypto.fixed import shift
from vfsl.crypto.shares import DISCLOSURES as DEALING
from vfsl.crypto.shares import Session
from vfsl.data import Kind, PartyTable, check_labels
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.estimators.exchange import MOST, MOST_ROWS, receive_count, receive_key, send_fresh_key
from vfsl.estimators.shared.strengths import Side, find_strengths
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
}

SHARED: Disclosures = {
    **DEALING,
    "strengths": Disclosure(
        Masked, "how strongly each of the receiver's columns goes with the sender's, rounded"
    ),
}

LEAST_ROWS = 10  # of a group
_PRODUCT_BITS = 56  # inner products stay below 2 to this power, which every scheme can hold
_RESULT_WIDTH = 16  # bits of 10^4 and a sign
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

    def measure(self, fed: Federation, given: str = "A", missing: str = "B") -> pd.Series[float]:
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
        strengths: pd.Series[float] = results[missing]
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
            At the label holder its rounded strengths by column; at the feature holder, under
            encryption, the association of its columns (down) with the nameless ones (across); None
            elsewhere.
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
    ) -> pd.Series[float] | None:
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
                session, sides[given], sides[missing], self.aggregate, self.k, self.decimals
            )
            about = ("columns",) if channel.me == given else ()
            opened = found.narrow(_RESULT_WIDTH).open(missing, name="strengths", about=about)
        if opened is None or table is None:
            return None
        # Errors can take a strength of 1 above it.
        answer = np.clip(opened, 0, 10**self.decimals) / 10**self.decimals
        return pd.Series(answer, index=pd.Index(table.features), name="strength", dtype=float)

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
    ) -> pd.Series[float]:
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
        value = channel.receive(given, "strengths").payload
        answer = expect_array(
            value, sender=given, name="strengths", holds="float", shape=(len(names),)
        )
        if (answer < 0).any() or (answer > 1).any():
            raise ProtocolError(f"Party {given!r} sent strengths outside 0 to 1.", given)
        named = dict(zip(names, answer.tolist(), strict=True))
        ordered = [named[name] for name in table.features]
        return pd.Series(ordered, index=pd.Index(table.features), name="strength", dtype=float)

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
        answer = np.round(aggregate_strengths(matrix, self.aggregate, self.k), self.decimals)
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


# ---- columns as integers, and measures as functions of their inner products ----------------------


@dataclass(frozen=True, eq=False)
class Derived:
    """One column as integer columns.

    ``groups`` is 0 for a numeric column, with its ranks as the only integer column. Otherwise there
    is an indicator for each group but the largest, whose sums follow from the others.
    """

    columns: npt.NDArray[np.int32]
    groups: int = 0

    @property
    def profile(self) -> Profile:
        return Profile(self.groups, (self.columns.astype(np.int64) ** 2).sum(axis=0))


@dataclass(frozen=True, eq=False)
class Profile:
    """What the feature holder knows of any column, its own or a nameless one.

    ``lengths`` are the squared lengths of the derived columns: for an indicator its number of rows.
    """

    groups: int
    lengths: Integers

    def totals(self, rows: int) -> Integers:
        """The sum of each derived column, the largest group's included."""
        if not self.groups:
            return np.zeros(1, dtype=np.int64)
        return np.append(self.lengths, rows - self.lengths.sum())


def derive(values: pd.Series[Any], kind: Kind) -> Derived:
    """The integer columns of one column; a constant one becomes zeros."""
    codes = np.asarray(pd.factorize(values, sort=True)[0], dtype=np.int64)
    if kind is Kind.NUMERIC:
        return Derived(centre_ranks(codes).astype(np.int32)[:, None])
    groups = merge_small_groups(codes)
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        return Derived(np.zeros((len(codes), 1), dtype=np.int32))
    # The largest: coarse ranks need not add up to zero, and what is left over hardly counts there.
    kept = np.delete(np.arange(len(sizes)), sizes.argmax())
    return Derived((groups[:, None] == kept).astype(np.int32), len(sizes))


def orthonormalise(values: pd.Series[Any], kind: Kind) -> Floats:
    """Orthonormal columns of one column's space; a constant one becomes a column of zeros.

    For groups these are centred functions of the group: with √(group size / rows) as a unit vector
    w, the columns but the first of the reflection that takes −w to the first axis are orthonormal
    and orthogonal to w.
    """
    codes = np.asarray(pd.factorize(values, sort=True)[0], dtype=np.int64)
    if kind is Kind.NUMERIC:
        ranks = double_ranks(codes).astype(np.float64)
        length = float(np.sqrt(ranks @ ranks))
        return (ranks / length if length else ranks)[:, None]
    groups = merge_small_groups(codes)
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        return np.zeros((len(codes), 1))
    first = np.sqrt(sizes / len(codes))
    shifted = first + np.eye(len(sizes))[0]
    reflection = np.eye(len(sizes)) - np.outer(shifted, shifted) / (1 + first[0])
    return np.asarray((reflection[:, 1:] / np.sqrt(sizes)[:, None])[groups])


def centre_ranks(codes: Integers) -> Integers:
    """`double_ranks` so that products fit under encryption.

    With more than 2^18 rows ranks are divided by a power of two, the same at all parties.
    """
    return np.asarray(shift(double_ranks(codes), _coarsening(len(codes))))


def double_ranks(codes: Integers) -> Integers:
    """Twice the rank of each value less the mean rank, ties averaged; 0 for a missing cell.

    ``codes`` number the different values in their order, −1 is missing.
    """
    seen = codes[codes >= 0]
    counts = np.bincount(seen)
    # c equal values up to rank e have the mean rank e − (c − 1)/2; that of all is (n + 1)/2.
    doubled = 2 * np.cumsum(counts) - counts - len(seen)
    return np.asarray(np.append(doubled, 0)[codes])


def rank_bound(rows: int) -> int:
    """A bound on derived values, from the number of rows alone."""
    return 1 << (rows.bit_length() - _coarsening(rows))


def _coarsening(rows: int) -> int:
    """By how many bits ranks are shifted: rows · rank² must stay below 2^_PRODUCT_BITS."""
    bits = rows.bit_length()
    return max(bits - (_PRODUCT_BITS - bits) // 2, 0)


def merge_small_groups(codes: Integers, least: int = LEAST_ROWS) -> Integers:
    """Groups of at least ``least`` rows, numbered from 0; −1 (missing) is a group like others.

    Smaller groups become one; if that is still too small, it joins the smallest other group.
    """
    _, groups = np.unique(codes, return_inverse=True)
    sizes = np.bincount(groups)
    small = sizes < least
    if not small.any():
        return np.asarray(groups, dtype=np.int64)
    target = int(np.flatnonzero(small)[0])
    if sizes[small].sum() < least and not small.all():
        target = int(np.where(small, len(groups) + 1, sizes).argmin())
    _, merged = np.unique(np.where(small[groups], target, groups), return_inverse=True)
    return np.asarray(merged, dtype=np.int64)


def measure_strength(products: Integers, missing: Profile, given: Profile, rows: int) -> float:
    """The association of two columns, from 0 to 1.

    ``products`` are the inner products of the one's derived columns (down) with the other's. All
    measures are √(Σ product² / (length · length)), where both sides are centred.
    """
    down, across = missing.totals(rows), given.totals(rows)
    table = products
    if given.groups:
        rest = down[: len(table), None] - table.sum(axis=1, keepdims=True)
        table = np.hstack([table, rest])
    if missing.groups:
        table = np.vstack([table, across - table.sum(axis=0)])
    down = down if missing.groups else missing.lengths
    across = across if given.groups else given.lengths
    # Products of two lengths pass int64, so floats from here on.
    centred, scale = table.astype(np.float64), np.outer(down.astype(np.float64), across)
    most = 1
    if missing.groups and given.groups:
        centred = centred - scale / rows
        most = min(missing.groups, given.groups) - 1
    terms = np.divide(centred**2, scale, out=np.zeros_like(scale), where=scale > 0)
    # Sorted, so that the secret order of groups does not show in the last digit.
    explained = float(np.sort(terms, axis=None).sum()) / most
    return float(np.sqrt(np.clip(explained, 0.0, 1.0)))


def aggregate_strengths(strengths: Floats, how: str, k: int) -> Floats:
    """One number for each missing column (across) from those of all given columns (down)."""
    if how == "mean":
        return np.asarray(strengths.mean(axis=0))
    ordered = -np.sort(-strengths, axis=0)
    return np.asarray(ordered[: 1 if how == "max" else k].mean(axis=0))


def measure_strengths(
    products: Array, missing: Sequence[Profile], given: Sequence[Profile], rows: int
) -> Floats:
    """The association of each given column (down) with each missing column (across)."""
    downs = np.cumsum([0, *(len(profile.lengths) for profile in missing)])
    acrosses = np.cumsum([0, *(len(profile.lengths) for profile in given)])
    matrix = np.zeros((len(given), len(missing)))
    for q, theirs in enumerate(missing):
        band = products[downs[q] : downs[q + 1]]
        for a, own in enumerate(given):
            cell = band[:, acrosses[a] : acrosses[a + 1]]
            matrix[a, q] = measure_strength(cell, theirs, own, rows)
    return matrix
