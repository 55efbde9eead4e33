"""The pool hands out n-th powers, each once, also to many threads."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gmpy2
import pytest

from vfsl.crypto.obfuscators import Obfuscators
from vfsl.crypto.paillier import PaillierPublicKey
from vfsl.errors import CryptoError
from vfsl.testing.schemes import SchemeCase


def test_everything_is_an_encryption_of_zero(paillier: SchemeCase) -> None:
    public = paillier.public
    assert isinstance(public, PaillierPublicKey)
    p, q = paillier.secret._primes  # type: ignore[attr-defined]
    for power, lifted in public.pool.take(5):
        # An n-th residue mod n² has order dividing φ(n).
        assert gmpy2.powmod(power, (p - 1) * (q - 1), public.square) == 1
        assert lifted == public.n * power % public.square


def test_each_number_is_used_once() -> None:
    n = gmpy2.mpz(1000003) * 1000033
    pool = Obfuscators(n, 0.0)
    pool.prepare(400)
    assert len(pool) == 400
    with ThreadPoolExecutor(8) as threads:
        taken = [pair for part in threads.map(pool.take, [60] * 8) for pair in part]
    assert len(taken) == 480
    assert len(pool) == 0
    assert len({int(power) for power, _ in taken}) == 480


def test_a_pool_cannot_be_copied(paillier: SchemeCase, bfv: SchemeCase) -> None:
    ours: tuple[Any, Any] = (paillier.public, bfv.public)
    for pool in (ours[0].pool, ours[1].packed.pool, ours[1].slots.pool):
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(CryptoError, match="pool"):
                copied(pool)


def test_two_pools_differ() -> None:
    n = gmpy2.mpz(2**127 - 1) * (2**89 - 1)
    assert Obfuscators(n, 0.0).take(3) != Obfuscators(n, 0.0).take(3)


def test_encryption_drains_the_pool(paillier: SchemeCase) -> None:
    public = paillier.scheme.load_public(paillier.public.to_wire())
    assert isinstance(public, PaillierPublicKey)
    public.prepare(3)
    public.encrypt([1, 2])
    assert len(public.pool) == 1
