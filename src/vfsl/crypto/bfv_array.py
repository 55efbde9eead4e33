"""Arrays under BFV: sums and products of values in coefficients or slots, and what may leave.

What leaves. Products leave cross terms in the coefficients that nobody asked for, and an error that
depends on the private factor. So whatever was combined leaves with an encryption of zero added, a
uniform mask on all unwanted coefficients (for the key holder: on the wanted ones, while the others
do not leave at all, see bfv_opening.py), and its error flooded by at least 2^40 · (number of
coefficients) times the worst-case bound of this party's own error; if the parameters have no room
for that, the operation is refused before it starts. Values in slots that go to another party leave
with less flooding if that is enough, so that the receiver can multiply them once more.

The key holder returns as many numbers as the declared shape has values. Which ones, the layout
says; a sender could move any coefficient anywhere by multiplying with a power of X, so their number
is what counts. Slots are masked in all coefficients, since every coefficient tells about every
slot; sums over slots are one coefficient.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from vfsl.crypto.bfv_opening import SEED_BYTES, BFVMask, Ticket, add_up_hidden
from vfsl.crypto.packing import SLOTTED, ColumnPlains, GroupPlains, Layout, Plains, SlotPlains
from vfsl.crypto.ring import Exit, Ring, multiply_task, needed_bits
from vfsl.crypto.scheme import RESULT, EncryptedArray
from vfsl.crypto.sums import Grouping, PrefixSums
from vfsl.crypto.work import cut_chunks, spread_if_worth
from vfsl.errors import ConfigError, CryptoError
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.crypto.bfv import BFVPublicKey, RingKey

Some = TypeVar("Some", bound="BFVArray")

# Only to decide about worker processes.
SECONDS_PER_PRODUCT, SECONDS_PER_PLAIN = 0.22e-3, 0.4e-3
# Coefficients of plaintexts that are kept for a grouping that serves again: 256 MB.
KEPT_NUMBERS = 1 << 25


class LastRequest:
    """Where an array notes its last request for prefix sums, for those that are made from it."""

    ticket: Ticket | None = None


@dataclass(eq=False, repr=False)
class BFVArray(EncryptedArray):
    """Ciphertexts with their layout and two worst-case error bounds.

    ``error`` is all of it and decides whether decryption works. ``own`` is the part that depends
    on what this party keeps private, and has to be drowned before the array leaves.
    """

    key: BFVPublicKey
    raws: Array
    layout: Layout
    error: int
    own: int
    fresh: bool = False
    _last_request: LastRequest = field(default_factory=LastRequest, init=False)
    # If this array is a difference: the last requests of both parts.
    _less: tuple[LastRequest, LastRequest] | None = field(default=None, init=False)

    @property
    def capacity(self) -> int:
        return self._home.capacity

    @property
    def _home(self) -> RingKey:
        return self.key.at(self.layout.degree)

    @property
    def _ring(self) -> Ring:
        return self._home.ring

    @property
    def _limbs(self) -> int:
        return int(self.raws.shape[2])

    @property
    def _coefficients(self) -> int:
        return len(self.raws) * self._ring.degree

    def _make(self, raws: list[Array], bound: int, error: int, own: int) -> Self:
        raws, error = _fill_hollow(self._home, raws, error)
        return replace(self, bound=bound, raws=np.stack(raws), error=error, own=own, fresh=False)

    def _check_peer(self, other: EncryptedArray) -> Self:
        same = super()._check_peer(other)
        if same.layout != self.layout:
            raise CryptoError(
                f"bfv arrays of one layout combine. Got {self.layout} and {same.layout} "
                "instead; encrypt both with the same use, and sum both the same way."
            )
        return same

    # ---- arithmetic ---------------------------------------------------------------------------

    def _add(self, other: Self, bound: int) -> Self:
        one, two = _level(self, other)
        raws = list(self._ring.add(one.raws, two.raws))
        return one._make(raws, bound, one.error + two.error, one.own + two.own)

    def _subtract(self, other: Self, bound: int) -> Self:
        one, two = _level(self, other)
        raws = list(self._ring.subtract(one.raws, two.raws))
        return one._make(raws, bound, one.error + two.error, one.own + two.own)

    def _add_plain(self, values: Array, bound: int) -> Self:
        ring, rows = self._ring, self._home.to_polynomials(values, self.layout)
        if self._limbs > ring.last.limbs:
            raws = [ring.add_plain(raw, row) for raw, row in zip(self.raws, rows, strict=True)]
            # Scaling the plaintext by q/t rounds by at most ½.
            return self._make(raws, bound, self.error + 1, self.own + 1)
        zeros = self._home.pool.take(len(rows))
        raws = [
            ring.add(raw, self._cover(zero, row, ring.last))
            for raw, zero, row in zip(self.raws, zeros, rows, strict=True)
        ]
        return self._make(raws, bound, self.error + self._cover_error(ring.last), self.own)

    def _scale(self, factor: int, bound: int) -> Self:
        if factor == 0 or self.bound == 0:
            return self._make(list(np.zeros_like(self.raws)), bound, 0, 0)
        error = self.error * abs(factor)
        own = error if abs(factor) > 1 else self.own
        self._check_error(error, own, self._coefficients, "*")
        raws = [self._ring.scale(raw, factor) for raw in self.raws]
        return self._make(raws, bound, error, own)

    def _multiply(self, values: Array, bound: int) -> Self:
        if self.bound == 0:  # then values may be larger than the plaintext space
            values = np.zeros(values.shape, dtype=np.int64)
        ring = self._check_room("*")
        error = self.error * ring.slot_norm
        self._check_error(error, error, self._coefficients, "*")
        rows = self._home.to_polynomials(values, self.layout)
        raws = [ring.multiply(raw, row) for raw, row in zip(self.raws, rows, strict=True)]
        return self._make(raws, bound, error, error)

    def _inner(self, columns: Array, bound: int) -> BFVArray:
        if self.bound == 0:  # then columns may be larger than the plaintext space
            columns = np.zeros(columns.shape, dtype=np.int64)
        count = columns.shape[1]
        shape = (count,) if len(self.shape) == 1 else (self.shape[1], count)
        return self._make_sums(ColumnPlains(self.layout, columns), "inner", shape, bound)

    def _sum_by(self, grouping: Grouping, shape: tuple[int, ...], bound: int) -> BFVArray:
        plains = GroupPlains(self.layout, grouping.codes, grouping.n)
        numbers = -(-self.shape[0] // self.layout.block) * plains.groups * self.raws[0].size
        serves = grouping.again and self.layout.kind != SLOTTED and numbers <= 2 * KEPT_NUMBERS
        # By ring, layout and level: the form that multiplies is another in each.
        key = (self._ring.params, self.layout, self._limbs)
        kept = grouping.kept.setdefault(key, {}) if serves else None
        return self._make_sums(plains, "sums", shape, bound, kept)

    def _make_sums(
        self,
        plains: Plains,
        kind: str,
        shape: tuple[int, ...],
        bound: int,
        kept: dict[int, list[Any]] | None = None,
    ) -> BFVArray:
        ring, layout = self._check_room(kind), replace(self.layout, kind=kind)
        blocks = -(-self.shape[0] // layout.block)
        sent = layout.count(shape) * ring.degree
        if self.layout.kind == SLOTTED:
            # Room is scarce here; and all that the key holder will see of a sum is one coefficient.
            plains, sent = SlotPlains(ring.params, plains, blocks), layout.count(shape)
        error = self.error * max(plains.norm(), 1)
        self._check_error(error, error, sent, kind)
        encrypted = len(self.raws) // blocks
        seconds = blocks * plains.groups * (SECONDS_PER_PLAIN + encrypted * SECONDS_PER_PRODUCT)
        seconds *= ring.weight
        # What is kept stays in this process.
        chunks = cut_chunks(plains.groups, seconds if kept is None else 0)
        if kept is None:
            tasks = [(ring.params, self.raws, blocks, plains, chunk) for chunk in chunks]
            parts = list(spread_if_worth(multiply_task, tasks, seconds))
        else:
            parts = [ring.multiply_blocks(self.raws, blocks, plains, c, kept) for c in chunks]
        # Each part is ordered (encrypted group, plain group of its chunk).
        widths = [chunk.stop - chunk.start for chunk in chunks]
        raws = [
            raw
            for at in range(encrypted)
            for part, width in zip(parts, widths, strict=True)
            for raw in part[at * width : (at + 1) * width]
        ]
        raws, error = _fill_hollow(self._home, raws, error)
        return BFVArray(self.key, shape, RESULT, bound, np.stack(raws), layout, error, error)

    def _take(self, rows: Array) -> Self:
        raise CryptoError(
            "bfv packs rows into shared ciphertexts, so they cannot be taken apart; encrypt the "
            "rows again in the order they are needed."
        )

    def _without(self, part: Self) -> Self:
        rest = self._subtract(part, self.bound)
        rest._less = (self._last_request, part._last_request)
        return rest

    # ---- what may leave -----------------------------------------------------------------------

    def _check_room(self, operation: str) -> Ring:
        """The ring, if ciphertexts at this level can be multiplied at all."""
        ring = self._ring
        if self._limbs == ring.last.limbs:
            raise CryptoError(
                "This bfv array was combined with private values before it was sent, which leaves "
                f"no room for {operation}; send the parts and combine them here, encrypt them with "
                "use='any', or use scheme 'paillier'."
            )
        return ring

    def _check_error(
        self, error: int, own: int, coefficients: int, operation: str, out: Exit | None = None
    ) -> None:
        """Refuse what could not be decrypted, or could not be hidden when it leaves."""
        ring = self._ring
        bits = ring.flood_bits(out or ring.last, self._limbs)
        needed = needed_bits(own, coefficients)
        if needed > bits or error > ring.limit(self._limbs):
            raise ConfigError(
                f"{operation} needs {needed} bits of bfv noise flooding, but "
                f"{ring.params.text} has {bits} here; use smaller or fewer plain columns, no more "
                "than two products one after the other, fewer plain_bits or more modulus_bits."
            )

    def _choose_exit(self) -> Exit:
        """How this array leaves for another party: with room for one more product if it can."""
        ring = self._ring
        if self.layout.kind != SLOTTED or self._limbs < ring.top:
            return ring.last
        enough = ring.drowns(ring.onward, self.own, ring.top, self._coefficients)
        return ring.onward if enough else ring.last

    def _hide(self, masks: Array, out: Exit, places: tuple[Array, Array] | None = None) -> Array:
        """The ciphertexts as they may leave, with ``masks`` added: drowned, switched down.

        ``places`` are the coefficients (polynomial, exponent) that will leave; default all.
        """
        ring = self._ring
        sent = self._coefficients if places is None else len(places[0])
        self._check_error(self.error, self.own, sent, "Leaving", out)
        if self._error_after(out) > ring.limit(out.limbs):
            raise ConfigError(
                "This bfv array was sent on too often; let the key holder open it instead."
            )
        exponents: list[Any] = [slice(None)] * len(masks)
        if places is not None:
            polynomial, exponent = places
            order = np.argsort(polynomial, kind="stable")
            cuts = np.searchsorted(polynomial[order], np.arange(1, len(masks)))
            exponents = np.split(exponent[order], cuts)
        hidden = np.empty((len(self.raws), 2, out.limbs, ring.degree), dtype=np.uint64)
        zeros = self._home.pool.take(len(self.raws))
        for at, (raw, zero, mask) in enumerate(zip(self.raws, zeros, masks, strict=True)):
            cover = self._cover(zero, mask, out, exponents[at])
            hidden[at] = ring.switch(ring.add(raw, cover), out.limbs)
        return hidden

    def _cover(
        self, zero: Array, residues: Array, out: Exit, where: Array | slice = slice(None)
    ) -> Array:
        """An encryption of ``residues`` at this level, flooded as for an exit."""
        ring, limbs = self._ring, self._limbs
        if limbs > ring.last.limbs:
            # Modulo fewer primes an encryption of zero is still one, with the same error.
            return ring.cover(zero[:, :limbs], residues, ring.flood_bits(out, limbs), where)
        # Down here there is no room to drown even the ½ by which scaling the plaintext rounds.
        return ring.switch(ring.cover(zero, residues, out.flood_bits, where), limbs)

    def _cover_error(self, out: Exit) -> int:
        """The error of what :meth:`_cover` returns."""
        ring, limbs = self._ring, self._limbs
        if limbs > ring.last.limbs:
            return ring.cover_error(ring.flood_bits(out, limbs))
        return ring.switched_error(ring.cover_error(out.flood_bits), limbs)

    def _error_after(self, out: Exit) -> int:
        """The error of what :meth:`_hide` returns."""
        error = self.error + self._cover_error(out)
        if self._limbs == out.limbs:
            return error
        return self._ring.switched_error(error, out.limbs, self._limbs)

    def _lower(self) -> Self:
        """This array as if it had been received: nothing private in its error, a lower level."""
        out = self._choose_exit()
        raws = self._hide(np.zeros((len(self.raws), self._ring.degree), dtype=np.uint64), out)
        return self._make(list(raws), self.bound, self._error_after(out), 0)

    def _mask(self) -> tuple[dict[str, Any], BFVMask]:
        payload, masks = self._request()
        every = np.arange(self.size)
        mask = BFVMask(self.key, self.shape, self.bound, self._ring, masks, every, self.size)
        return payload, mask

    def _mask_sums(
        self, sums: PrefixSums, shown: Array, bound: int
    ) -> tuple[dict[str, Any], BFVMask]:
        payload, masks = self._request_difference() or self._request()
        ticket = self._last_request.ticket = self._home.tickets.issue(masks)
        seed = secrets.token_bytes(SEED_BYTES)
        over = add_up_hidden(self._ring, sums, masks, seed)[shown]
        mask = BFVMask(self.key, (len(shown),), bound, self._ring, over, shown, len(sums))
        return payload | sums.to_wire() | {"seed": seed, "ticket": ticket.name}, mask

    def _request_difference(self) -> tuple[dict[str, Any], Array] | None:
        """Tickets instead of ciphertexts, if the key holder opened both parts of a difference."""
        if self._less is None:
            return None
        whole, part = (request.ticket for request in self._less)
        tickets = self._home.tickets
        if whole is None or part is None or not (tickets.is_kept(whole) and tickets.is_kept(part)):
            return None
        names = np.frombuffer(whole.name + part.name, dtype=np.uint8).reshape(2, -1)
        fields = {"less": names, "degree": self.layout.degree}
        return fields, self._ring.minus(whole.masks, part.masks)

    def _request(self) -> tuple[dict[str, Any], Array]:
        """The masked values as the key holder needs them, and their masks."""
        ring, layout = self._ring, self.layout
        polynomial, exponent = places = layout.sent_places(self.shape)
        rows = np.zeros((len(self.raws), ring.degree), dtype=np.uint64)
        rows[places] = ring.draw(len(polynomial))
        hidden = self._hide(rows, ring.last, places)
        halves = {"first": hidden[polynomial, 0, :, exponent].T, "second": hidden[:, 1]}
        masks = self._home.from_polynomials(rows, layout, self.shape).reshape(-1)
        return asdict(layout) | halves, masks

    def _rerandomise(self) -> dict[str, Any]:
        ring, error = self._ring, self.error
        if self.layout.holds_rows and self.own == 0 and self._limbs > ring.last.limbs:
            # Sums of ciphertexts only: an encryption of zero hides which, and costs no room.
            raws = self.raws
            if not self.fresh:
                zeros = np.stack(self._home.pool.take(len(raws)))
                raws = ring.add(raws, zeros[:, :, : self._limbs])
                error += ring.fresh_error
            self.fresh = False
        else:
            masks = np.zeros((len(self.raws), ring.degree), dtype=np.uint64)
            if not self.layout.holds_rows:
                masks = ring.draw(masks.size).reshape(masks.shape)
                masks[self.layout.places(self.shape)] = 0
            out = self._choose_exit()
            raws, error = self._hide(masks, out), self._error_after(out)
        return asdict(self.layout) | {"numbers": raws, "noise": error.bit_length()}


def _fill_hollow(home: RingKey, raws: list[Array], error: int) -> tuple[list[Array], int]:
    """Repair ciphertexts whose second half is zero: SEAL refuses to work on "transparent" ones.

    They come from all-zero plaintexts and from x − x; an encryption of zero makes them whole.
    """
    ring = home.ring
    hollow = [at for at, raw in enumerate(raws) if not raw[1].any()]
    for at, zero in zip(hollow, home.pool.take(len(hollow)), strict=True):
        raws[at] = ring.add(raws[at], zero[:, : raws[at].shape[1]])
    return raws, error + (ring.fresh_error if hollow else 0)


def _level(one: Some, two: Some) -> tuple[Some, Some]:
    """Both at one level; the higher one is drowned first, since switching leaves traces."""
    if one._limbs > two._limbs:
        return _level(one._lower(), two)
    if two._limbs > one._limbs:
        return _level(one, two._lower())
    return one, two
