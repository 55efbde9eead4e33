"""Arithmetic modulo 2^64: words, their signed values, matrix products, packed bytes, angles.

Additive shares are words. All parties must compute the same public words from the same public
numbers, whatever machine they have; so nothing here depends on a library's rounding.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vfsl.errors import ConfigError
from vfsl.values import Floats, Integers

Words = npt.NDArray[np.uint64]
Bits = npt.NDArray[np.uint8]  # 0 or 1
Bytes = npt.NDArray[np.uint8]

WIDEST = 64
_NAIVE = 1 << 22  # multiplications below which numpy's integer loop is as fast as BLAS
_EXACT = 53  # bits that a float64 holds exactly
_SHORTEST_CHUNK = 9  # log2 of the rows per exact float product
_TABLE_BITS = 12
_PI = 3141592653589793238462643383279502884197169399375105820974944592307816406286
_PI_SCALE = 10**75


def to_words(values: npt.ArrayLike) -> Words:
    """Signed integers as words."""
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iub" and numbers.size:
        raise ConfigError(f"Shares hold integers; got {numbers.dtype}: round to fixed point first.")
    return numbers.astype(np.int64, copy=False).view(np.uint64)


def to_signed(words: Words, width: int) -> Integers:
    """The integers between −2^(width−1) and 2^(width−1) that words stand for modulo 2^width."""
    unused = np.uint64(WIDEST - width)
    return (words << unused).view(np.int64) >> unused.astype(np.int64)


def lowest(width: int) -> np.uint64:
    """The word whose lowest ``width`` bits are 1."""
    return np.uint64((1 << width) - 1)


def matmul(a: Words, b: Words, width: int = WIDEST) -> Words:
    """``a @ b``, right in the lowest ``width`` bits.

    Large products go through BLAS in limbs that are short enough for exact floats.
    """
    if a.ndim != 2 or b.ndim != 2 or a.size * b.shape[1] < _NAIVE or b.shape[1] < 4:
        return np.asarray(a @ b)
    count = next(n for n in (2, 3, 4) if n == 4 or _chunk_bits(width, n) >= _SHORTEST_CHUNK)
    limb, chunk = -(-width // count), 1 << _chunk_bits(width, count)
    out = np.zeros((a.shape[0], b.shape[1]), dtype=np.uint64)
    for start in range(0, a.shape[1], chunk):
        left = _split(a[:, start : start + chunk], limb, count)
        right = _split(b[start : start + chunk], limb, count)
        for total in range(count):
            part = np.zeros_like(out)
            for i in range(total + 1):
                part += (left[i] @ right[total - i]).astype(np.uint64)
            out += part << np.uint64(limb * total)
    return out


def _chunk_bits(width: int, count: int) -> int:
    return _EXACT - 2 * -(-width // count)


def _split(words: Words, limb: int, count: int) -> list[Floats]:
    return [
        ((words >> np.uint64(limb * i)) & lowest(limb)).astype(np.float64) for i in range(count)
    ]


# ---- bytes ---------------------------------------------------------------------------------------


def count_bytes(shape: tuple[int, ...], width: int) -> int:
    """How many bytes words take that are packed."""
    return -(-math.prod(shape) * width // 8)


def pack(words: Words, width: int) -> Bytes:
    """The lowest ``width`` bits of words as bytes."""
    raw = np.ascontiguousarray(words, dtype="<u8").view(np.uint8).reshape(-1, 8)
    if width % 8:
        bits = np.unpackbits(raw, axis=1, count=width, bitorder="little")
        return np.packbits(bits, bitorder="little")
    return np.ascontiguousarray(raw[:, : width // 8]).ravel()


def unpack(content: Bytes, width: int, shape: tuple[int, ...]) -> Words:
    """The words of `pack`."""
    count = math.prod(shape)
    raw = np.zeros((count, 8), dtype=np.uint8)
    if width % 8:
        bits = np.unpackbits(content, count=count * width, bitorder="little")
        found = np.packbits(bits.reshape(count, width), axis=1, bitorder="little")
        raw[:, : found.shape[1]] = found
    else:
        raw[:, : width // 8] = content.reshape(-1, width // 8)
    return raw.view("<u8").astype(np.uint64, copy=False).reshape(shape)


def pack_bits(bits: Bits) -> Bytes:
    """Eight bits per byte."""
    return np.packbits(bits)


def unpack_bits(content: Bytes, shape: tuple[int, ...]) -> Bits:
    """The bits of `pack_bits`."""
    return np.unpackbits(content, count=math.prod(shape)).reshape(shape)


# ---- angles --------------------------------------------------------------------------------------


Wave = tuple[Floats, Floats]  # sine and cosine


def find_waves(words: Words, width: int, frequencies: tuple[int, ...]) -> list[Wave]:
    """(sin, cos) of 2π · frequency · word / 2^width for odd frequencies in rising order.

    Two parties whose values differed in the last bit would get garbage, so this uses additions and
    multiplications only, which every machine rounds alike, and a table made of integers.
    """
    sines, cosines = _make_table()
    words = words & lowest(width)
    coarse = (words >> np.uint64(width - _TABLE_BITS)).astype(np.int64)
    rest = (words & lowest(width - _TABLE_BITS)).astype(np.float64)
    rest *= 2 * math.pi / 2.0**width
    square = rest * rest
    sin_rest = rest - rest * square * (1 / 6)
    cos_rest = 1.0 - square * 0.5 + square * square * (1 / 24)
    sin_one = sines[coarse] * cos_rest + cosines[coarse] * sin_rest
    cos_one = cosines[coarse] * cos_rest - sines[coarse] * sin_rest
    sin_two, cos_two = 2.0 * sin_one * cos_one, cos_one * cos_one - sin_one * sin_one
    waves: list[Wave] = []
    sin, cos = sin_one, cos_one
    for frequency in range(1, frequencies[-1] + 1, 2):
        if frequency > 1:
            sin, cos = sin * cos_two + cos * sin_two, cos * cos_two - sin * sin_two
        if frequency in frequencies:
            waves.append((sin, cos))
    return waves


@lru_cache(maxsize=1)
def _make_table() -> tuple[Floats, Floats]:
    """Sine and cosine of 2^12 equal parts of a circle, rotated step by step in long integers."""
    scale, count = 1 << 200, 1 << _TABLE_BITS
    angle = 2 * _PI * scale // (_PI_SCALE * count)
    sin_step = cos_step = 0
    term, number = scale, 0
    while term:
        sign = -1 if number % 4 >= 2 else 1
        sin_step, cos_step = (
            (sin_step + sign * term, cos_step) if number % 2 else (sin_step, cos_step + sign * term)
        )
        number += 1
        term = term * angle // (scale * number)
    sin, cos, sines, cosines = 0, scale, np.empty(count), np.empty(count)
    for i in range(count):
        sines[i], cosines[i] = sin / scale, cos / scale  # int / int is rounded correctly
        sin, cos = (
            (sin * cos_step + cos * sin_step) // scale,
            (cos * cos_step - sin * sin_step) // scale,
        )
    return sines, cosines
