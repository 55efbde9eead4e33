"""BFV encryption (ring LWE) of integer arrays with SEAL: exact inner products by packing.

Security: N = 8192, at most 218 bits of modulus, 128 bits by the HomomorphicEncryption.org tables.
The plaintext space is Z mod 2**plain_bits.

What leaves. Products leave cross terms in the coefficients that nobody asked for, and noise that
depends on the private factor. So whatever was combined leaves with an encryption of zero added, a
uniform mask on all unwanted coefficients (on all of them for the key holder), and noise flooded by
at least 2^40 · (number of coefficients) times the worst-case bound of this party's own noise; if
the parameters have no room for that, the operation is refused before it starts. The key holder
returns as many coefficients as the declared shape has values. Which ones, the layout says; a
sender could move any coefficient anywhere by multiplying with a power of X, so their number is
what counts.
"""

from __future__ import annotations

import threading
from typing import Any, Self, TypeVar

import numpy as np
import seal

from vfsl.crypto import wire
from vfsl.crypto.integers import random_words
from vfsl.crypto.packing import ColumnPlains, GroupPlains, Layout, Plains, rows_layout
from vfsl.crypto.ring import (
    DEGREE,
    STATISTICAL_BITS,
    Parameters,
    Ring,
    Zeros,
    block_products,
    parameters,
    ring_of,
)
from vfsl.crypto.scheme import RESULT, EncryptedArray, Mask, PublicKey, Scheme, SecretKey
from vfsl.crypto.work import pieces, shared
from vfsl.errors import ConfigError, CryptoError, KeyMismatch, ProtocolError
from vfsl.values import Array

Some = TypeVar("Some", bound="BFVArray")

SECONDS_A_PRODUCT, SECONDS_A_PLAIN = 0.22e-3, 0.4e-3


class BFV(Scheme):
    """Brakerski-Fan-Vercauteren with a power-of-two plaintext modulus.

    Parameters
    ----------
    security : int
        128, or 112, which gets 128 too.
    plain_bits : int
        Values are signed integers of so many bits, 58 by default.
    modulus_bits : tuple of int
        Sizes of the data primes. More bits leave more room for large plain columns; the default
        takes columns whose absolute values add up to about 2**46.
    """

    name = "bfv"
    elementwise = False

    def __init__(
        self,
        security: int = 128,
        *,
        plain_bits: int = 58,
        modulus_bits: tuple[int, ...] = (60, 60, 60),
    ) -> None:
        if security not in (128, 112):
            raise ConfigError(
                f"The security parameter of bfv must be 128 or 112. Got {security!r} instead."
            )
        super().__init__(128)  # whoever is content with 112 bits gets 128 at no cost
        self.params = parameters(plain_bits, tuple(modulus_bits))

    def generate(self) -> tuple[BFVPublicKey, BFVSecretKey]:
        ring = ring_of(self.params)
        generator = seal.KeyGenerator(ring.context)
        text = generator.create_public_key().to_string()
        public = BFVPublicKey(self.params, text[len(text) - ring.key_bytes :])
        return public, BFVSecretKey(public, generator.secret_key())

    def load_public(self, content: dict[str, Any]) -> BFVPublicKey:
        if wire.field(content, "scheme", str) != self.name:
            raise ProtocolError(
                f"A bfv public key was expected. Got scheme {content['scheme']!r} instead."
            )
        came = wire.field(content, "parameters", str)
        if came != self.params.text:
            raise KeyMismatch(
                f"A bfv key with parameters {self.params.text} was expected. Got {came[:60]!r} "
                "instead; all parties of a job must use the same options."
            )
        numbers = wire.field(content, "public", bytes)
        ring = ring_of(self.params)
        if len(numbers) != ring.key_bytes or not any(numbers[: 8 * DEGREE]):
            raise KeyMismatch("The bfv public key has another size than its parameters.")
        try:
            return BFVPublicKey(self.params, numbers)
        except (ValueError, RuntimeError):
            raise KeyMismatch("The bfv public key is not valid for its parameters.") from None


class BFVPublicKey(PublicKey):
    """A public key of SEAL, and a pool of encryptions of zero."""

    scheme = "bfv"

    def __init__(self, params: Parameters, public: bytes) -> None:
        self.params = params
        self.ring: Ring = ring_of(params)
        self.capacity = 2 ** (params.plain_bits - 1) - 1
        self._public = public
        self.pool = Zeros(params, public)
        self.pool.prepare(1)  # SEAL validates the key's numbers when it first uses them

    def to_wire(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "parameters": self.params.text, "public": self._public}

    def prepare(self, count: int) -> None:
        """Precompute encryptions of zero for ``count`` further ciphertexts."""
        self.pool.prepare(count)

    def prepare_in_background(self, count: int) -> threading.Thread:
        return self.pool.prepare_in_background(count)

    def _encrypt(self, values: Array, use: str, bound: int) -> BFVArray:
        layout = rows_layout(values.shape, use, DEGREE)
        polynomials = self.polynomials(values, layout)
        zeros = self.pool.take(len(polynomials))
        raws = np.stack(
            [self.ring.add_plain(zero, row) for zero, row in zip(zeros, polynomials, strict=True)]
        )
        noise = self.ring.fresh_noise
        return BFVArray(self, values.shape, use, bound, raws, layout, noise, 0, fresh=True)

    def polynomials(self, values: Array, layout: Layout) -> Array:
        """Values mod t at their places, zero elsewhere."""
        rows = np.zeros((layout.count(values.shape), DEGREE), dtype=np.uint64)
        rows[layout.places(values.shape)] = self.ring.residues(values)
        return rows

    def _load(
        self, payload: dict[str, Any], shape: tuple[int, ...], use: str, bound: int
    ) -> BFVArray:
        layout = self.read_layout(payload, shape)
        if (use == RESULT) != (layout.kind != "rows"):
            raise ProtocolError(f"A bfv array of use {use!r} cannot hold {layout.kind!r}.")
        levels = (len(self.ring.primes), self.ring.low)
        raws = self.read_numbers(payload, layout.count(shape), levels)
        noise = (1 << min(max(wire.field(payload, "noise", int), 0), 1024)) - 1
        if not self.ring.fresh_noise <= noise <= self.ring.limit(raws.shape[2]):
            raise ProtocolError("A bfv array states a noise that it cannot have.")
        return BFVArray(self, shape, use, bound, raws, layout, noise, 0, fresh=False)

    def read_layout(self, payload: dict[str, Any], shape: tuple[int, ...]) -> Layout:
        """The layout that a message states, if an array of this shape can have it."""
        kind = wire.field(payload, "kind", str)
        columns, ka, kb = (wire.field(payload, name, int) for name in ("columns", "ka", "kb"))
        layout = Layout(kind, columns, ka, kb, DEGREE)
        if kind not in ("rows", "inner", "sums") or not layout.fits(shape):
            raise ProtocolError(f"A bfv array of shape {shape} cannot have the layout {layout}.")
        return layout

    def read_numbers(self, payload: dict[str, Any], count: int, levels: tuple[int, ...]) -> Array:
        """The ciphertexts of a message, at one of the levels given by numbers of limbs."""
        numbers = wire.array_field(payload, "numbers", np.uint64, 4)
        if numbers.shape not in [(count, 2, limbs, DEGREE) for limbs in levels]:
            raise ProtocolError(
                f"{count} bfv ciphertexts were expected. Got an array {numbers.shape} instead."
            )
        if not self.ring.in_range(numbers):
            raise ProtocolError("A bfv ciphertext lies outside its range.")
        return numbers


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

    def _hidden(self, masks: Array) -> Array:
        """The ciphertexts as they may leave, with ``masks`` added: drowned, switched down."""
        ring = self.key.ring
        self._check_noise(self._noise, self._own, len(self._raws), "Leaving")
        after = self._noise_after()
        if after > ring.limit(ring.low):
            raise ConfigError(
                "This bfv array was sent on too often; let the key holder open it instead."
            )
        hidden = []
        zeros = self.key.pool.take(len(self._raws))
        for raw, zero, mask in zip(self._raws, zeros, masks, strict=True):
            cover = ring.cover(zero, mask)
            if self._limbs == len(ring.primes):
                hidden.append(ring.switch(ring.add(raw, cover), ring.low))
            else:
                hidden.append(ring.add(raw, ring.switch(cover, ring.low)))
        return np.stack(hidden)

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

    def _masked(self) -> tuple[dict[str, Any], BFVMask]:
        bits = self.key.params.plain_bits
        masks = random_words(len(self._raws) * DEGREE, bits).reshape(-1, DEGREE)
        wanted = masks[self._layout.places(self.shape)].reshape(-1)
        payload = self._layout_fields() | {"numbers": self._hidden(masks)}
        return payload, BFVMask(self.key, self.shape, self.bound, wanted)

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


class BFVMask(Mask):
    """A uniform residue mod t for every coefficient; those of the values are kept."""

    key: BFVPublicKey

    def __init__(self, key: BFVPublicKey, shape: tuple[int, ...], bound: int, mask: Array) -> None:
        super().__init__(key, shape, bound)
        self._mask = mask

    def _remove(self, payload: dict[str, Any]) -> Array:
        residues = wire.array_field(payload, "residues", np.uint64, 1)
        ring = self.key.ring
        if residues.size != self._mask.size or residues.max() >= ring.t:
            raise ProtocolError(
                f"An answer of {self._mask.size} residues was expected. "
                f"Got {residues.size} instead, or some out of range."
            )
        return ring.centred(residues - self._mask).reshape(self.shape)


class BFVSecretKey(SecretKey):
    """A secret key of SEAL."""

    public: BFVPublicKey

    def __init__(self, public: BFVPublicKey, secret: Any) -> None:
        super().__init__(public)
        self._decryptor = seal.Decryptor(public.ring.context, secret)

    def _decrypt(self, array: EncryptedArray) -> Array:
        if not isinstance(array, BFVArray):
            raise CryptoError("A bfv key decrypts bfv arrays only.")
        return self.public.ring.centred(self._values(array._raws, array._layout, array.shape))

    def _open(self, payload: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        layout = self.public.read_layout(payload, shape)
        raws = self.public.read_numbers(payload, layout.count(shape), (self.public.ring.low,))
        return {"residues": self._values(raws, layout, shape).reshape(-1)}

    def _values(self, raws: Array, layout: Layout, shape: tuple[int, ...]) -> Array:
        ring = self.public.ring
        rows = [ring.coefficients(self._decryptor.decrypt(ring.object(raw))) for raw in raws]
        wanted: Array = np.stack(rows)[layout.places(shape)]
        return wanted


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
