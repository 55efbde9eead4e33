"""Opening under BFV: requests, masks, prefix sums at the key holder, and the secret key.

A request carries the second half of each ciphertext whole, but of the first half only the
coefficients of the values: no other coefficient of the plaintext can be computed from that, with
any key. A sum over slots is one coefficient of a product (see packing.py), so the key holder opens
sums, never the terms, and needs no rotation keys. Slots that are opened one by one come as whole
polynomials, uniformly masked; the answer holds as many of their values as were declared.

Prefix sums. The key holder opens all values of an array, uniformly masked, and answers with sums of
them, so a mask's receiver could relate two answers about the same values. Therefore each answer
gets one more uniform number, from a seed that only the sender and the key holder hold; the mask
includes it for what is shown, and everything else stays uniform to its receiver.

The key holder keeps what it opened for a while, so that the difference of two arrays needs no
further ciphertext: it subtracts what it has, and the sender subtracts the masks.
"""

from __future__ import annotations

import itertools
import math
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import seal

from vfsl.crypto import wire
from vfsl.crypto.opening import Mask, SecretKey
from vfsl.crypto.packing import Layout
from vfsl.crypto.ring import Ring
from vfsl.crypto.sums import PrefixSums
from vfsl.errors import ProtocolError
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.crypto.bfv import BFVPublicKey
    from vfsl.crypto.bfv_array import BFVArray
    from vfsl.crypto.scheme import EncryptedArray

SEED_BYTES = 32
# A ticket names a request: who asked (one key object of one party), and a running number.
OWNER_BYTES, TICKET_BYTES = 8, 16
# How many opened values are kept for each owner, and how many owners. A sender counts on only half
# of that, since requests of several threads may overtake each other.
KEPT_VALUES = 1 << 23
KEPT_OWNERS = 64


@dataclass(frozen=True, eq=False)
class Ticket:
    """A request for prefix sums that the key holder keeps: its name, when it was made, masks."""

    name: bytes
    at: int
    masks: Array


class Tickets:
    """Names for the requests that one key object makes."""

    def __init__(self) -> None:
        self._owner = secrets.token_bytes(OWNER_BYTES)
        self._numbers = itertools.count()
        self._asked = 0

    def issue(self, masks: Array) -> Ticket:
        self._asked += masks.size
        number = next(self._numbers).to_bytes(TICKET_BYTES - OWNER_BYTES, "big")
        return Ticket(self._owner + number, self._asked, masks)

    def is_kept(self, ticket: Ticket) -> bool:
        """Whether the key holder surely still has what it opened for this ticket."""
        ours = ticket.name.startswith(self._owner)
        return ours and self._asked - ticket.at <= KEPT_VALUES // 2


class Shelf:
    """Masked values that the key holder opened, by ticket; each owner's oldest go first."""

    def __init__(self) -> None:
        self._owners: dict[bytes, OrderedDict[bytes, Array]] = {}
        self._sizes: dict[bytes, int] = {}
        self._lock = threading.Lock()

    def keep(self, ticket: bytes, values: Array) -> None:
        owner = ticket[:OWNER_BYTES]
        with self._lock:
            if owner not in self._owners and len(self._owners) >= KEPT_OWNERS:
                raise ProtocolError(
                    f"At most {KEPT_OWNERS} key objects may ask one key holder for prefix sums."
                )
            held = self._owners.setdefault(owner, OrderedDict())
            before = held.pop(ticket, None)  # a request that is answered again
            held[ticket] = values
            size = self._sizes.get(owner, 0) + values.size - (0 if before is None else before.size)
            while size > KEPT_VALUES and len(held) > 1:
                size -= held.popitem(last=False)[1].size
            self._sizes[owner] = size

    def get(self, ticket: bytes) -> Array:
        with self._lock:
            values = self._owners.get(ticket[:OWNER_BYTES], OrderedDict()).get(ticket)
        if values is None:
            raise ProtocolError(
                "A masked request refers to one that was not opened here; let the key holder open "
                "requests in the order in which they were made."
            )
        return values


@dataclass(eq=False, repr=False)
class BFVMask(Mask):
    """A uniform residue mod t for every value that is shown, at its place among the answers."""

    key: BFVPublicKey
    ring: Ring
    numbers: Array
    places: Array
    answers: int

    @property
    def shown(self) -> Array:
        return self.places

    def _remove(self, payload: dict[str, Any]) -> Array:
        residues = wire.read_array(payload, "residues", np.uint64, 1)
        ring = self.ring
        if residues.size != self.answers or residues.max() >= ring.t:
            raise ProtocolError(
                f"An answer of {self.answers} residues was expected. "
                f"Got {residues.size} instead, or some out of range."
            )
        return ring.centre(ring.minus(residues[self.shown], self.numbers)).reshape(self.shape)

    def _fields(self) -> dict[str, Any]:
        return {"numbers": self.numbers, "answers": self.answers, "degree": self.ring.degree}


def add_up_hidden(ring: Ring, sums: PrefixSums, residues: Array, seed: bytes) -> Array:
    """Prefix sums mod t, each plus its number from the seed: of masks as of masked values."""
    return ring.plus(ring.add_up(sums, residues), ring.expand(seed, len(sums)))


class BFVSecretKey(SecretKey):
    """Secret keys of SEAL, one for each ring by its degree."""

    public: BFVPublicKey

    def __init__(self, public: BFVPublicKey, secret: dict[int, Any]) -> None:
        super().__init__(public)
        self._decryptors = {
            degree: seal.Decryptor(public.at(degree).ring.context, one)
            for degree, one in secret.items()
        }
        self._shelves = {degree: Shelf() for degree in secret}

    def _decrypt(self, array: EncryptedArray) -> Array:
        held = cast("BFVArray", array)  # no other array has this key's fingerprint
        values = self._find_residues(held.raws, held.layout, held.shape)
        return self.public.at(held.layout.degree).ring.centre(values)

    def _open(
        self, payload: dict[str, Any], shape: tuple[int, ...], prefixes: bool
    ) -> dict[str, Any]:
        if not prefixes:
            return {"residues": self._open_values(payload, shape)}
        size = math.prod(shape)
        sums = PrefixSums.from_wire(payload, size)
        seed, ticket = (wire.read_field(payload, name, bytes) for name in ("seed", "ticket"))
        if len(seed) != SEED_BYTES or len(ticket) != TICKET_BYTES:
            raise ProtocolError(
                "A request for prefix sums has a seed or a ticket of another length."
            )
        degree = self.public.read_degree(payload)
        if "less" in payload:
            values = self._subtract_opened(payload, degree, size)
        else:
            values = self._open_values(payload, shape)
        self._shelves[degree].keep(ticket, values)
        return {"residues": add_up_hidden(self.public.at(degree).ring, sums, values, seed)}

    def _subtract_opened(self, payload: dict[str, Any], degree: int, size: int) -> Array:
        """What two earlier requests opened, one less the other."""
        names = wire.read_array(payload, "less", np.uint8, 2)
        if names.shape != (2, TICKET_BYTES):
            raise ProtocolError("A difference needs two tickets.")
        whole, part = (self._shelves[degree].get(name.tobytes()) for name in names)
        if not whole.size == part.size == size:
            raise ProtocolError(
                f"A difference of {size} values was expected. Got {whole.size} and {part.size}."
            )
        return self.public.at(degree).ring.minus(whole, part)

    def _open_values(self, payload: dict[str, Any], shape: tuple[int, ...]) -> Array:
        """The masked values of a request, flattened."""
        layout = self.public.read_layout(payload, shape)
        ring = self.public.at(layout.degree).ring
        count, low = layout.count(shape), ring.last.limbs
        polynomial, exponent = layout.sent_places(shape)
        first = wire.read_array(payload, "first", np.uint64, 2)
        second = wire.read_array(payload, "second", np.uint64, 3)
        if first.shape != (low, polynomial.size) or second.shape != (count, low, ring.degree):
            raise ProtocolError(
                f"A masked request of {count} bfv ciphertexts was expected. Got {first.shape} and "
                f"{second.shape} numbers instead."
            )
        if not ring.in_range(first) or not ring.in_range(second):
            raise ProtocolError("A bfv ciphertext lies outside its range.")
        raws = np.zeros((count, 2, low, ring.degree), dtype=np.uint64)
        raws[:, 1] = second
        raws[polynomial, 0, :, exponent] = first.T
        return self._find_residues(raws, layout, shape).reshape(-1)

    def _find_residues(self, raws: Array, layout: Layout, shape: tuple[int, ...]) -> Array:
        """The residues behind ciphertexts, whatever else they hold."""
        key, decryptor = self.public.at(layout.degree), self._decryptors[layout.degree]
        rows = [key.ring.from_plain(decryptor.decrypt(key.ring.to_seal(raw))) for raw in raws]
        return key.from_polynomials(np.stack(rows), layout, shape)
