"""Arithmetic modulo n² behind Paillier: fixed-base powers, many powers at once, group products.

Pure functions over gmpy2 numbers. Those that take one tuple run in worker processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gmpy2
import numpy as np

from vfsl.values import Array

# gmpy2 comes without types; mpz behaves like int.
Residue = Any

TEETH = 10
BLOCKS = 8


class Comb:
    """Powers of one base with exponents of up to ``bits`` bits, by a Lim-Lee comb.

    The exponent is cut into TEETH rows; one table look-up multiplies a whole column of bits.
    Every table is repeated for BLOCKS shifts of the columns, which saves most squarings: about
    bits / TEETH products a power, against 1.2 · bits for a general one.
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


def inverses(values: Sequence[Residue], modulus: Residue) -> list[Residue]:
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


def product(values: Sequence[Residue], modulus: Residue) -> Residue:
    """The product of all values, 1 for none."""
    result = gmpy2.mpz(1)
    for value in values:
        result = result * value % modulus
    return result


def run_products(
    values: Sequence[Residue], runs: list[tuple[int, int, int]], modulus: Residue
) -> list[Residue]:
    """For each (start, stop, extra): Π values[start:stop], times values[extra] unless it is −1.

    A run is a quotient of two running products, so all runs cost one inversion and a few
    products each, however long they are.
    """
    running = [gmpy2.mpz(1)]
    for value in values[: max((stop for _, stop, _ in runs), default=0)]:
        running.append(running[-1] * value % modulus)
    starts = sorted({start for start, stop, _ in runs if 0 < start < stop})
    back = dict(zip(starts, inverses([running[start] for start in starts], modulus), strict=True))
    results = []
    for start, stop, extra in runs:
        result = gmpy2.mpz(1)
        if start < stop:
            result = running[stop] * back[start] % modulus if start else running[stop]
        results.append(result * values[extra] % modulus if extra >= 0 else result)
    return results


def signed_power(base: Residue, exponent: int, modulus: Residue) -> Residue:
    """base ** exponent, also for negative exponents."""
    if exponent < 0:
        base, exponent = gmpy2.invert(base, modulus), -exponent
    return gmpy2.powmod(base, exponent, modulus)


def dot_powers(task: tuple[Residue, list[Residue], Array]) -> list[Residue]:
    """Π base_i ** x_ij for every column j of an integer matrix.

    Each column is shifted to be non-negative, which costs one more power of Π base_i in the
    end, and summed by buckets (Pippenger): rows with the same digit are multiplied together
    before the digit is applied, so a digit costs one product a row whatever its width.
    """
    modulus, bases, columns = task
    whole: Residue = None
    results = []
    for column in columns.T:
        low = min(int(column.min()), 0)
        result = bucket_power(bases, column - low, modulus)
        if low:
            whole = product(bases, modulus) if whole is None else whole
            result = result * signed_power(whole, low, modulus) % modulus
        results.append(result)
    return results


def bucket_power(bases: list[Residue], exponents: Array, modulus: Residue) -> Residue:
    """Π base_i ** e_i for non-negative exponents."""
    bits = int(exponents.max()).bit_length()
    width = window_width(len(bases), bits)
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
        result = result * weighted(buckets, modulus) % modulus
    return result


def weighted(buckets: list[Residue], modulus: Residue) -> Residue:
    """Π bucket_d ** d by running products from the top: two products a bucket."""
    running = total = gmpy2.mpz(1)
    for bucket in buckets[:0:-1]:
        if bucket is not None:
            running = running * bucket % modulus
        if running != 1:
            total = total * running % modulus
    return total


def window_width(rows: int, bits: int) -> int:
    """The digit width that needs the fewest products for ``rows`` powers of ``bits`` bits."""
    widths = range(1, min(max(bits, 1), 16) + 1)
    return min(widths, key=lambda width: -(-bits // width) * (rows + (1 << width)))


def group_products(task: tuple[Residue, list[Residue], Array, int]) -> list[list[Residue | None]]:
    """For each column of ``groups``: the product of the bases of every group, None if empty.

    Several columns share one pass: rows are multiplied into joint cells, and each column's
    groups are the marginals of the cells, taken one axis at a time.
    """
    modulus, bases, groups, n = task
    results: list[list[Residue | None]] = []
    rows, count = groups.shape
    width = joint_width(rows, count, n)
    for start in range(0, count, width):
        columns = groups[:, start : start + width]
        # Code n stands for −1, a row that counts in no group of that column.
        results += marginals(np.where(columns < 0, n, columns), bases, n, modulus)
    return results


def marginals(
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
    last = marginals(where[:, -1:], joint, n, modulus)
    return marginals(where[:, :-1], joint, n, modulus) + last


def joint_width(rows: int, columns: int, n: int) -> int:
    """How many columns to sum jointly: the fewest products a column."""

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
