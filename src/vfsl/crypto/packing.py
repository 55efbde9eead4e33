"""Where the values of an array sit in polynomials of degree below N: in coefficients or in slots.

An encrypted column a of a group puts row i of a block at X^(a·kb·r + i), a plain column b puts
it at X^(b·r + r−1−i), with ka·kb·r ≤ N. In their product, X^((a·kb + b)·r + r−1) carries the inner
product of the two; all other terms land on exponents that are not r−1 modulo r (also after
wrapping around X^N = −1), so ka·kb inner products of r rows come out of one multiplication.

In the slot layout each value is the polynomial's value at another root of X^N + 1, so polynomials
multiply element by element. An inner product needs no rotations: the values of a product over all
roots add up to N times its constant coefficient, so N·X^(N−1) times the plain polynomial puts the
sum at X^(N−1), where results of coefficients with ka = kb = 1 sit too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from vfsl.crypto.ring import Parameters, get_ring, shift_left
from vfsl.values import Array

# Milliseconds of each step at three limbs, only to choose a layout: encrypt, plaintext to NTT
# form, multiply and add, mask and open a result.
ENCRYPT_MS, PLAIN_MS, PRODUCT_MS, RESULT_MS = 5.0, 0.4, 0.22, 7.0
# Plain columns to expect, since the encrypting side does not know them.
EXPECTED_COLUMNS = {"inner": 20, "sum_by": 640}
# The kind of a layout in slots.
SLOTTED = "slots"
# Group sums of one column always have this layout, whatever the number of rows, so that a tree's
# parent and child combine. Twice as many would double what is encrypted, half as many would double
# what is masked and opened: of 16, 32 and 64, this took the least time for whole trees of 24,000
# rows and 10 × 32 bins.
SUMS_TOGETHER = 32


@dataclass(frozen=True)
class Layout:
    """Where values sit: ``ka`` encrypted and ``kb`` plain columns share a polynomial.

    ``kind`` is "rows" or "slots" for what was encrypted, "inner" for results ordered (encrypted
    column, plain column), "sums" for results ordered (plain column…, encrypted column).
    ``columns`` is the number of encrypted columns, 0 for an array without that axis.
    """

    kind: str
    columns: int
    ka: int
    kb: int
    degree: int

    @property
    def block(self) -> int:
        """Rows of a column that fit one polynomial."""
        return self.degree // (self.ka * self.kb)

    @property
    def holds_rows(self) -> bool:
        """Whether these are values to work on, not sums that came out of them."""
        return self.kind in ("rows", SLOTTED)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape can have this layout."""
        if min(self.ka, self.kb) < 1 or self.ka * self.kb > self.degree:
            return False
        axes = len(shape)
        if self.kind == SLOTTED:
            return self.ka == self.kb == 1 and self.columns == (shape[1] if axes == 2 else 0)
        if self.columns == 0:
            allowed = {"rows": axes != 2, "inner": axes == 1, "sums": axes in (1, 2)}
            return self.ka == 1 and allowed[self.kind]
        allowed = {"rows": axes == 2, "inner": axes == 2, "sums": axes in (2, 3)}
        at = 0 if self.kind == "inner" else -1
        return allowed[self.kind] and shape[at] == self.columns and self.ka <= self.columns

    def places(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """For each value of an array: the number of its polynomial and its exponent there."""
        return _find_places(self, shape)

    def sent_places(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """The coefficients (polynomial, exponent) that tell the values: all of them for slots."""
        if self.kind == SLOTTED:
            count = self.count(shape)
            every = np.arange(self.degree)
            return np.repeat(np.arange(count), self.degree), np.tile(every, count)
        polynomial, exponent = self.places(shape)
        return polynomial.reshape(-1), exponent.reshape(-1)

    def count(self, shape: tuple[int, ...]) -> int:
        """How many polynomials an array takes."""
        width = max(self.columns, 1)
        others = math.prod(shape) // width
        return -(-width // self.ka) * -(-others // (self.block if self.holds_rows else self.kb))


@lru_cache(maxsize=32)
def _find_places(layout: Layout, shape: tuple[int, ...]) -> tuple[Array, Array]:
    width = max(layout.columns, 1)
    others = math.prod(shape) // width
    column, other = np.meshgrid(np.arange(width), np.arange(others), indexing="ij")
    ka, kb, block = layout.ka, layout.kb, layout.block
    if layout.holds_rows:
        blocks = -(-others // block)
        polynomial = column // ka * blocks + other // block
        exponent = column % ka * kb * block + other % block
    else:
        groups = -(-others // kb)
        polynomial = column // ka * groups + other // kb
        exponent = (column % ka * kb + other % kb) * block + block - 1
    if layout.kind != "inner":  # the encrypted columns are the last axis
        polynomial, exponent = polynomial.T, exponent.T
    return polynomial.reshape(shape), exponent.reshape(shape)


def choose_layout(shape: tuple[int, ...], use: str, degree: int, slot_degree: int) -> Layout:
    """The layout for encrypting an array: the cheapest for its use."""
    columns = shape[1] if len(shape) == 2 else 0
    if use == "any":
        return Layout(SLOTTED, columns, 1, 1, slot_degree)
    if use == "add" or len(shape) not in (1, 2):
        return Layout("rows", columns, 1, 1, degree)
    if use == "sum_by" and len(shape) == 1:
        return Layout("rows", 0, 1, SUMS_TOGETHER, degree)
    ka, kb = choose_packing(shape[0], max(columns, 1), EXPECTED_COLUMNS[use], degree)
    return Layout("rows", columns, ka, kb, degree)


@lru_cache(maxsize=64)
def choose_packing(rows: int, columns: int, plain_columns: int, degree: int) -> tuple[int, int]:
    """(ka, kb) with the least work for rows × columns against ``plain_columns``."""

    def cost(choice: tuple[int, int]) -> float:
        ka, kb = choice
        groups, plains = -(-columns // ka), -(-plain_columns // kb)
        blocks = -(-rows // (degree // (ka * kb)))
        return (
            ENCRYPT_MS * groups * blocks
            + (PLAIN_MS + PRODUCT_MS * groups) * plains * blocks
            + RESULT_MS * groups * plains
        )

    choices = [(ka, 2**power) for ka in range(1, min(columns, 64) + 1) for power in range(7)]
    return min(choices, key=cost)


class Plains(Protocol):
    """The plain side of inner products, made block by block, since all of it would not fit."""

    @property
    def groups(self) -> int:
        """How many groups of kb plain columns there are."""

    def block(self, block: int, groups: slice = slice(None)) -> Array:
        """A row of coefficients, between −t and t, for each of some groups of plain columns."""

    def norm(self) -> int:
        """Largest L1 norm of a group over all blocks: each term multiplies the error."""


@dataclass(frozen=True, eq=False)
class ColumnPlains:
    """Integer columns."""

    layout: Layout
    columns: Array

    @property
    def groups(self) -> int:
        return -(-int(self.columns.shape[1]) // self.layout.kb)

    def block(self, block: int, groups: slice = slice(None)) -> Array:
        r, count = self.layout.block, self.columns.shape[1]
        part = self.columns[block * r : (block + 1) * r]
        # Row i sits at r−1−i of its column's stretch, and columns follow each other.
        spread = np.zeros((self.groups * self.layout.kb, r), dtype=np.int64)
        spread[:count, r - len(part) :] = part[::-1].T
        return spread.reshape(self.groups, self.layout.kb * r)[groups]

    def norm(self) -> int:
        return _max_group_sum(np.abs(self.columns).sum(axis=0), self.layout.kb)


@dataclass(frozen=True, eq=False)
class GroupPlains:
    """A column of zeros and ones for each group of each grouping."""

    layout: Layout
    codes: Array
    n: int

    @property
    def groups(self) -> int:
        return -(-int(self.codes.shape[1]) * self.n // self.layout.kb)

    def block(self, block: int, groups: slice = slice(None)) -> Array:
        r = self.layout.block
        part = self.codes[block * r : (block + 1) * r]
        row, feature = np.nonzero(part >= 0)
        spread = np.zeros((self.groups * self.layout.kb, r), dtype=np.int8)
        spread[part[row, feature] + feature * self.n, r - 1 - row] = 1
        return spread.reshape(self.groups, self.layout.kb * r)[groups]

    def norm(self) -> int:
        counts = [np.bincount(column[column >= 0], minlength=self.n) for column in self.codes.T]
        return _max_group_sum(np.concatenate(counts), self.layout.kb)


@dataclass(frozen=True, eq=False)
class SlotPlains:
    """Plain columns as polynomials that bring the sum over all slots to X^(N−1).

    ``plains`` are those columns in coefficients, one per polynomial, row i at X^(N−1−i).
    """

    params: Parameters
    plains: Plains
    blocks: int

    @property
    def groups(self) -> int:
        return self.plains.groups

    def block(self, block: int, groups: slice = slice(None)) -> Array:
        ring = get_ring(self.params)
        columns = ring.reduce(self.plains.block(block, groups)[:, ::-1])
        return np.stack([move_sum(ring.from_slots(column), ring.t) for column in columns])

    def norm(self) -> int:
        # Whatever the values are, coefficients spread over the whole plaintext space.
        return self.blocks * get_ring(self.params).slot_norm


def move_sum(coefficients: Array, t: int) -> Array:
    """N · X^(N−1) times a polynomial, mod X^N + 1 and t; N is a power of two."""
    lifted = shift_left(coefficients.astype(np.int64), len(coefficients).bit_length() - 1, t)
    # X^(N−1) · X^j = −X^(j−1) for j > 0.
    return np.concatenate([-lifted[1:], lifted[:1]])


def _max_group_sum(sums: Array, width: int) -> int:
    padded = np.pad(sums, (0, -len(sums) % width)).astype(object)
    return max(int(total) for total in padded.reshape(-1, width).sum(axis=1))
