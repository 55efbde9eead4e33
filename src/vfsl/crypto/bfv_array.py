"""Arrays under BFV: sums and products of values in coefficients or slots, and what may leave.

What leaves. Products leave cross terms in the coefficients that nobody asked for, and noise that
depends on the private factor. So whatever was combined leaves with an encryption of zero added, a
uniform mask on all unwanted coefficients (for the key holder: on the wanted ones, while the others
do not leave at all, see bfv_opening.py), and noise flooded by at least 2^40 · (number of
coefficients) times the worst-case bound of this party's own noise; if the parameters have no room
for that, the operation is refused before it starts. Values in slots that go to another party leave
with less flooding if that is enough, so that the receiver can multiply them once more.

The key holder returns as many numbers as the declared shape has values. Which ones, the layout
says; a sender could move any coefficient anywhere by multiplying with a power of X, so their number
is what counts. Slots are masked in all coefficients, since every coefficient tells about every
slot; sums over slots are one coefficient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from vfsl.crypto.bfv_opening import BFVMask, Ticket, run_request
from vfsl.crypto.grouping import Grouping
from vfsl.crypto.noise import Exit, needed_bits
from vfsl.crypto.packing import SLOTTED, ColumnPlains, GroupPlains, Layout, Plains
from vfsl.crypto.ring import Ring, block_products
from vfsl.crypto.runs import Runs
from vfsl.crypto.scheme import RESULT, EncryptedArray
from vfsl.crypto.slot_plains import SlotPlains
from vfsl.crypto.work import pieces, shared
from vfsl.errors import ConfigError, CryptoError
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.crypto.bfv import BFVPublicKey
    from vfsl.crypto.ring_key import RingKey

Some = TypeVar("Some", bound="BFVArray")

# Only to decide about worker processes.
SECONDS_A_PRODUCT, SECONDS_A_PLAIN = 0.22e-3, 0.4e-3
# Coefficients of plaintexts that are kept for a grouping that serves again: 256 MB.
KEPT_NUMBERS = 1 << 25


class Asked:
    """Where an array notes its last request for runs, for those that are made from it."""

    ticket: Ticket | None = None


class BFVArray(EncryptedArray):
    """Ciphertexts with their layout and two worst-case noise bounds.

    ``noise`` is all of it and decides whether decryption works. ``own`` is the part that depends
    on what this party keeps private, and has to be drowned before the array leaves.
    """

    key: BFVPublicKey

    def __init__(
        self,
        key: BFVPublicKey,
        shape: tuple[int, ...],
        use: str,
        bound: int,
        raws: Array,
        layout: Layout,
        noise: int,
        own: int,
        *,
        fresh: bool,
    ) -> None:
        super().__init__(key, shape, use, bound)
        self._raws = raws
        self._layout = layout
        self._noise = noise
        self._own = own
        self._fresh = fresh
        # The last request for runs of this array, and of what it is the difference.
        self._asked = Asked()
        self._less: tuple[Asked, Asked] | None = None

    @property
    def capacity(self) -> int:
        return self._home.capacity

    @property
    def _home(self) -> RingKey:
        return self.key.at(self._layout.degree)

    @property
    def _ring(self) -> Ring:
        return self._home.ring

    @property
    def _limbs(self) -> int:
        return int(self._raws.shape[2])

    @property
    def _coefficients(self) -> int:
        return len(self._raws) * self._ring.degree

    def _make(self, raws: list[Array], bound: int, noise: int, own: int) -> Self:
        raws, noise = _solid(self._home, raws, noise)
        layout, use = self._layout, self.use
        return type(self)(
            self.key, self.shape, use, bound, np.stack(raws), layout, noise, own, fresh=False
        )

    def _peer(self, other: EncryptedArray) -> Self:
        same = super()._peer(other)
        if same._layout != self._layout:
            raise CryptoError(
                f"bfv arrays of one layout combine. Got {self._layout} and {same._layout} "
                "instead; encrypt both with the same use, and sum both the same way."
            )
        return same

    def _add(self, other: Self, bound: int) -> Self:
        one, two = _levelled(self, other)
        raws = list(self._ring.add(one._raws, two._raws))
        return one._make(raws, bound, one._noise + two._noise, one._own + two._own)

    def _subtract(self, other: Self, bound: int) -> Self:
        one, two = _levelled(self, other)
        raws = list(self._ring.subtract(one._raws, two._raws))
        return one._make(raws, bound, one._noise + two._noise, one._own + two._own)

    def _add_plain(self, values: Array, bound: int) -> Self:
        ring, rows = self._ring, self._home.polynomials(values, self._layout)
        if self._limbs > ring.last.limbs:
            raws = [ring.add_plain(raw, row) for raw, row in zip(self._raws, rows, strict=True)]
            # Scaling the plaintext by q/t rounds by at most ½.
            return self._make(raws, bound, self._noise + 1, self._own + 1)
        zeros = self._home.pool.take(len(rows))
        raws = [
            ring.add(raw, self._cover(zero, row, ring.last))
            for raw, zero, row in zip(self._raws, zeros, rows, strict=True)
        ]
        return self._make(raws, bound, self._noise + self._cover_noise(ring.last), self._own)

    def _scale(self, factor: int, bound: int) -> Self:
        if factor == 0 or self.bound == 0:
            return self._make(list(np.zeros_like(self._raws)), bound, 0, 0)
        noise = self._noise * abs(factor)
        own = noise if abs(factor) > 1 else self._own
        self._check_noise(noise, own, self._coefficients, "*")
        raws = [self._ring.scale(raw, factor) for raw in self._raws]
        return self._make(raws, bound, noise, own)

    def _multiply(self, values: Array, bound: int) -> Self:
        if self.bound == 0:  # then values may be larger than the plaintext space
            values = np.zeros(values.shape, dtype=np.int64)
        ring = self._with_room("*")
        noise = self._noise * ring.slot_norm
        self._check_noise(noise, noise, self._coefficients, "*")
        rows = self._home.polynomials(values, self._layout)
        raws = [ring.multiply(raw, row) for raw, row in zip(self._raws, rows, strict=True)]
        return self._make(raws, bound, noise, noise)

    def _inner(self, columns: Array, bound: int) -> BFVArray:
        if self.bound == 0:  # then columns may be larger than the plaintext space
            columns = np.zeros(columns.shape, dtype=np.int64)
        count = columns.shape[1]
        shape = (count,) if len(self.shape) == 1 else (self.shape[1], count)
        return self._sums(ColumnPlains(self._layout, columns), "inner", shape, bound)

    def _sum_by(self, groups: Array, n: int, bound: int) -> BFVArray:
        plains = GroupPlains(self._layout, groups[:, None], n)
        return self._sums(plains, "sums", (n, *self.shape[1:]), bound)

    def _sum_by_many(self, grouping: Grouping, bound: int) -> BFVArray:
        plains = GroupPlains(self._layout, grouping.codes, grouping.n)
        shape = (*grouping.counts.shape, *self.shape[1:])
        numbers = -(-self.shape[0] // self._layout.block) * plains.groups * self._raws[0].size
        serves = grouping.again and self._layout.kind != SLOTTED and numbers <= 2 * KEPT_NUMBERS
        # By ring, layout and level: the form that multiplies is another in each.
        key = (self._ring.params, self._layout, self._limbs)
        kept = grouping.kept.setdefault(key, {}) if serves else None
        return self._sums(plains, "sums", shape, bound, kept)

    def _sums(
        self,
        plains: Plains,
        kind: str,
        shape: tuple[int, ...],
        bound: int,
        kept: dict[int, list[Any]] | None = None,
    ) -> BFVArray:
        key, layout, ring = self.key, self._layout.results(kind), self._with_room(kind)
        blocks = -(-self.shape[0] // layout.block)
        sent = layout.count(shape) * ring.degree
        if self._layout.kind == SLOTTED:
            # Room is scarce here; and all that the key holder will see of a sum is one coefficient.
            plains, sent = SlotPlains(ring.params, plains, blocks), layout.count(shape)
        noise = self._noise * max(plains.norm(), 1)
        self._check_noise(noise, noise, sent, kind)
        encrypted = len(self._raws) // blocks
        seconds = blocks * plains.groups * (SECONDS_A_PLAIN + encrypted * SECONDS_A_PRODUCT)
        seconds *= ring.weight
        # What is kept stays in this process.
        runs = pieces(plains.groups, seconds if kept is None else 0)
        tasks = [(ring.params, self._raws, blocks, plains, run) for run in runs]
        if kept is None:
            parts = list(shared(block_products, tasks, seconds))
        else:
            parts = [ring.products(self._raws, blocks, plains, run, kept) for run in runs]
        # Each part is ordered (encrypted group, plain group of its run).
        widths = [run.stop - run.start for run in runs]
        raws = [
            raw
            for at in range(encrypted)
            for part, width in zip(parts, widths, strict=True)
            for raw in part[at * width : (at + 1) * width]
        ]
        raws, noise = _solid(self._home, raws, noise)
        return BFVArray(
            key, shape, RESULT, bound, np.stack(raws), layout, noise, noise, fresh=False
        )

    def _with_room(self, operation: str) -> Ring:
        """The ring, if ciphertexts at this level can be multiplied at all."""
        ring = self._ring
        if self._limbs == ring.last.limbs:
            raise CryptoError(
                "This bfv array was combined with private values before it was sent, which leaves "
                f"no room for {operation}; send the parts and combine them here, encrypt them with "
                "use='any', or use scheme 'paillier'."
            )
        return ring

    def _check_noise(
        self, noise: int, own: int, coefficients: int, operation: str, out: Exit | None = None
    ) -> None:
        """Refuse what could not be decrypted, or could not be hidden when it leaves."""
        ring = self._ring
        bits = ring.flood_bits(out or ring.last, self._limbs)
        needed = needed_bits(own, coefficients)
        if needed > bits or noise > ring.limit(self._limbs):
            raise ConfigError(
                f"{operation} needs {needed} bits of bfv noise flooding, but "
                f"{ring.params.text} has {bits} here; use smaller or fewer plain columns, no more "
                "than two products one after the other, fewer plain_bits or more modulus_bits."
            )

    def _exit(self) -> Exit:
        """How this array leaves for another party: with room for one more product if it can."""
        ring = self._ring
        if self._layout.kind != SLOTTED or self._limbs < ring.top:
            return ring.last
        enough = ring.drowns(ring.onward, self._own, ring.top, self._coefficients)
        return ring.onward if enough else ring.last

    def _hidden(self, masks: Array, out: Exit, places: tuple[Array, Array] | None = None) -> Array:
        """The ciphertexts as they may leave, with ``masks`` added: drowned, switched down.

        ``places`` are the coefficients (polynomial, exponent) that will leave; default all.
        """
        ring = self._ring
        sent = self._coefficients if places is None else len(places[0])
        self._check_noise(self._noise, self._own, sent, "Leaving", out)
        if self._noise_after(out) > ring.limit(out.limbs):
            raise ConfigError(
                "This bfv array was sent on too often; let the key holder open it instead."
            )
        exponents = [slice(None)] * len(masks) if places is None else _by_polynomial(*places, masks)
        hidden = np.empty((len(self._raws), 2, out.limbs, ring.degree), dtype=np.uint64)
        zeros = self._home.pool.take(len(self._raws))
        for at, (raw, zero, mask) in enumerate(zip(self._raws, zeros, masks, strict=True)):
            cover = self._cover(zero, mask, out, exponents[at])
            hidden[at] = ring.switch(ring.add(raw, cover), out.limbs)
        return hidden

    def _cover(
        self, zero: Array, residues: Array, out: Exit, where: Array | slice = slice(None)
    ) -> Array:
        """An encryption of ``residues`` at this level, flooded as for an exit."""
        ring, limbs = self._ring, self._limbs
        if limbs > ring.last.limbs:
            # Modulo fewer primes an encryption of zero is one still, with the same noise.
            return ring.cover(zero[:, :limbs], residues, ring.flood_bits(out, limbs), where)
        # Down here is no room to drown even the ½ by which scaling the plaintext rounds.
        return ring.switch(ring.cover(zero, residues, out.flood_bits, where), limbs)

    def _cover_noise(self, out: Exit) -> int:
        """Noise of what :meth:`_cover` returns."""
        ring, limbs = self._ring, self._limbs
        if limbs > ring.last.limbs:
            return ring.cover_noise(ring.flood_bits(out, limbs))
        return ring.switched_noise(ring.cover_noise(out.flood_bits), limbs)

    def _noise_after(self, out: Exit) -> int:
        """Noise of what :meth:`_hidden` returns."""
        noise = self._noise + self._cover_noise(out)
        if self._limbs == out.limbs:
            return noise
        return self._ring.switched_noise(noise, out.limbs, self._limbs)

    def _lowered(self) -> Self:
        """This array as if it had been received: nothing private in its noise, a lower level."""
        out = self._exit()
        raws = self._hidden(np.zeros((len(self._raws), self._ring.degree), dtype=np.uint64), out)
        layout, noise = self._layout, self._noise_after(out)
        return type(self)(
            self.key, self.shape, self.use, self.bound, raws, layout, noise, 0, fresh=False
        )

    def _take(self, rows: Array) -> Self:
        raise CryptoError(
            "bfv packs rows into shared ciphertexts, so they cannot be taken apart; encrypt the "
            "rows again in the order they are needed."
        )

    def _without(self, part: Self) -> Self:
        rest = self._subtract(part, self.bound)
        rest._less = (self._asked, part._asked)
        return rest

    def _masked(self) -> tuple[dict[str, Any], BFVMask]:
        payload, masks = self._request()
        every = np.arange(self.size)
        mask = BFVMask(self.key, self.shape, self.bound, self._ring, masks, every, self.size)
        return payload, mask

    def _masked_runs(self, runs: Runs, shown: Array, bound: int) -> tuple[dict[str, Any], BFVMask]:
        payload, masks = self._difference() or self._request()
        self._asked.ticket = self._home.tickets.issue(masks)
        more, mask = run_request(self.key, self._ring, self._asked.ticket, runs, shown, bound)
        return payload | more, mask

    def _difference(self) -> tuple[dict[str, Any], Array] | None:
        """Tickets instead of ciphertexts, if the key holder opened both parts of a difference."""
        if self._less is None:
            return None
        whole, part = (asked.ticket for asked in self._less)
        tickets = self._home.tickets
        if whole is None or part is None or not (tickets.kept(whole) and tickets.kept(part)):
            return None
        names = np.frombuffer(whole.name + part.name, dtype=np.uint8).reshape(2, -1)
        fields = {"less": names, "degree": self._layout.degree}
        return fields, self._ring.minus(whole.masks, part.masks)

    def _request(self) -> tuple[dict[str, Any], Array]:
        """The masked values as the key holder needs them, and their masks."""
        ring, layout = self._ring, self._layout
        polynomial, exponent = places = layout.sent(self.shape)
        rows = np.zeros((len(self._raws), ring.degree), dtype=np.uint64)
        rows[places] = ring.random(len(polynomial))
        hidden = self._hidden(rows, ring.last, places)
        halves = {"first": hidden[polynomial, 0, :, exponent].T, "second": hidden[:, 1]}
        masks = self._home.values(rows, layout, self.shape).reshape(-1)
        return self._layout_fields() | halves, masks

    def _rerandomised(self) -> dict[str, Any]:
        ring, noise = self._ring, self._noise
        if self._layout.holds_rows and self._own == 0 and self._limbs > ring.last.limbs:
            # Sums of ciphertexts only: an encryption of zero hides which, and costs no room.
            raws = self._raws
            if not self._fresh:
                zeros = np.stack(self._home.pool.take(len(raws)))
                raws = ring.add(raws, zeros[:, :, : self._limbs])
                noise += ring.fresh_noise
            self._fresh = False
        else:
            masks = np.zeros((len(self._raws), ring.degree), dtype=np.uint64)
            if not self._layout.holds_rows:
                masks = ring.random(masks.size).reshape(masks.shape)
                masks[self._layout.places(self.shape)] = 0
            out = self._exit()
            raws, noise = self._hidden(masks, out), self._noise_after(out)
        return self._layout_fields() | {"numbers": raws, "noise": noise.bit_length()}

    def _layout_fields(self) -> dict[str, Any]:
        layout = self._layout
        names = ("kind", "columns", "ka", "kb", "degree")
        return {name: getattr(layout, name) for name in names}


def _by_polynomial(polynomial: Array, exponent: Array, rows: Array) -> list[Array]:
    """The exponents of each polynomial."""
    order = np.argsort(polynomial, kind="stable")
    cuts = np.searchsorted(polynomial[order], np.arange(1, len(rows)))
    return np.split(exponent[order], cuts)


def _solid(home: RingKey, raws: list[Array], noise: int) -> tuple[list[Array], int]:
    """Ciphertexts whose second half is not zero: SEAL refuses to work on such "transparent" ones.

    They come from all-zero plaintexts and from x − x; an encryption of zero makes them whole.
    """
    ring = home.ring
    hollow = [at for at, raw in enumerate(raws) if not raw[1].any()]
    for at, zero in zip(hollow, home.pool.take(len(hollow)), strict=True):
        raws[at] = ring.add(raws[at], zero[:, : raws[at].shape[1]])
    return raws, noise + (ring.fresh_noise if hollow else 0)


def _levelled(one: Some, two: Some) -> tuple[Some, Some]:
    """Both at one level; the higher one is drowned first, since switching leaves traces."""
    if one._limbs > two._limbs:
        return _levelled(one._lowered(), two)
    if two._limbs > one._limbs:
        return _levelled(one, two._lowered())
    return one, two
