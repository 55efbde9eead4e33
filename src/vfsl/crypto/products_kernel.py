"""The mathematics of encrypted products: what fits, encrypt, multiply, open, correct.

    c0[b, g] = −a_b · s_g + e + Δ · x[b, g]        block b of rows, column g, Δ = (q − 1) / 2^t
    c1[j]    = Σ_b a_b · p[b, j] + a_zero · u_j + e1_j            u_j ternary, drawn for each answer

Row i of a block is the coefficient of X^i in x and of X^(r−1−i) in p, so one coefficient of c0 · p
is a dot product over rows. r = N / packing rows make a block: with several plain columns per
polynomial answers get shorter, but columns under encryption longer.

Pure functions and the two sides' objects; who sends what to whom is in products.py, and why it is
safe in docs/security-products.md.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vfsl.crypto.fixed import draw_words, max_abs
from vfsl.crypto.products_ring import (
    COINS,
    DEGREE,
    ERROR_VARIANCE,
    MAX_SCALE_BITS,
    MODULUS,
    MODULUS_BITS,
    USED,
    count_bytes,
    draw_errors,
    draw_ternary,
    expand_residues,
    get_small_ring,
    pack_words,
    sum_modulo,
    sum_modulo_sparse,
    sum_wrapping,
    switch_modulus,
    unpack_words,
)
from vfsl.errors import BoundExceeded, InputError, ProtocolError
from vfsl.values import Array, Integers

SEED_BYTES = 32
# A value comes out wrong with a probability of at most 2 exp(−9.5² / 2) < 2^-64.
DEVIATIONS = 9.5
MAX_DIGITS = 8
PACKINGS = (1, 2, 4, 8)
MAX_WIRE_BITS = 52
_COEFFICIENTS_AT_ONCE = 1 << 21


# ---- public sizes: what fits, and at which parameters --------------------------------------------


@dataclass(frozen=True)
class Bound:
    """Public bounds on a private matrix: absolute values, and the 2-norms of its columns."""

    largest: int
    norm: float

    @classmethod
    def of(cls, rows: int, bits: int, norm: float | None = None) -> Bound:
        """Values below 2^bits in size; columns as long as ``norm``, or as such values can be."""
        if not 1 <= bits <= 30:
            raise InputError(f"Encrypted products take values of 1 to 30 bits. Got {bits} instead.")
        if norm is not None and not norm >= 1:
            raise InputError(f"The norm of columns must be at least 1. Got {norm} instead.")
        largest = (1 << bits) - 1
        longest = math.sqrt(rows) * largest
        return cls(largest, longest if norm is None else min(float(norm), longest))

    def check(self, values: Integers, what: str) -> None:
        """Refuse values outside, before anything is sent."""
        if max_abs(values) > self.largest:
            raise BoundExceeded(
                f"{what} must be at most {self.largest} in size. Got {max_abs(values)} instead; "
                "use fewer bits, or clip."
            )
        if self.norm >= math.sqrt(len(values)) * self.largest:
            return  # the largest values imply it
        longest = math.sqrt(float((values.astype(np.float64) ** 2).sum(axis=0).max(initial=0.0)))
        if longest > self.norm * (1 + 1e-9):
            raise BoundExceeded(
                f"Columns of {what} must have 2-norms of at most {self.norm:.6g}. Got "
                f"{longest:.6g} instead; state a larger norm, or clip."
            )


@dataclass(frozen=True)
class Product:
    """The public parameters of one product: P in digits of a base, answers modulo 2^wire_bits."""

    digits: int
    base_bits: int
    digit: Bound
    wire_bits: int


@dataclass(frozen=True)
class Layout:
    """The public facts of encrypted columns; every product is planned from them."""

    rows: int
    columns: int
    values: Bound
    scale_bits: int  # t: products are integers mod 2^t until they are lifted
    packing: int = 1

    @property
    def block_rows(self) -> int:
        return DEGREE // self.packing

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.block_rows)

    @cached_property
    def places(self) -> Integers:
        """The coefficients of all blocks that products read; the others are not sent.

        All of the last block are read, which encrypts zero.
        """
        at = np.arange((self.blocks + 1) * DEGREE)
        row = at // DEGREE * self.block_rows + at % self.block_rows
        return np.flatnonzero((row < self.rows) | (at >= self.blocks * DEGREE))

    @property
    def words(self) -> int:
        """How many words cross per column, with those of the block of zeros."""
        return self.packing * self.rows + DEGREE

    @property
    def exits(self) -> Integers:
        """The coefficients in which the products of the packed plain columns stand."""
        return np.arange(1, self.packing + 1) * self.block_rows - 1

    def bound_noise(self, digit: Bound, wire_bits: int) -> float:
        """What the noise of an opened value exceeds with a probability of 2^-64 only.

        Given everything that the other party knows, the noise is a sum of independent draws of the
        owner: errors of its columns (sub-Gaussian, variance 10.5) times p and u, and its ternary
        secret (sub-Gaussian, variance 2/3) times e1 and the rounding of c1.
        """
        shrink = 2.0**wire_bits / MODULUS
        plain = self.packing * digit.norm**2 + DEGREE  # ‖p‖² + ‖u‖²
        variance = shrink**2 * ERROR_VARIANCE * plain
        variance += 2 / 3 * DEGREE * (shrink * COINS + 0.5) ** 2
        # Rounding of c0, and Δ · 2^t = q − 1 instead of q.
        return DEVIATIONS * math.sqrt(variance) + 1

    def plan(self, plain: Bound) -> Product | None:
        """The product with the fewest digits, None if none fits."""
        for digits in range(1, MAX_DIGITS + 1):
            base_bits, digit = _cut(plain, digits, self.rows)
            if (wire_bits := self._choose_wire(digit)) is not None:
                return Product(digits, base_bits, digit, wire_bits)
            if digit.largest <= 2:
                break
        return None

    def bound_products(self, plain: Bound) -> int:
        """What no product exceeds, by the largest values or by Cauchy-Schwarz."""
        by_length = math.ceil(self.values.norm * plain.norm * (1 + 1e-9))
        return min(self.rows * self.values.largest * plain.largest, by_length)

    def _choose_wire(self, digit: Bound) -> int | None:
        if self.bound_products(digit) >= 1 << (self.scale_bits - 2):
            return None
        for wire_bits in range(self.scale_bits + 3, MAX_WIRE_BITS + 1):
            if self.bound_noise(digit, wire_bits) < 2.0 ** (wire_bits - self.scale_bits - 2):
                return wire_bits
        return None

    def count_columns_bytes(self) -> int:
        """Bytes of the encrypted columns."""
        return SEED_BYTES + count_bytes(self.words * self.columns, MODULUS_BITS)

    def count_answer_bytes(self, product: Product, plain_columns: int) -> int:
        """Bytes of the answer for that many plain columns."""
        cut = product.digits * plain_columns
        words = -(-cut // self.packing) * DEGREE + cut * self.columns
        return count_bytes(words, product.wire_bits)


def plan_columns(
    rows: int, columns: int, values: Bound, plain: Bound, plain_columns: int = 1, receivers: int = 1
) -> Layout:
    """The layout that moves the fewest bytes for ``plain_columns`` in all of such a bound."""
    if min(rows, columns, plain_columns, receivers) < 1:
        raise InputError("Encrypted products need at least one row and one column on either side.")
    best: tuple[int, Layout] | None = None
    for packing in PACKINGS:
        for scale_bits in range(3, MAX_SCALE_BITS + 1):
            layout = Layout(rows, columns, values, scale_bits, packing)
            if (product := layout.plan(plain)) is not None:
                total = receivers * layout.count_columns_bytes()
                total += layout.count_answer_bytes(product, plain_columns)
                if best is None or total < best[0]:
                    best = total, layout
    if best is None:
        raise BoundExceeded(
            f"Products over {rows} rows of values up to {values.largest} with values up to "
            f"{plain.largest} leave no room for noise, even in digits; use fewer bits."
        )
    return best[1]


def _cut(plain: Bound, digits: int, rows: int) -> tuple[int, Bound]:
    """The base and the bound of balanced digits: all in ±2^(base_bits−1), or just above."""
    if digits == 1:
        return 0, plain
    base_bits = max(-(-(plain.largest.bit_length() + 1) // digits), 2)
    # The lower digits add up to at most 2/3 of what the top digit counts in.
    top = (plain.largest >> (base_bits * (digits - 1))) + 1
    largest = max(1 << (base_bits - 1), top)
    return base_bits, Bound(largest, math.sqrt(rows) * largest)


def cut_digits(plain: Integers, product: Product) -> Integers:
    """(rows, T) integers as (rows, digits · T) small ones: P = Σ 2^(base_bits d) P_d."""
    if product.digits == 1:
        return plain
    rest, parts = plain, []
    for _ in range(product.digits - 1):
        half = np.int64(1 << (product.base_bits - 1))
        part = ((rest + half) & np.int64(2 * half - 1)) - half
        parts.append(part)
        rest = (rest - part) >> np.int64(product.base_bits)
    return np.concatenate([*parts, rest], axis=1)


def join_digits(cut: Array, product: Product) -> Array:
    """Sums of words for each digit, (columns, digits · T), as words of the whole."""
    parts = np.split(cut, product.digits, axis=1)
    total = np.zeros_like(parts[0])
    for at, part in enumerate(parts):
        total += part << np.uint64(product.base_bits * at)
    return total


# ---- the owner: encrypt, open --------------------------------------------------------------------


class ColumnKey:
    """The owner's key: one ternary secret per column. It never leaves, and serves one matrix."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._secrets = draw_ternary((layout.columns, DEGREE))

    def encrypt(self, x: Integers) -> tuple[bytes, Array]:
        """The seed of a_b and the words (places, columns) of c0; the last block encrypts zero."""
        layout, ring = self.layout, get_small_ring()
        seed = secrets.token_bytes(SEED_BYTES)
        factors = [ring.load_factor(a) for a in expand_residues(seed, layout.blocks + 1)]
        hidden = np.empty((layout.blocks + 1, layout.columns, DEGREE), dtype=np.int64)
        for start in range(0, layout.columns, USED):
            part = self._secrets[start : start + USED]
            transformed = ring.transform(part)
            for block, factor in enumerate(factors):
                products = ring.add_products([(transformed, factor)])
                hidden[block, start : start + USED] = products[: len(part)]
        message = np.zeros((layout.blocks * layout.block_rows, layout.columns), dtype=np.int64)
        message[: layout.rows] = x * np.int64((MODULUS - 1) >> layout.scale_bits)
        clear = draw_errors((layout.blocks + 1, DEGREE, layout.columns))
        clear[:-1, : layout.block_rows] += message.reshape(layout.blocks, -1, layout.columns)
        c0 = (clear - hidden.transpose(0, 2, 1)) % np.int64(MODULUS)
        return seed, c0.reshape(-1, layout.columns).view(np.uint64)[layout.places]

    def open(self, answer: Answer, product: Product) -> Array:
        """2^(k−t) · G + noise + mask mod 2^k for each value: uniform, whatever G is."""
        layout = self.layout
        wide = np.empty((len(answer.second), layout.packing, layout.columns), dtype=np.uint64)
        for at, place in enumerate(layout.exits):
            turned = _turn(self._secrets.T, np.arange(DEGREE), place)
            wide[:, at] = sum_wrapping(answer.second.T, turned, 1)
        products = wide.reshape(-1, layout.columns)[: answer.first.shape[1]].T
        return (answer.first + products) & np.uint64((1 << product.wire_bits) - 1)


def _turn(polynomials: Array, places: Integers, exit: int) -> Array:
    """What multiplies other polynomials' coefficients for coefficient ``exit`` of the product.

    Polynomials stand in blocks of N rows, one per column; ``places`` are those to be multiplied.
    """
    power = places % DEGREE
    turned: Array = polynomials[places - power + (exit - power) % DEGREE]
    if (beyond := power > exit).any():
        turned[beyond] *= -1  # X^N = −1
    return turned


# ---- the other: multiply, mask -------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What the owner opens: masked coefficients (columns, T) of c0 · p, and c1, mod 2^wire_bits."""

    first: Array
    second: Array

    def to_bytes(self, product: Product) -> Array:
        words = np.concatenate([self.first.reshape(-1), self.second.reshape(-1)])
        return pack_words(words, product.wire_bits)

    @classmethod
    def from_bytes(
        cls, data: Array, layout: Layout, product: Product, plain_columns: int
    ) -> Answer:
        cut = product.digits * plain_columns
        polynomials = -(-cut // layout.packing)
        count = layout.columns * cut + polynomials * DEGREE
        words = unpack_words(data, (count,), product.wire_bits)
        first, second = np.split(words, [layout.columns * cut])
        return cls(first.reshape(layout.columns, cut), second.reshape(polynomials, DEGREE))


class EncryptedMatrix:
    """Columns under their owner's key, as everybody holds them."""

    def __init__(self, layout: Layout, seed: bytes, words: Array) -> None:
        if len(seed) != SEED_BYTES or words.shape != (layout.words, layout.columns):
            raise ProtocolError("Encrypted columns must have the announced shape.")
        if (words >= MODULUS).any():
            raise ProtocolError("Encrypted columns must be residues of the announced modulus.")
        self.layout = layout
        self.seed = seed
        self.words = words

    @cached_property
    def _factors(self) -> list[object]:
        ring = get_small_ring()
        return [ring.load_factor(a) for a in expand_residues(self.seed, self.layout.blocks + 1)]

    def multiply(self, plain: Integers, product: Product) -> tuple[Answer, Array]:
        """The answer for plain columns (rows, T), and the mask (columns, digits · T) in it."""
        cut = cut_digits(plain, product)
        parts = [self._multiply(part, product) for part in self._polynomials(cut)]
        first = np.concatenate([part[0] for part in parts], axis=1)[:, : cut.shape[1]]
        second = np.concatenate([part[1] for part in parts])
        mask = draw_words(first.size, product.wire_bits).reshape(first.shape)
        masked = (first + mask) & np.uint64((1 << product.wire_bits) - 1)
        return Answer(masked, second), mask

    def _polynomials(self, cut: Integers) -> Iterator[Array]:
        """Plain columns as (blocks, N, polynomials) coefficients, some polynomials at a time."""
        layout = self.layout
        together = _COEFFICIENTS_AT_ONCE // (layout.blocks * DEGREE * USED)
        step = max(together, 1) * USED * layout.packing
        for start in range(0, cut.shape[1], step):
            part = cut[:, start : start + step]
            count = -(-part.shape[1] // layout.packing)
            padded = np.zeros(
                (layout.blocks * layout.block_rows, count * layout.packing), dtype=np.int32
            )
            padded[: layout.rows, : part.shape[1]] = part
            split = padded.reshape(layout.blocks, layout.block_rows, count, layout.packing)
            yield split[:, ::-1].transpose(0, 3, 1, 2).reshape(layout.blocks, DEGREE, count)

    def _multiply(self, blocks: Array, product: Product) -> tuple[Array, Array]:
        """First and second half mod 2^wire_bits, before the mask."""
        layout, ring, count = self.layout, get_small_ring(), blocks.shape[2]
        zeros = draw_ternary((1, DEGREE, count))
        full = np.concatenate([blocks, zeros.astype(blocks.dtype)])
        second = np.empty((count, DEGREE), dtype=np.int64)
        for start in range(0, count, USED):
            part = full[:, :, start : start + USED].transpose(0, 2, 1)
            pairs = zip(map(ring.transform, part), self._factors, strict=True)
            second[start : start + USED] = ring.add_products(pairs)[: part.shape[1]]
        second = (second + draw_errors(second.shape)) % np.int64(MODULUS)
        first = np.empty((layout.columns, count, layout.packing), dtype=np.int64)
        for at, place in enumerate(layout.exits):
            turned = _turn(full.reshape(-1, count), layout.places, place)
            largest, rows = product.digit.largest, layout.words - DEGREE
            of_rows = sum_modulo_sparse(self.words[:rows], turned[:rows], largest)
            first[:, :, at] = of_rows + sum_modulo(self.words[rows:], turned[rows:], 1)
        first %= np.int64(MODULUS)
        return (
            switch_modulus(first.reshape(layout.columns, -1), product.wire_bits),
            switch_modulus(second, product.wire_bits),
        )


# ---- from shares mod 2^k with noise to shares of the exact integers ------------------------------
#
# With j = k − t and an offset of 2^(k−2) + 2^(j−2), which makes noise and product positive:
#   opened + offset = 2^j (G + 2^(t−2)) + noise' + mask mod 2^k,   0 ≤ noise' < 2^(j−1),
# so G = (opened' >> j) − 2^(t−2) − (mask >> j) − carry + 2^t wrap. The low parts carry exactly if
# bit j−1 of the mask is 1 and that of the sum 0; the same with bit k−1 and the wrap.


def split_opened(opened: Array, layout: Layout, product: Product) -> tuple[Array, Array]:
    """The owner's words, and its two bits (2, columns, T) per value: those of the sum, inverted."""
    k, low = product.wire_bits, product.wire_bits - layout.scale_bits
    lifted = (opened + np.uint64((1 << (k - 2)) + (1 << (low - 2)))) & np.uint64((1 << k) - 1)
    words = (lifted >> np.uint64(low)) - np.uint64(1 << (layout.scale_bits - 2))
    return words, 1 - _two_bits(lifted, low, k)


def split_mask(mask: Array, layout: Layout, product: Product) -> tuple[Array, Array]:
    """The other's words and its two bits per value: those of the mask."""
    k, low = product.wire_bits, product.wire_bits - layout.scale_bits
    return np.uint64(0) - (mask >> np.uint64(low)), _two_bits(mask, low, k)


def _two_bits(words: Array, low: int, k: int) -> Array:
    both = np.stack([words >> np.uint64(low - 1), words >> np.uint64(k - 1)])
    bits: Array = (both & np.uint64(1)).astype(np.uint8)
    return bits


def apply_corrections(words: Array, both: Array, layout: Layout) -> Array:
    """Words less carries plus wraps, from shares of the bits' products."""
    return np.asarray(words - both[0] + (both[1] << np.uint64(layout.scale_bits)))
