"""Opening under BFV: requests, masks, sums over runs at the key holder, and the secret key.

A request carries the second half of each ciphertext whole, of the first half the coefficients of
the values only: no other coefficient of the plaintext can be computed from that, with any key. A
sum over slots is one coefficient of a product (see packing.py), so the key holder opens sums, never
the terms, and needs no rotation keys. Slots that are opened one by one come as whole polynomials,
uniformly masked; the answer holds as many of their values as were declared.

Runs. The key holder opens all values of an array, uniformly masked, and answers with sums of
them, so a mask's receiver could relate two answers about the same values. Therefore each answer
gets one more uniform number, from a seed that only the sender and the key holder hold; the mask
includes it for what is shown, and everything else stays uniform to its receiver.

What the key holder opened it keeps a while, so that the difference of two arrays needs no further
ciphertext: it subtracts what it has, and the sender subtracts the masks.
"""

from __future__ import annotations

import itertools
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
from vfsl.crypto.runs import Runs
from vfsl.errors import ProtocolError
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.crypto.bfv import BFVPublicKey
    from vfsl.crypto.bfv_array import BFVArray
    from vfsl.crypto.scheme import EncryptedArray

SEED_BYTES = 32
# A ticket names a request: who asked (one key object of one party), and a running number.
OWNER_BYTES, TICKET_BYTES = 8, 16
# So many opened values are kept for an owner, and so many owners. A sender counts on half of it
# only, since requests of several threads may overtake each other.
KEPT_VALUES = 1 << 23
KEPT_OWNERS = 64


@dataclass(frozen=True, eq=False)
class Ticket:
    """A request for runs that the key holder keeps: its name, when it was made, its masks."""

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

    def kept(self, ticket: Ticket) -> bool:
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
                    f"At most {KEPT_OWNERS} key objects may ask one key holder for runs."
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


class BFVMask(Mask):
    """A uniform residue mod t for every value that is shown."""

    key: BFVPublicKey

    def __init__(
        self,
        key: BFVPublicKey,
        shape: tuple[int, ...],
        bound: int,
        ring: Ring,
        mask: Array,
        shown: Array,
        answers: int,
    ) -> None:
        super().__init__(key, shape, bound)
        self._ring = ring
        self.shown = shown
        self._mask = mask
        self._answers = answers

    def _remove(self, payload: dict[str, Any]) -> Array:
        residues = wire.array_field(payload, "residues", np.uint64, 1)
        ring = self._ring
        if residues.size != self._answers or residues.max() >= ring.t:
            raise ProtocolError(
                f"An answer of {self._answers} residues was expected. "
                f"Got {residues.size} instead, or some out of range."
            )
        return ring.centred(ring.minus(residues[self.shown], self._mask)).reshape(self.shape)

    def _fields(self) -> dict[str, Any]:
        return {"numbers": self._mask, "answers": self._answers, "degree": self._ring.degree}


def load_mask(
    key: BFVPublicKey, payload: dict[str, Any], shape: tuple[int, ...], bound: int, shown: Array
) -> BFVMask:
    """A mask that a peer handed on."""
    numbers = wire.array_field(payload, "numbers", np.uint64, 1)
    answers = wire.field(payload, "answers", int)
    ring = key.at(key.read_degree(payload)).ring
    if numbers.size != shown.size or (numbers >= ring.t).any():
        raise ProtocolError(
            f"A mask of {shown.size} residues was expected. Got {numbers.size} instead, or some "
            "out of range."
        )
    if not shown.max(initial=0) < answers <= wire.MAX_VALUES:
        raise ProtocolError("A bfv mask states positions that its answer cannot have.")
    return BFVMask(key, shape, bound, ring, numbers, shown, answers)


def run_request(
    key: BFVPublicKey, ring: Ring, ticket: Ticket, runs: Runs, shown: Array, bound: int
) -> tuple[dict[str, Any], BFVMask]:
    """What a request for runs says beside its values, and the mask of those that are shown."""
    seed = secrets.token_bytes(SEED_BYTES)
    over = run_residues(ring, runs, ticket.masks, seed)[shown]
    mask = BFVMask(key, (len(shown),), bound, ring, over, shown, len(runs))
    return runs.to_wire() | {"seed": seed, "ticket": ticket.name}, mask


def run_residues(ring: Ring, runs: Runs, residues: Array, seed: bytes) -> Array:
    """Sums over runs mod t, each with its number from the seed: on masks as on masked values."""
    fresh = ring.expanded(seed, len(runs))
    return ring.plus(ring.run_sums(runs, residues), fresh)


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
        values = self._values(held._raws, held._layout, held.shape)
        return self.public.at(held._layout.degree).ring.centred(values)

    def _open(self, payload: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        return {"residues": self._opened(payload, shape)}

    def _open_runs(self, payload: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        size = int(np.prod(shape, dtype=np.int64))
        runs = Runs.from_wire(payload, size)
        seed, ticket = (wire.field(payload, name, bytes) for name in ("seed", "ticket"))
        if len(seed) != SEED_BYTES or len(ticket) != TICKET_BYTES:
            raise ProtocolError("A request for runs has a seed or a ticket of another length.")
        degree = self.public.read_degree(payload)
        if "less" in payload:
            values = self._difference(payload, degree, size)
        else:
            values = self._opened(payload, shape)
        self._shelves[degree].keep(ticket, values)
        return {"residues": run_residues(self.public.at(degree).ring, runs, values, seed)}

    def _difference(self, payload: dict[str, Any], degree: int, size: int) -> Array:
        """What two earlier requests opened, one less the other."""
        names = wire.array_field(payload, "less", np.uint8, 2)
        if names.shape != (2, TICKET_BYTES):
            raise ProtocolError("A difference needs two tickets.")
        whole, part = (self._shelves[degree].get(name.tobytes()) for name in names)
        if not whole.size == part.size == size:
            raise ProtocolError(
                f"A difference of {size} values was expected. Got {whole.size} and {part.size}."
            )
        return self.public.at(degree).ring.minus(whole, part)

    def _opened(self, payload: dict[str, Any], shape: tuple[int, ...]) -> Array:
        """The masked values of a request, flattened."""
        layout = self.public.read_layout(payload, shape)
        ring = self.public.at(layout.degree).ring
        count, low = layout.count(shape), ring.last.limbs
        polynomial, exponent = layout.sent(shape)
        first = wire.array_field(payload, "first", np.uint64, 2)
        second = wire.array_field(payload, "second", np.uint64, 3)
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
        return self._values(raws, layout, shape).reshape(-1)

    def _values(self, raws: Array, layout: Layout, shape: tuple[int, ...]) -> Array:
        """The residues behind ciphertexts, whatever else they hold."""
        key, decryptor = self.public.at(layout.degree), self._decryptors[layout.degree]
        rows = [key.ring.coefficients(decryptor.decrypt(key.ring.object(raw))) for raw in raws]
        return key.values(np.stack(rows), layout, shape)
