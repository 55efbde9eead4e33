"""The seam of homomorphic encryption: arrays of exact integers, each with a public bound.

The base classes check types, shapes, keys and bounds once, here, before any scheme works; a
scheme adds only the arithmetic. Whatever could leave the plaintext space raises BoundExceeded
before it is computed, so nothing ever decrypts to rubbish.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from vfsl.crypto import wire
from vfsl.crypto.fixed import as_integers, max_abs, max_column_sum, negate
from vfsl.crypto.opening import Mask, SecretKey, read_shown
from vfsl.crypto.sums import GroupBound, Grouping, PrefixSums, find_shown
from vfsl.errors import (
    BoundExceeded,
    ConfigError,
    CryptoError,
    InputError,
    KeyMismatch,
    ProtocolError,
)
from vfsl.values import Array, Ciphertext, Masked

# What an array will be used for; a scheme may choose a faster layout for it.
Use = Literal["any", "inner", "sum_by", "add"]
# Sums that came out of an array made for one use: they add, scale and leave, no more.
RESULT = "result"
# The kinds of protocol for which scheme="auto" picks a scheme.
Work = Literal[
    "linear",
    "linear rounds",
    "linear rounds of many",
    "association",
    "trees",
    "trees without a key holder",
]


class Scheme(ABC):
    """A way to encrypt, with its parameters; makes keys and reads public keys.

    The class variables are facts that protocols ask for instead of a scheme's name.

    Attributes
    ----------
    name : str
    hides : bool
        False only where ciphertexts are readable (plain): no re-randomisation, never deployed.
    elementwise : bool
        Whether an encrypted array may be multiplied by a plain array element by element.
    rows_together : bool
        Whether many rows share a ciphertext: rows to be summed must then lie together, and
        ``take`` is refused.
    opener_sees_places : bool
        Whether whoever opens prefix sums learns which values each of them adds up.
    encrypts : bool
        False where nothing is encrypted and there are no keys (shares); such a scheme does the work
        that it serves, and no other.
    serves : tuple of str
        The kinds of work for which "auto" picks it, if no scheme listed earlier does that too.
    """

    name: ClassVar[str]
    hides: ClassVar[bool] = True
    elementwise: ClassVar[bool] = True
    rows_together: ClassVar[bool] = False
    opener_sees_places: ClassVar[bool] = False
    encrypts: ClassVar[bool] = True
    serves: ClassVar[tuple[Work, ...]] = ()

    def __init__(self, security: int = 128) -> None:
        self.security = security

    @abstractmethod
    def generate(self) -> tuple[PublicKey, SecretKey]:
        """A fresh key pair from the operating system's randomness."""

    def load_public(self, content: dict[str, Any]) -> PublicKey:
        """A public key from :meth:`PublicKey.to_wire`, refused unless it is sound."""
        came = wire.read_field(content, "scheme", str)
        if came != self.name:
            raise ProtocolError(
                f"A {self.name} public key was expected. Got scheme {came!r} instead."
            )
        return self._load_public(content)

    @abstractmethod
    def _load_public(self, content: dict[str, Any]) -> PublicKey: ...


class PublicKey(ABC):
    """Encrypts, and reads ciphertexts that were made under this key."""

    scheme: ClassVar[str]
    # Largest absolute value that every array of this key can hold.
    capacity: int

    @property
    def widest(self) -> int:
        """Largest absolute value that any array of this key can hold, whatever its layout."""
        return self.capacity

    @abstractmethod
    def to_wire(self) -> dict[str, Any]:
        """A dict of numbers, strings and bytes that ``Scheme.load_public`` reads."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the wire form, in hexadecimal."""
        return wire.hash_key(self.to_wire())

    def encrypt(self, ints: Any, *, use: Use = "any", bound: int | None = None) -> EncryptedArray:
        """Encrypt an integer array of any shape, or an object array of Python ints.

        Parameters
        ----------
        use : {"any", "inner", "sum_by", "add"}
            What the receiver will do. All but "any" allow smaller and faster layouts; "add" is
            for arrays that are only added up and opened. Element-wise products need "any".
        bound : int, optional
            A bound on the absolute values that may be public. Default: their largest, which
            ``to_wire`` rounds up to a power of two.
        """
        if use not in get_args(Use):
            raise ConfigError(
                f"The use parameter of encrypt must be one of {get_args(Use)}. Got {use!r} instead."
            )
        values = as_integers(ints, "The ints parameter of encrypt")
        if values.size == 0:
            raise InputError("encrypt needs at least one value. Got an empty array instead.")
        true = max_abs(values)
        if bound is not None and bound < true:
            raise BoundExceeded("The bound parameter of encrypt must cover every value.")
        declared = true if bound is None else bound
        check_bound(declared, self.capacity, "encrypt")
        return self._encrypt(values, use, declared)

    def load(self, ciphertext: Ciphertext) -> EncryptedArray:
        """Read an array that a peer sent by ``EncryptedArray.to_wire``, validating everything."""
        payload = wire.read_content(ciphertext, Ciphertext, "An encrypted array")
        wire.check_header(payload, self.scheme, self.fingerprint, "array")
        shape = wire.read_shape(payload)
        use = wire.read_field(payload, "use", str)
        if use not in (*get_args(Use), RESULT):
            raise ProtocolError(f"A ciphertext of a known use was expected. Got {use!r} instead.")
        return self._load(payload, shape, use, wire.read_bound(payload, self.widest))

    def load_mask(self, message: Masked) -> Mask:
        """Read a mask that a peer handed on by ``Mask.to_wire``, validating everything."""
        payload = wire.read_content(message, Masked, "A mask")
        wire.check_header(payload, self.scheme, self.fingerprint, "mask")
        shape = wire.read_shape(payload, least=0)
        bound = wire.read_bound(payload, self.widest)
        return self._load_mask(payload, shape, bound, read_shown(payload, shape))

    def prepare(self, count: int, *, use: Use = "inner") -> None:  # noqa: B027 - often nothing to do
        """Precompute randomness for ``count`` further numbers, where that saves time later.

        ``use`` is that of the arrays it is for; a scheme may keep "any" apart from the others.
        """

    def prepare_in_background(self, count: int, *, use: Use = "inner") -> threading.Thread | None:
        """The same by worker processes, without waiting; join the thread to wait for all."""
        return None

    @abstractmethod
    def _encrypt(self, values: Array, use: str, bound: int) -> EncryptedArray: ...

    @abstractmethod
    def _load(
        self, payload: dict[str, Any], shape: tuple[int, ...], use: str, bound: int
    ) -> EncryptedArray: ...

    @abstractmethod
    def _load_mask(
        self, payload: dict[str, Any], shape: tuple[int, ...], bound: int, shown: Array
    ) -> Mask: ...


@dataclass(eq=False, repr=False)
class EncryptedArray(ABC):
    """Encrypted integers in an array shape, with a bound on their absolute values."""

    key: PublicKey
    shape: tuple[int, ...]
    use: str
    bound: int
    # Of group sums: how large a sum over several groups can be. It does not cross the wire.
    groups: GroupBound | None = field(default=None, init=False)

    # Without it numpy would take `plain + encrypted` apart into an array of objects.
    __array_ufunc__ = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def capacity(self) -> int:
        """Largest bound that this array may reach; layouts of one key may differ in it."""
        return self.key.capacity

    def __repr__(self) -> str:
        return f"<{self.key.scheme} array {self.shape}, |value| <= {self.bound}>"

    def __add__(self, other: Any) -> Self:
        if isinstance(other, EncryptedArray):
            bound = self._check_next(self.bound + other.bound, "+")
            return self._join_groups(self._add(self._check_peer(other), bound), other)
        values = self._check_plain(other, "+")
        return self._add_plain(values, self._check_next(self.bound + max_abs(values), "+"))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        if isinstance(other, EncryptedArray):
            bound = self._check_next(self.bound + other.bound, "-")
            return self._join_groups(self._subtract(self._check_peer(other), bound), other)
        values = self._check_plain(other, "-")
        bound = self._check_next(self.bound + max_abs(values), "-")
        return self._add_plain(negate(values), bound)

    def __rsub__(self, other: Any) -> Self:
        return (-self).__add__(other)

    def __neg__(self) -> Self:
        return self._scale_all(-1, self.bound)

    def __mul__(self, other: Any) -> Self:
        """Multiply by a plain integer, or element by element by a plain integer array."""
        values = as_integers(other, "The factor of an encrypted array")
        bound = self._check_next(self.bound * max_abs(values), "*")
        if values.ndim == 0:
            return self._scale_all(int(values), bound)
        if self.use != "any":
            raise CryptoError(
                f"Element-wise products need an array encrypted with use='any'. "
                f"Got use={self.use!r} instead."
            )
        return self._multiply(self._check_plain(values, "*"), bound)

    __rmul__ = __mul__

    def without(self, part: EncryptedArray) -> Self:
        """Take off the sums over some of this array's rows; what is left are the other rows' sums.

        Sibling subtraction in trees: both arrays are sums over rows of the same bound, and
        ``part``'s rows are among this array's, so the bound does not grow as with ``-``. If prefix
        sums of both were asked for already, a scheme may let the key holder subtract what it
        opened; so requests must reach it in the order in which they were made.
        """
        rest = self._without(self._check_peer(part))
        rest.groups = self.groups
        return rest

    def take(self, rows: Any) -> Self:
        """Some rows along the first axis, by position; a row may be taken more than once."""
        at = as_integers(rows, "The rows parameter of take")
        length = self.shape[0] if self.shape else 0
        if at.ndim != 1 or at.size == 0 or int(at.min()) < 0 or int(at.max()) >= length:
            raise InputError(
                f"The rows parameter of take must be positions from 0 to {length - 1}. "
                f"Got an array of shape {at.shape} or positions outside instead."
            )
        return self._take(at)

    def inner(self, columns: Any) -> EncryptedArray:
        """Inner products with plain integer columns of shape (n, d).

        The result has shape (d,) if this array is (n,), and shape (k, d) if it is (n, k).
        """
        plain = as_integers(columns, "The columns parameter of inner")
        rows = self._count_rows("inner")
        if plain.ndim != 2 or plain.shape[0] != rows or plain.shape[1] == 0:
            raise InputError(
                f"The columns parameter of inner must have shape ({rows}, d). "
                f"Got {plain.shape} instead."
            )
        bound = self._check_next(self.bound * max_column_sum(plain), "inner")
        return self._inner(plain, bound)

    def sum_by(self, groups: Any, n: int) -> EncryptedArray:
        """Sums of the rows of each of n groups.

        ``groups`` has the group of each row, 0 to n − 1, or −1 for a row that counts nowhere. The
        result has shape (n,) if this array is (rows,), and shape (n, k) if it is (rows, k).
        """
        codes = as_integers(groups, "The groups parameter of sum_by")
        if codes.ndim != 1:
            raise InputError(
                f"The groups parameter of sum_by must have shape ({self._count_rows('sum_by')},). "
                f"Got {codes.shape} instead."
            )
        grouping, bound = self._check_grouping(codes[:, None], n)
        sums = self._sum_by(grouping, (n, *self.shape[1:]), bound)
        return self._bound_groups(sums, grouping.counts, n)

    def sum_by_many(self, groups: Any, n: int, stretch: int | None = None) -> EncryptedArray:
        """:meth:`sum_by` for several groupings of the same rows at once: (f, n) or (f, n, k).

        Parameters
        ----------
        groups : integer array of shape (rows, f), or Grouping
        stretch : int, optional
            Prefix sums will stay within this many neighbouring groups (:meth:`mask`), which bounds
            them by the rows of those. Default: all n.
        """
        grouping, bound = self._check_grouping(groups, n)
        whole = n if stretch is None else stretch
        if whole < 1 or n % whole:
            raise InputError(
                f"The stretch parameter of sum_by_many must divide n = {n}. Got {stretch} instead."
            )
        sums = self._sum_by(grouping, (*grouping.counts.shape, *self.shape[1:]), bound)
        return self._bound_groups(sums, grouping.counts, whole)

    def mask(self, sums: PrefixSums | None = None, shown: Any = None) -> tuple[Ciphertext, Mask]:
        """A request to the key holder, hidden by a uniform mask, and the mask to take off.

        The mask covers the whole plaintext space, so the key holder learns the number of
        values and nothing else; no bound goes along.

        Parameters
        ----------
        sums : PrefixSums, optional
            Open these sums over the flattened array, in their order, instead of its values.
        shown : array of bool, one per sum, optional
            The sums that the mask uncovers; default all. The key holder does not learn which ones
            they are. It learns which values each sum adds up (not the values themselves) where
            ``Scheme.opener_sees_places``, and otherwise only how many sums are shown. Whoever gets
            mask and answer learns nothing about the others.
        """
        if sums is None:
            if shown is not None:
                raise InputError("The shown parameter of mask needs sums. Got none instead.")
            payload, mask = self._mask()
            return Ciphertext(self._header("masked") | payload), mask
        sums.check(self.size)
        positions = find_shown(shown, len(sums))
        bound = self._check_next(sums.bound(self.bound, self.groups), "A prefix sum")
        payload, mask = self._mask_sums(sums, positions, bound)
        return Ciphertext(self._header("masked runs") | payload), mask

    def to_wire(self, *, bound: int | None = None) -> Ciphertext:
        """The array as it may leave this party: re-randomised, with a coarse bound.

        The bound to state must be at least the true one. By default it is the true one rounded up
        to a power of two less one, since a tight bound tells about private columns.
        """
        stated = wire.coarsen(self.bound, self.capacity) if bound is None else bound
        if stated < self.bound:
            raise BoundExceeded("The bound parameter of to_wire must not be below the true bound.")
        check_bound(stated, self.capacity, "to_wire")
        header = self._header("array") | {
            "use": self.use,
            "shape": np.array(self.shape, dtype=np.int64),
            "bound": wire.write_bound(stated),
        }
        return Ciphertext(header | self._rerandomise())

    # What a scheme implements; arguments are checked, ``bound`` is that of the result.

    @abstractmethod
    def _add(self, other: Self, bound: int) -> Self: ...

    @abstractmethod
    def _subtract(self, other: Self, bound: int) -> Self: ...

    @abstractmethod
    def _add_plain(self, values: Array, bound: int) -> Self: ...

    @abstractmethod
    def _scale(self, factor: int, bound: int) -> Self: ...

    @abstractmethod
    def _multiply(self, values: Array, bound: int) -> Self: ...

    @abstractmethod
    def _inner(self, columns: Array, bound: int) -> EncryptedArray: ...

    @abstractmethod
    def _sum_by(self, grouping: Grouping, shape: tuple[int, ...], bound: int) -> EncryptedArray: ...

    @abstractmethod
    def _take(self, rows: Array) -> Self: ...

    @abstractmethod
    def _mask(self) -> tuple[dict[str, Any], Mask]: ...

    @abstractmethod
    def _mask_sums(
        self, sums: PrefixSums, shown: Array, bound: int
    ) -> tuple[dict[str, Any], Mask]: ...

    @abstractmethod
    def _rerandomise(self) -> dict[str, Any]: ...

    def _without(self, part: Self) -> Self:
        return self._subtract(part, self.bound)

    def _join_groups(self, result: Self, other: EncryptedArray) -> Self:
        """A sum or difference, with what is known about its groups."""
        result.groups = self.groups.add(other.groups) if self.groups else None
        return result

    def _scale_all(self, factor: int, bound: int) -> Self:
        result = self._scale(factor, bound)
        result.groups = self.groups.scale(factor) if self.groups else None
        return result

    def _bound_groups(self, sums: EncryptedArray, counts: Array, stretch: int) -> EncryptedArray:
        """Group sums with the bound of all groups of a stretch together.

        It is the row bound times the most rows that count in a stretch. Where rows have several
        columns, a prefix sum may pass over all of them, so each counts.
        """
        columns = self.size // self.shape[0]
        counted = int(counts.reshape(-1, stretch).sum(axis=1).max())
        sums.groups = GroupBound(stretch * columns, self.bound * counted * columns)
        return sums

    def _header(self, form: str) -> dict[str, Any]:
        return {"scheme": self.key.scheme, "key": self.key.fingerprint, "form": form}

    def _check_next(self, bound: int, operation: str) -> int:
        check_bound(bound, self.capacity, operation)
        return bound

    def _check_peer(self, other: EncryptedArray) -> Self:
        if type(other) is not type(self) or other.key.fingerprint != self.key.fingerprint:
            raise KeyMismatch(
                f"Encrypted arrays combine under one key only. Got {self.key.scheme} key "
                f"{self.key.fingerprint[:12]} and {other.key.scheme} key "
                f"{other.key.fingerprint[:12]} instead."
            )
        if other.shape != self.shape:
            raise InputError(
                f"Encrypted arrays of one shape combine. Got {self.shape} and {other.shape} "
                "instead."
            )
        return other

    def _check_plain(self, other: Any, operation: str) -> Array:
        values = as_integers(other, f"The plain side of {operation}")
        if values.ndim == 0:
            return np.full(self.shape, values[()], dtype=values.dtype)
        if values.shape != self.shape:
            raise InputError(
                f"The plain side of {operation} must be a scalar or of shape {self.shape}. "
                f"Got shape {values.shape} instead."
            )
        return values

    def _count_rows(self, operation: str) -> int:
        if self.use == RESULT or len(self.shape) not in (1, 2):
            raise CryptoError(
                f"{operation} needs rows: an array of one or two axes that is not itself a sum. "
                f"Got shape {self.shape}, use={self.use!r} instead; encrypt with use='any' to "
                "sum twice (plain and paillier)."
            )
        return self.shape[0]

    def _check_grouping(self, groups: Any, n: int) -> tuple[Grouping, int]:
        grouping = groups if isinstance(groups, Grouping) else Grouping(groups, n)
        rows = self._count_rows("sum_by")
        if len(grouping.places) != rows or grouping.n != n:
            raise InputError(
                f"The groups parameter of sum_by must group {rows} rows into n = {n} groups. "
                f"Got {len(grouping.places)} rows and {grouping.n} groups instead."
            )
        return grouping, self._check_next(self.bound * int(grouping.counts.max()), "sum_by")


def check_bound(bound: int, capacity: int, operation: str) -> None:
    """Refuse an operation whose result could pass the capacity."""
    if bound > capacity:
        raise BoundExceeded(
            f"{operation} could reach {bound.bit_length()} bits, but this key holds "
            f"{capacity.bit_length()} bits; use fewer fixed-point bits or fewer rows."
        )
