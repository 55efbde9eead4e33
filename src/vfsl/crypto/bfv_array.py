"""Arrays under BFV: sums and products on packed ciphertexts, and what may leave of them.

What leaves. Products leave cross terms in the coefficients that nobody asked for, and noise that
depends on the private factor. So whatever was combined leaves with an encryption of zero added, a
uniform mask on all unwanted coefficients (for the key holder: on the wanted ones, while the others
do not leave at all, see bfv_opening.py), and noise flooded by at least 2^40 · (number of
coefficients) times the worst-case bound of this party's own noise; if the parameters have no room
for that, the operation is refused before it starts. The key holder returns as many coefficients as
the declared shape has values. Which ones, the layout says; a sender could move any coefficient
anywhere by multiplying with a power of X, so their number is what counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from vfsl.crypto.bfv_opening import BFVMask, Ticket, run_request
from vfsl.crypto.integers import random_words
from vfsl.crypto.packing import ColumnPlains, GroupPlains, Layout, Plains
from vfsl.crypto.ring import DEGREE, STATISTICAL_BITS, block_products
from vfsl.crypto.runs import Runs
from vfsl.crypto.scheme import RESULT, EncryptedArray
from vfsl.crypto.work import pieces, shared
from vfsl.errors import ConfigError, CryptoError
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.crypto.bfv import BFVPublicKey

Some = TypeVar("Some", bound="BFVArray")

# Only to decide about worker processes.
SECONDS_A_PRODUCT, SECONDS_A_PLAIN = 0.22e-3, 0.4e-3


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
    def _limbs(self) -> int:
        return int(self._raws.shape[2])

    def _make(self, raws: list[Array], bound: int, noise: int, own: int) -> Self:
        raws, noise = _solid(self.key, raws, noise)
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
        raws = list(self.key.ring.add(one._raws, two._raws))
        return one._make(raws, bound, one._noise + two._noise, one._own + two._own)

    def _subtract(self, other: Self, bound: int) -> Self:
        one, two = _levelled(self, other)
        raws = list(self.key.ring.subtract(one._raws, two._raws))
        return one._make(raws, bound, one._noise + two._noise, one._own + two._own)

    def _add_plain(self, values: Array, bound: int) -> Self:
        ring, rows = self.key.ring, self.key.polynomials(values, self._layout)
        if self._limbs == len(ring.primes):
            raws = [ring.add_plain(raw, row) for raw, row in zip(self._raws, rows, strict=True)]
            # Scaling the plaintext by q/t rounds by at most ½.
            return self._make(raws, bound, self._noise + 1, self._own + 1)
        # Down here is no room to drown even that ½; up there is.
        zeros = self.key.pool.take(len(rows))
        raws = [
            ring.add(raw, ring.switch(ring.cover(zero, row), self._limbs))
            for raw, zero, row in zip(self._raws, zeros, rows, strict=True)
        ]
        noise = self._noise + ring.switched_noise(ring.cover_noise, self._limbs)
        return self._make(raws, bound, noise, self._own)

    def _scale(self, factor: int, bound: int) -> Self:
        if factor == 0 or self.bound == 0:
            return self._make(list(np.zeros_like(self._raws)), bound, 0, 0)
        noise = self._noise * abs(factor)
        own = noise if abs(factor) > 1 else self._own
        self._check_noise(noise, own, len(self._raws), "*")
        raws = [self.key.ring.scale(raw, factor) for raw in self._raws]
        return self._make(raws, bound, noise, own)

    def _multiply(self, values: Array, bound: int) -> Self:
        raise CryptoError(
            "bfv packs values into coefficients, which have no element-wise product; "
            "use scheme 'paillier' for it."
        )

    def _inner(self, columns: Array, bound: int) -> BFVArray:
        if self.bound == 0:  # then columns may be larger than the plaintext space
            columns = np.zeros(columns.shape, dtype=np.int64)
        count = columns.shape[1]
        shape = (count,) if len(self.shape) == 1 else (self.shape[1], count)
        return self._sums(ColumnPlains(self._layout, columns), "inner", shape, bound)

    def _sum_by(self, groups: Array, n: int, bound: int) -> BFVArray:
        plains = GroupPlains(self._layout, groups[:, None], n)
        return self._sums(plains, "sums", (n, *self.shape[1:]), bound)

    def _sum_by_many(self, groups: Array, n: int, bound: int) -> BFVArray:
        plains = GroupPlains(self._layout, groups, n)
        return self._sums(plains, "sums", (groups.shape[1], n, *self.shape[1:]), bound)

    def _sums(self, plains: Plains, kind: str, shape: tuple[int, ...], bound: int) -> BFVArray:
        key, layout = self.key, self._layout.results(kind)
        if self._limbs != len(key.ring.primes):
            raise CryptoError(
                "This bfv array was combined with private values before it was sent, which leaves "
                "no room for inner products; send the parts and combine them here, or use "
                "scheme 'paillier'."
            )
        noise = self._noise * max(plains.norm(), 1)
        self._check_noise(noise, noise, layout.count(shape), kind)
        blocks = -(-self.shape[0] // layout.block)
        encrypted = len(self._raws) // blocks
        seconds = blocks * plains.groups * (SECONDS_A_PLAIN + encrypted * SECONDS_A_PRODUCT)
        runs = pieces(plains.groups, seconds)
        tasks = [(key.params, self._raws, blocks, plains, run) for run in runs]
        parts = list(shared(block_products, tasks, seconds))
        # Each part is ordered (encrypted group, plain group of its run).
        widths = [run.stop - run.start for run in runs]
        raws = [
            raw
            for at in range(encrypted)
            for part, width in zip(parts, widths, strict=True)
            for raw in part[at * width : (at + 1) * width]
        ]
        raws, noise = _solid(key, raws, noise)
        return BFVArray(
            key, shape, RESULT, bound, np.stack(raws), layout, noise, noise, fresh=False
        )

    def _check_noise(self, noise: int, own: int, count: int, operation: str) -> None:
        """Refuse what could not be decrypted, or could not be hidden when it leaves."""
        ring = self.key.ring
        drowned = own * ring.dropped(self._limbs) * count * DEGREE << STATISTICAL_BITS
        if drowned > 1 << ring.flood_bits or noise > ring.limit(self._limbs):
            raise ConfigError(
                f"{operation} needs {drowned.bit_length()} bits of bfv noise flooding, but "
                f"{ring.params.text} has {ring.flood_bits}; use smaller plain columns, fewer "
                "plain_bits or more modulus_bits."
            )

    def _hidden(self, masks: Array, exponents: list[Array] | None = None) -> Array:
        """The ciphertexts as they may leave, with ``masks`` added: drowned, switched down.

        ``exponents`` are the coefficients of each that will leave; default all.
        """
        ring = self.key.ring
        self._check_noise(self._noise, self._own, len(self._raws), "Leaving")
        after = self._noise_after()
        if after > ring.limit(ring.low):
            raise ConfigError(
                "This bfv array was sent on too often; let the key holder open it instead."
            )
        hidden = np.empty((len(self._raws), 2, ring.low, DEGREE), dtype=np.uint64)
        zeros = self.key.pool.take(len(self._raws))
        for at, (raw, zero, mask) in enumerate(zip(self._raws, zeros, masks, strict=True)):
            cover = ring.cover(zero, mask, exponents[at] if exponents else slice(None))
            if self._limbs == len(ring.primes):
                hidden[at] = ring.switch(ring.add(raw, cover), ring.low)
            else:
                hidden[at] = ring.add(raw, ring.switch(cover, ring.low))
        return hidden

    def _noise_after(self) -> int:
        ring = self.key.ring
        if self._limbs == len(ring.primes):
            return ring.switched_noise(self._noise + ring.cover_noise, ring.low)
        return self._noise + ring.switched_noise(ring.cover_noise, ring.low)

    def _lowered(self) -> Self:
        """This array as if it had been received: nothing private in its noise, low level."""
        raws = self._hidden(np.zeros((len(self._raws), DEGREE), dtype=np.uint64))
        noise = self._noise_after()
        return type(self)(
            self.key, self.shape, self.use, self.bound, raws, self._layout, noise, 0, fresh=False
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
        mask = BFVMask(self.key, self.shape, self.bound, masks, np.arange(self.size), self.size)
        return payload, mask

    def _masked_runs(self, runs: Runs, shown: Array, bound: int) -> tuple[dict[str, Any], BFVMask]:
        payload, masks = self._difference() or self._request()
        self._asked.ticket = self.key.tickets.issue(masks)
        more, mask = run_request(self.key, self._asked.ticket, runs, shown, bound)
        return payload | more, mask

    def _difference(self) -> tuple[dict[str, Any], Array] | None:
        """Tickets instead of ciphertexts, if the key holder opened both parts of a difference."""
        if self._less is None:
            return None
        whole, part = (asked.ticket for asked in self._less)
        tickets = self.key.tickets
        if whole is None or part is None or not (tickets.kept(whole) and tickets.kept(part)):
            return None
        names = np.frombuffer(whole.name + part.name, dtype=np.uint8).reshape(2, -1)
        return {"less": names}, (whole.masks - part.masks) & np.uint64(self.key.ring.t - 1)

    def _request(self) -> tuple[dict[str, Any], Array]:
        """The masked values as the key holder needs them, and their masks."""
        polynomial, exponent = (place.reshape(-1) for place in self._layout.places(self.shape))
        masks = random_words(self.size, self.key.params.plain_bits)
        rows = np.zeros((len(self._raws), DEGREE), dtype=np.uint64)
        rows[polynomial, exponent] = masks
        order = np.argsort(polynomial, kind="stable")
        cuts = np.searchsorted(polynomial[order], np.arange(1, len(rows)))
        hidden = self._hidden(rows, np.split(exponent[order], cuts))
        halves = {"first": hidden[polynomial, 0, :, exponent].T, "second": hidden[:, 1]}
        return self._layout_fields() | halves, masks

    def _rerandomised(self) -> dict[str, Any]:
        ring, noise = self.key.ring, self._noise
        if self._layout.kind == "rows" and self._own == 0 and self._limbs == len(ring.primes):
            # Sums of ciphertexts only: an encryption of zero hides which, and costs no room.
            raws = self._raws
            if not self._fresh:
                raws = ring.add(raws, np.stack(self.key.pool.take(len(raws))))
                noise += ring.fresh_noise
            self._fresh = False
        else:
            masks = np.zeros((len(self._raws), DEGREE), dtype=np.uint64)
            if self._layout.kind != "rows":
                masks = random_words(masks.size, ring.params.plain_bits).reshape(masks.shape)
                masks[self._layout.places(self.shape)] = 0
            raws, noise = self._hidden(masks), self._noise_after()
        return self._layout_fields() | {"numbers": raws, "noise": noise.bit_length()}

    def _layout_fields(self) -> dict[str, Any]:
        layout = self._layout
        return {"kind": layout.kind, "columns": layout.columns, "ka": layout.ka, "kb": layout.kb}


def _solid(key: BFVPublicKey, raws: list[Array], noise: int) -> tuple[list[Array], int]:
    """Ciphertexts whose second half is not zero: SEAL refuses to work on such "transparent" ones.

    They come from all-zero plaintexts and from x − x; an encryption of zero makes them whole.
    """
    hollow = [at for at, raw in enumerate(raws) if not raw[1].any()]
    for at, zero in zip(hollow, key.pool.take(len(hollow)), strict=True):
        limbs = raws[at].shape[1]
        raws[at] = key.ring.add(raws[at], key.ring.switch(zero, limbs))
    extra = key.ring.fresh_noise + DEGREE if hollow else 0
    return raws, noise + extra


def _levelled(one: Some, two: Some) -> tuple[Some, Some]:
    """Both at one level; the higher one is drowned first, since switching leaves traces."""
    if one._limbs > two._limbs:
        return one._lowered(), two
    if two._limbs > one._limbs:
        return one, two._lowered()
    return one, two
