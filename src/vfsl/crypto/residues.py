"""The numbers behind Paillier: powers modulo n², random n-th powers, many values in one number.

Pure functions over gmpy2 numbers. Those that take one tuple run in worker processes.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gmpy2
import numpy as np

from vfsl.crypto.fixed import object_array
from vfsl.crypto.work import Pool, count_workers, spread_if_worth
from vfsl.errors import CryptoError
from vfsl.parallel import spread
from vfsl.values import Array

# gmpy2 comes without types; mpz behaves like int.
Residue = Any

TEETH = 10
BLOCKS = 8
# A comb needs some 230 to 360 products per power.
PRODUCTS_PER_POWER = 300
STATISTICAL_BITS = 128
POWERS_PER_TASK = 64
SLOT_BITS = 64
SLOT_CAPACITY = 2**63 - 1
_SIGN = np.uint64(2**63)


# ---- powers and products ------------------------------------------------------------------------


class Comb:
    """Powers of one base with exponents of up to ``bits`` bits, by a Lim-Lee comb.

    The exponent is cut into TEETH rows; one table look-up multiplies a whole column of bits.
    Every table is repeated for BLOCKS shifts of the columns, which saves most squarings: about
    bits / TEETH products per power, against 1.2 · bits for a general one.
    """

    def __init__(self, base: Residue, modulus: Residue, bits: int) -> None:
        self.modulus = modulus
        self.block = math.ceil(bits / (TEETH * BLOCKS))
        self.columns = self.block * BLOCKS
        self.bits = self.columns * TEETH
        teeth = [base]
        for _ in range(TEETH - 1):
            teeth.append(gmpy2.powmod(teeth[-1], gmpy2.mpz(1) << self.columns, modulus))
        self.tables = []
        for _ in range(BLOCKS):
            table = [gmpy2.mpz(1)]
            for tooth in teeth:
                table += [entry * tooth % modulus for entry in table]
            self.tables.append(table)
            teeth = [gmpy2.powmod(tooth, gmpy2.mpz(1) << self.block, modulus) for tooth in teeth]

    def power(self, exponent: int) -> Residue:
        """base ** exponent."""
        modulus = self.modulus
        bits = np.frombuffer(exponent.to_bytes(-(-self.bits // 8), "little"), dtype=np.uint8)
        rows = np.unpackbits(bits, bitorder="little")[: self.bits].reshape(TEETH, self.columns)
        picks = (rows.astype(np.int64) << np.arange(TEETH)[:, None]).sum(axis=0)
        order = picks.reshape(BLOCKS, self.block).T[::-1].tolist()
        result = gmpy2.mpz(1)
        for step in order:
            result = result * result % modulus
            for table, pick in zip(self.tables, step, strict=True):
                if pick:
                    result = result * table[pick] % modulus
        return result


def invert_all(values: Sequence[Residue], modulus: Residue) -> list[Residue]:
    """All inverses with a single inversion (Montgomery's trick)."""
    before = []
    product = gmpy2.mpz(1)
    for value in values:
        before.append(product)
        product = product * value % modulus
    rest = gmpy2.invert(product, modulus)
    out = [rest] * len(values)
    for at in range(len(values) - 1, -1, -1):
        out[at] = rest * before[at] % modulus
        rest = rest * values[at] % modulus
    return out


def multiply_all(values: Sequence[Residue], modulus: Residue) -> Residue:
    """The product of all values, 1 for none."""
    result = gmpy2.mpz(1)
    for value in values:
        result = result * value % modulus
    return result


def multiply_prefixes(
    values: Sequence[Residue], places: list[tuple[int, int, int]], modulus: Residue
) -> list[Residue]:
    """For each (start, stop, extra): Π values[start:stop], times values[extra] unless it is −1.

    Each is a quotient of two prefix products, so all of them cost one inversion and a few
    products each, however long they are.
    """
    running = [gmpy2.mpz(1)]
    for value in values[: max((stop for _, stop, _ in places), default=0)]:
        running.append(running[-1] * value % modulus)
    starts = sorted({start for start, stop, _ in places if 0 < start < stop})
    back = dict(zip(starts, invert_all([running[start] for start in starts], modulus), strict=True))
    results = []
    for start, stop, extra in places:
        result = gmpy2.mpz(1)
        if start < stop:
            result = running[stop] * back[start] % modulus if start else running[stop]
        results.append(result * values[extra] % modulus if extra >= 0 else result)
    return results


def raise_to(base: Residue, exponent: int, modulus: Residue) -> Residue:
    """base ** exponent, also for negative exponents."""
    if exponent < 0:
        base, exponent = gmpy2.invert(base, modulus), -exponent
    return gmpy2.powmod(base, exponent, modulus)


def multiply_powers(task: tuple[Residue, list[Residue], Array]) -> list[Residue]:
    """Π base_i ** x_ij for every column j of an integer matrix.

    Each column is shifted to be non-negative, which costs one more power of Π base_i in the
    end, and summed by buckets (Pippenger): rows with the same digit are multiplied together
    before the digit is applied, so a digit costs one product per row whatever its width.
    """
    modulus, bases, columns = task
    whole: Residue = None
    results = []
    for column in columns.T:
        low = min(int(column.min()), 0)
        result = _multiply_by_buckets(bases, column - low, modulus)
        if low:
            whole = multiply_all(bases, modulus) if whole is None else whole
            result = result * raise_to(whole, low, modulus) % modulus
        results.append(result)
    return results


def _multiply_by_buckets(bases: list[Residue], exponents: Array, modulus: Residue) -> Residue:
    """Π base_i ** e_i for non-negative exponents."""
    bits = int(exponents.max()).bit_length()
    width = choose_window(len(bases), bits)
    result = gmpy2.mpz(1)
    for shift in range((max(bits, 1) - 1) // width * width, -1, -width):
        for _ in range(width if result != 1 else 0):
            result = result * result % modulus
        digits = ((exponents >> shift) & ((1 << width) - 1)).tolist()
        buckets: list[Residue] = [None] * (1 << width)
        for digit, base in zip(digits, bases, strict=True):
            held = buckets[digit]
            # Digit 0 changes nothing; its bucket just takes the last row.
            buckets[digit] = base if held is None or not digit else held * base % modulus
        # Π bucket_d ** d by running products from the top: two products per bucket.
        running = total = gmpy2.mpz(1)
        for bucket in buckets[:0:-1]:
            if bucket is not None:
                running = running * bucket % modulus
            if running != 1:
                total = total * running % modulus
        result = result * total % modulus
    return result


def choose_window(rows: int, bits: int) -> int:
    """The digit width that needs the fewest products for ``rows`` powers of ``bits`` bits."""
    widths = range(1, min(max(bits, 1), 16) + 1)
    return min(widths, key=lambda width: -(-bits // width) * (rows + (1 << width)))


def multiply_groups(task: tuple[Residue, list[Residue], Array, int]) -> list[list[Residue | None]]:
    """For each column of ``groups``: the product of the bases of every group, None if empty.

    Several columns share one pass: rows are multiplied into joint cells, and each column's
    groups are the marginals of the cells, taken one axis at a time.
    """
    modulus, bases, groups, n = task
    results: list[list[Residue | None]] = []
    rows, count = groups.shape
    width = choose_joint_width(rows, count, n)
    for start in range(0, count, width):
        columns = groups[:, start : start + width]
        # Code n stands for −1, a row that counts in no group of that column.
        results += _multiply_jointly(np.where(columns < 0, n, columns), bases, n, modulus)
    return results


def _multiply_jointly(
    codes: Array, values: list[Residue], n: int, modulus: Residue
) -> list[list[Residue | None]]:
    """The group products of each column of ``codes`` through their joint cells."""
    width = codes.shape[1]
    sizes = (n + 1,) * width
    cells: dict[int, Residue] = {}
    flat = np.ravel_multi_index(tuple(codes.T), sizes).tolist()
    for cell, value in zip(flat, values, strict=True):
        held = cells.get(cell)
        cells[cell] = value if held is None else held * value % modulus
    if width == 1:
        return [[cells.get(group) for group in range(n)]]
    where = np.stack(
        np.unravel_index(np.fromiter(cells, dtype=np.int64, count=len(cells)), sizes), axis=1
    )
    joint = list(cells.values())
    last = _multiply_jointly(where[:, -1:], joint, n, modulus)
    return _multiply_jointly(where[:, :-1], joint, n, modulus) + last


def choose_joint_width(rows: int, columns: int, n: int) -> int:
    """How many columns to sum jointly: the fewest products per column."""

    def occupied(width: int) -> float:
        cells = float(n) ** width
        return cells * -math.expm1(-rows / cells)

    def cost(width: int) -> float:
        # Filling cells, then for each axis that goes: into the next smaller cells and into the
        # groups of that axis. The first value of a cell costs nothing.
        total = rows - occupied(width)
        for axes in range(width, 1, -1):
            total += 2 * occupied(axes) - occupied(axes - 1) - occupied(1)
        return total / width

    return min(range(1, min(columns, 6) + 1), key=cost)


# ---- randomness ---------------------------------------------------------------------------------

# r^n, and n · (r^n mod n), so that encrypting m costs one short product: r^n + m · the second.
Obfuscator = tuple[Residue, Residue]


class Obfuscators(Pool[Obfuscator]):
    """A pool of r^n mod n²: Paillier's randomness under one modulus.

    Why powers of one base are enough. A pool draws h = r0^n for a random unit r0 and hands out h^x
    with x uniform below 2^(|n| + 128), which is within 2^-127 of uniform in the group that h
    generates. Given a DCR challenge z (an n-th residue, or any unit mod n²), let the pool's base be
    z^n and encrypt by (1 + n)^m · z^x. If z is an n-th residue, z generates the same group as z^n,
    since n is prime to the order: the encryption is distributed as ours. Otherwise
    z = u · (1 + n)^s with uniform s, and s·x mod n hides m perfectly. Telling messages apart would
    therefore decide DCR. Shorter exponents would need a further assumption; they are not used.
    """

    def __init__(self, n: Residue, seconds_per_product: float) -> None:
        super().__init__()
        self._n = n
        self._seconds = seconds_per_product * PRODUCTS_PER_POWER
        self._lock = threading.Lock()
        self._base: Residue = None

    def _make(self, count: int) -> list[Obfuscator]:
        tasks = [
            (self._n, self._get_base(), min(POWERS_PER_TASK, count - start))
            for start in range(0, count, POWERS_PER_TASK)
        ]
        parts = spread_if_worth(draw_powers, tasks, count * self._seconds)
        return [pair for part in parts for pair in part]

    def _make_elsewhere(self, count: int) -> Iterator[list[Obfuscator]]:
        tasks = [(self._n, self._get_base(), POWERS_PER_TASK)] * -(-count // POWERS_PER_TASK)
        return spread(draw_powers, tasks, workers=max(count_workers(), 2))

    def _get_base(self) -> Residue:
        with self._lock:
            while self._base is None:
                unit = gmpy2.mpz(secrets.randbelow(int(self._n)))
                if gmpy2.gcd(unit, self._n) == 1:
                    self._base = gmpy2.powmod(unit, self._n, self._n * self._n)
            return self._base


def draw_powers(task: tuple[Residue, Residue, int]) -> list[Obfuscator]:
    """``count`` random powers of ``base`` modulo n²."""
    n, base, count = task
    comb = _make_comb(n, base)
    bits = n.bit_length() + STATISTICAL_BITS
    return [make_obfuscator(comb.power(secrets.randbits(bits)), n) for _ in range(count)]


def make_obfuscator(power: Residue, n: Residue) -> Obfuscator:
    """r^n together with n · r^n mod n²."""
    return power, power % n * n


@lru_cache(maxsize=4)
def _make_comb(n: Residue, base: Residue) -> Comb:
    return Comb(base, n * n, n.bit_length() + STATISTICAL_BITS)


# ---- many small signed integers in one large plaintext: 64-bit digits, one slot each -------------
#
# A large number m = Σ v_j · 2^(64 j) with |v_j| < 2^63 adds and scales slot by slot. Adding 2^63 to
# every digit makes all of them non-negative, so that bytes can be cut apart without carries.


@dataclass(frozen=True)
class Slots:
    """How the values of an array are spread over numbers: ``count`` per number, along ``axis``."""

    count: int = 1
    axis: int = -1

    def numbers_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the array of numbers behind an array of values."""
        if self.count == 1:
            return shape
        lengths = list(shape)
        lengths[self.axis] = -(-lengths[self.axis] // self.count)
        return tuple(lengths)

    def pack(self, values: Array) -> list[int]:
        """Values as numbers, in C order of :meth:`numbers_shape`."""
        if self.count == 1:
            return [int(value) for value in values.reshape(-1).tolist()]
        axis = self.axis % values.ndim
        outer = self.numbers_shape(values.shape)
        missing = outer[axis] * self.count - values.shape[axis]
        padded = np.pad(values, [(0, missing if at == axis else 0) for at in range(values.ndim)])
        split = padded.reshape(*outer[: axis + 1], self.count, *outer[axis + 1 :])
        return join_digits(np.moveaxis(split, axis + 1, -1).reshape(-1, self.count))

    def unpack(self, numbers: list[int], shape: tuple[int, ...]) -> Array:
        """The values behind :meth:`pack`."""
        if self.count == 1:
            return object_array(numbers, shape)
        return self.from_digits(cut_digits(numbers, self.count), shape)

    def from_digits(self, digits: Array, shape: tuple[int, ...]) -> Array:
        """Values from one row of digits per number."""
        if self.count == 1:
            return digits.reshape(shape)
        outer = self.numbers_shape(shape)
        axis = self.axis % len(shape)
        # Put the digit axis right behind the packed one, and let the two become one again.
        merged = np.moveaxis(digits.reshape(*outer, self.count), -1, axis + 1)
        lengths = [*outer]
        lengths[axis] *= self.count
        return merged.reshape(lengths)[tuple(slice(length) for length in shape)]


def join_digits(digits: Array) -> list[int]:
    """Rows of int64 digits as one signed integer per row."""
    count = digits.shape[1]
    lifted = (digits.astype(np.int64).view(np.uint64) ^ _SIGN).astype("<u8").tobytes()
    step, base = 8 * count, _offset(count)
    return [
        int.from_bytes(lifted[start : start + step], "little") - base
        for start in range(0, len(lifted), step)
    ]


def cut_digits(numbers: list[int], count: int) -> Array:
    """The rows of int64 digits behind :func:`join_digits`."""
    base = _offset(count)
    try:
        lifted = b"".join([(number + base).to_bytes(8 * count, "little") for number in numbers])
    except OverflowError:
        raise CryptoError("The ciphertext could not be decrypted.") from None
    digits = np.frombuffer(lifted, dtype="<u8").astype(np.uint64) ^ _SIGN
    return digits.view(np.int64).reshape(len(numbers), count)


def _offset(count: int) -> int:
    """2^63 in every one of ``count`` slots."""
    return int.from_bytes((b"\0" * 7 + b"\x80") * count, "little")


def to_matrix(numbers: list[int], width: int) -> Array:
    """Non-negative integers as rows of a uint8 matrix, big-endian, ``width`` bytes each."""
    joined = b"".join([number.to_bytes(width, "big") for number in numbers])
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(numbers), width)


def from_matrix(matrix: Array) -> list[int]:
    """The integers of :func:`to_matrix`."""
    return [int.from_bytes(row.tobytes(), "big") for row in matrix]
