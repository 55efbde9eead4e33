"""A pool of r^n mod n²: Paillier's randomness, computed ahead and used once.

Why powers of one base are enough. A pool draws h = r0^n for a random unit r0 and hands out h^x
with x uniform below 2^(|n| + 128), which is within 2^-127 of uniform in the group that h
generates. Given a DCR challenge z (an n-th residue, or any unit mod n²), let the pool's base be
z^n and encrypt by (1 + n)^m · z^x. If z is an n-th residue, z generates the same group as z^n,
since n is prime to the order: the encryption is distributed as ours. Otherwise
z = u · (1 + n)^s with uniform s, and s·x mod n hides m perfectly. Telling messages apart would
therefore decide DCR. Shorter exponents would need a further assumption; they are not used.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from functools import lru_cache

import gmpy2

from vfsl.crypto.pool import Pool
from vfsl.crypto.residues import Comb, Residue
from vfsl.crypto.work import shared, workers
from vfsl.parallel import spread

STATISTICAL_BITS = 128
CHUNK = 64
# A comb needs some 230 to 360 products a power.
PRODUCTS_A_POWER = 300

# r^n, and n · (r^n mod n), so that encrypting m costs one short product: r^n + m · the second.
Obfuscator = tuple[Residue, Residue]


class Obfuscators(Pool[Obfuscator]):
    """Random n-th powers under one modulus, filled in worker processes if they are many."""

    def __init__(self, n: Residue, seconds_a_product: float) -> None:
        super().__init__()
        self._n = n
        self._seconds = seconds_a_product * PRODUCTS_A_POWER
        self._lock = threading.Lock()
        self._base: Residue = None

    def _fresh(self, count: int) -> list[Obfuscator]:
        tasks = [
            (self._n, self._get_base(), min(CHUNK, count - start))
            for start in range(0, count, CHUNK)
        ]
        chunks = shared(random_powers, tasks, count * self._seconds)
        return [pair for chunk in chunks for pair in chunk]

    def _elsewhere(self, count: int) -> Iterator[list[Obfuscator]]:
        tasks = [(self._n, self._get_base(), CHUNK)] * -(-count // CHUNK)
        return spread(random_powers, tasks, workers=max(workers(), 2))

    def _get_base(self) -> Residue:
        with self._lock:
            if self._base is None:
                self._base = gmpy2.powmod(random_unit(self._n), self._n, self._n * self._n)
            return self._base


def random_unit(n: Residue) -> Residue:
    """A uniform unit modulo n."""
    while True:
        value = gmpy2.mpz(secrets.randbelow(int(n)))
        if gmpy2.gcd(value, n) == 1:
            return value


def random_powers(task: tuple[Residue, Residue, int]) -> list[Obfuscator]:
    """``count`` random powers of ``base`` modulo n²."""
    n, base, count = task
    comb = _comb(n, base)
    bits = n.bit_length() + STATISTICAL_BITS
    return [as_obfuscator(comb.power(secrets.randbits(bits)), n) for _ in range(count)]


def as_obfuscator(power: Residue, n: Residue) -> Obfuscator:
    """r^n together with n · r^n mod n²."""
    return power, power % n * n


@lru_cache(maxsize=4)
def _comb(n: Residue, base: Residue) -> Comb:
    return Comb(base, n * n, n.bit_length() + STATISTICAL_BITS)
