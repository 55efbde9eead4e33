"""The small ring behind encrypted columns: Z_q[X] / (X^2048 + 1), its draws and exact products.

SEAL multiplies polynomials, sixteen side by side in one object; everything else is numpy. Words are
uint64 arrays. Sums of products go through float64 matrix products of 27-bit halves, cut into pieces
of rows so that every partial sum stays below 2^53 and is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import seal

from vfsl.crypto.fixed import draw_words, expand_words
from vfsl.crypto.ring import shift_left
from vfsl.errors import ConfigError, ProtocolError
from vfsl.values import Array, Integers

DEGREE = 2048
# 8175 · 2^40 + 1, the largest 53-bit prime that is 1 modulo 2^40: (q − 1) / 2^t is an integer for
# every t up to 40, residues are exact in float64, and 53 bits at this degree keep 128 bits of
# security by the tables of 2018 (54 allowed) and by those of 2024 (53 allowed).
MODULUS = 8988507557068801
MODULUS_BITS = 53
MAX_SCALE_BITS = 40
# The error of a coefficient is the difference of two sums of 21 coins: at most 21, variance 10.5.
COINS = 21
ERROR_VARIANCE = COINS / 2
# SEAL refuses an object whose polynomials from the second on are all zero, so the last one is 1.
WIDTH, USED = 16, 15
_HALF = 27


class SmallRing:
    """SEAL's context for the ring, and polynomials that go through it sixteen at a time."""

    @cached_property
    def context(self) -> Any:
        settings = seal.EncryptionParameters(seal.scheme_type.bfv)
        settings.set_poly_modulus_degree(DEGREE)
        settings.set_coeff_modulus([seal.Modulus(MODULUS)])
        settings.set_plain_modulus(1 << 16)  # not used: SEAL only multiplies here
        context = seal.SEALContext(settings, True, seal.sec_level_type.tc128)
        if not context.parameters_set():
            raise ConfigError(
                f"SEAL refuses the ring of encrypted columns: {context.parameter_error_message()}."
            )
        return context

    @cached_property
    def _evaluator(self) -> Any:
        return seal.Evaluator(self.context)

    @cached_property
    def _headers(self) -> tuple[bytes, bytes]:
        """What SEAL writes in front of sixteen polynomials, and of a transformed factor."""
        encryptor = seal.Encryptor(
            self.context, seal.KeyGenerator(self.context).create_public_key()
        )
        fresh = encryptor.encrypt_zero()
        grown = fresh
        while grown.size() < WIDTH:  # each product without relinearising adds one polynomial
            grown = self._evaluator.multiply(grown, fresh)
        text = grown.to_string(seal.compr_mode_type.none)
        factor = self._evaluator.transform_to_ntt(seal.Plaintext("1x^1"), fresh.parms_id())
        plain = factor.to_bytes(seal.compr_mode_type.none)
        return text[: len(text) - 8 * WIDTH * DEGREE], plain[: len(plain) - 8 * DEGREE]

    def load_factor(self, transformed: Array) -> Any:
        """A polynomial given by its N transformed residues, ready to multiply others."""
        factor = seal.Plaintext()
        factor.load_bytes(self.context, self._headers[1] + transformed.tobytes())
        return factor

    def transform(self, polynomials: Array) -> Any:
        """Up to fifteen polynomials of integers between −q and q, ready to be multiplied."""
        full = np.zeros((WIDTH, DEGREE), dtype=np.int64)
        full[: len(polynomials)] = polynomials
        full += (full >> np.int64(63)) & np.int64(MODULUS)  # negative ones become residues
        full[USED, 0] = 1
        loaded = seal.Ciphertext()
        loaded.load_bytes(self.context, self._headers[0] + full.tobytes())
        self._evaluator.transform_to_ntt_inplace(loaded)
        return loaded

    def add_products(self, pairs: Iterable[tuple[Any, Any]]) -> Integers:
        """Σ polynomials · factor, as fifteen rows of residues."""
        total: Any = None
        for transformed, factor in pairs:
            term = self._evaluator.multiply_plain(transformed, factor)
            if total is None:
                total = term
            else:
                self._evaluator.add_inplace(total, term)
        self._evaluator.transform_from_ntt_inplace(total)
        text = total.to_string(seal.compr_mode_type.none)
        # The slice copies, which also aligns the numbers behind the odd-sized header.
        numbers = np.frombuffer(text[len(text) - 8 * WIDTH * DEGREE :], dtype=np.int64)
        return numbers.reshape(WIDTH, DEGREE)[:USED]


@lru_cache(maxsize=1)
def get_small_ring() -> SmallRing:
    """The ring, made once per process."""
    return SmallRing()


# ---- draws --------------------------------------------------------------------------------------


def draw_ternary(shape: tuple[int, ...]) -> Integers:
    """Uniform values from −1, 0, 1 from the operating system, by rejection."""
    count = int(np.prod(shape))
    kept = np.empty(0, dtype=np.uint8)
    while len(kept) < count:
        drawn = draw_words(count // 8 + 8, 64).view(np.uint8)
        kept = np.concatenate([kept, drawn[drawn < 255]])
    return (kept[:count] % 3).astype(np.int64).reshape(shape) - 1


def draw_errors(shape: tuple[int, ...]) -> Integers:
    """Centred binomial errors from the operating system."""
    words = draw_words(int(np.prod(shape)), 2 * COINS)
    heads = np.bitwise_count(words >> np.uint64(COINS)).astype(np.int64)
    tails = np.bitwise_count(words & np.uint64((1 << COINS) - 1)).astype(np.int64)
    errors: Integers = (heads - tails).reshape(shape)
    return errors


def expand_residues(seed: bytes, count: int) -> Array:
    """``count`` polynomials of uniform residues, the same for everybody who holds ``seed``."""
    # One word in 480 is rejected; the same for all, since a longer stream begins with a shorter.
    wanted = count * DEGREE
    words = expand_words(seed, wanted + wanted // 64 + 1024, MODULUS_BITS)
    kept = words[words < MODULUS]
    if len(kept) < wanted:  # less likely than 2^-128
        raise ProtocolError("A seed of encrypted columns expands to too few residues.")
    return kept[:wanted].reshape(count, DEGREE)


# ---- exact sums of products ---------------------------------------------------------------------


def sum_modulo(words: Array, small: Array, largest: int) -> Integers:
    """words.T @ small mod q, for words below 2^54 and |small| ≤ ``largest``."""
    total = np.zeros((words.shape[1], small.shape[1]), dtype=np.int64)
    for low, high in _sum_halves(words, small, largest):
        lifted = shift_left(high % MODULUS, _HALF, MODULUS)
        total = (total + lifted + low % MODULUS) % MODULUS
    return total


def sum_modulo_sparse(words: Array, small: Array, largest: int) -> Integers:
    """The same, faster where pairs of neighbouring columns of ``small`` have few rows."""
    pairs = [slice(at, at + 2) for at in range(0, small.shape[1], 2)]
    used = [np.flatnonzero(small[:, pair].any(axis=1)) for pair in pairs]
    # Half of all rows at most, or picking rows costs more than it saves.
    if 2 * sum(map(len, used)) > len(words) * len(pairs):
        return sum_modulo(words, small, largest)
    total = np.empty((words.shape[1], small.shape[1]), dtype=np.int64)
    for pair, rows in zip(pairs, used, strict=True):
        total[:, pair] = sum_modulo(words[rows], small[rows, pair], largest)
    return total


def sum_wrapping(words: Array, small: Array, largest: int) -> Array:
    """words.T @ small mod 2^64, for words below 2^54 and |small| ≤ ``largest``."""
    total = np.zeros((words.shape[1], small.shape[1]), dtype=np.uint64)
    for low, high in _sum_halves(words, small, largest):
        total += low.view(np.uint64) + (high.view(np.uint64) << np.uint64(_HALF))
    return total


def _sum_halves(words: Array, small: Array, largest: int) -> Iterator[tuple[Integers, Integers]]:
    # 2^27 · rows · largest ≤ 2^53 in every piece; the lower limit on rows is for memory only.
    step = min(max((1 << (53 - _HALF)) // max(largest, 1), 1), 1 << 14)
    for start in range(0, len(words), step):
        piece, factor = words[start : start + step], small[start : start + step].astype(np.float64)
        low = (piece & np.uint64((1 << _HALF) - 1)).astype(np.float64).T @ factor
        high = (piece >> np.uint64(_HALF)).astype(np.float64).T @ factor
        yield low.astype(np.int64), high.astype(np.int64)


def switch_modulus(residues: Integers, bits: int) -> Array:
    """Residues mod q to the nearest words mod 2^bits: round(2^bits · r / q), exactly.

    A float quotient is off by one at most; the remainder is exact because 64-bit integers wrap.
    """
    nearest = np.rint(residues * (2.0**bits / MODULUS)).astype(np.int64)
    rest = (residues << np.int64(bits)) - nearest * np.int64(MODULUS)
    nearest += (rest > MODULUS // 2).astype(np.int64) - (rest < -(MODULUS // 2)).astype(np.int64)
    return np.asarray(nearest.view(np.uint64) & np.uint64((1 << bits) - 1))


# ---- words of any width, densely ----------------------------------------------------------------


def pack_words(words: Array, bits: int) -> Array:
    """Words below 2^bits as bytes without gaps: 64 words fill ``bits`` lanes of 64 bits."""
    flat = np.ascontiguousarray(words, dtype=np.uint64).reshape(-1)
    count = len(flat)
    groups = np.zeros((-(-count // 64), 64), dtype=np.uint64)
    groups.reshape(-1)[:count] = flat
    lanes = np.zeros((len(groups), bits), dtype="<u8")
    for at in range(64):
        lane, offset = divmod(at * bits, 64)
        lanes[:, lane] |= groups[:, at] << np.uint64(offset)
        if offset + bits > 64:
            lanes[:, lane + 1] |= groups[:, at] >> np.uint64(64 - offset)
    return lanes.reshape(-1).view(np.uint8)[: count_bytes(count, bits)]


def unpack_words(data: Array, shape: Sequence[int], bits: int) -> Array:
    """What :func:`pack_words` packed."""
    count = int(np.prod(shape))
    if data.shape != (count_bytes(count, bits),):
        raise ProtocolError(
            f"{count} words of {bits} bits take {count_bytes(count, bits)} bytes. "
            f"Got {data.size} instead."
        )
    padded = np.zeros(-(-count // 64) * 8 * bits, dtype=np.uint8)
    padded[: len(data)] = data
    lanes = padded.view("<u8").reshape(-1, bits)
    words = np.empty((len(lanes), 64), dtype=np.uint64)
    for at in range(64):
        lane, offset = divmod(at * bits, 64)
        words[:, at] = lanes[:, lane] >> np.uint64(offset)
        if offset + bits > 64:
            words[:, at] |= lanes[:, lane + 1] << np.uint64(64 - offset)
    return (words.reshape(-1)[:count] & np.uint64((1 << bits) - 1)).reshape(shape)


def count_bytes(count: int, bits: int) -> int:
    """Bytes of ``count`` words of ``bits`` bits."""
    return -(-count * bits // 8)
