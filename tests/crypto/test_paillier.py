"""Paillier against textbook vectors, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gmpy2
import numpy as np
import pytest

from vfsl.crypto import PrefixSums, make_scheme
from vfsl.crypto.paillier import (
    PaillierArray,
    PaillierPublicKey,
    check_modulus,
    decrypt_with,
    encrypt_with,
)
from vfsl.crypto.residues import SLOT_CAPACITY, make_obfuscator
from vfsl.crypto.work import using_workers
from vfsl.errors import BoundExceeded, ConfigError, CryptoError, KeyMismatch, ProtocolError
from vfsl.testing.schemes import SchemeCase
from vfsl.values import Ciphertext

VECTORS = json.loads((Path(__file__).parent / "vectors" / "paillier.json").read_text())


@pytest.mark.parametrize("key", VECTORS, ids=["toy", "2048"])
def test_vectors(key: dict[str, Any]) -> None:
    p, q = gmpy2.mpz(int(key["p"], 16)), gmpy2.mpz(int(key["q"], 16))
    n = p * q
    for case in key["cases"]:
        message, random, ciphertext = (int(case[name], 16) for name in ("m", "r", "c"))
        obfuscator = make_obfuscator(gmpy2.powmod(random, n, n * n), n)
        assert encrypt_with(message, obfuscator, n * n) == ciphertext
        assert decrypt_with((p, q, [gmpy2.mpz(ciphertext)])) == [message % n]


def test_what_goes_out_is_a_textbook_ciphertext(paillier: SchemeCase) -> None:
    public, secret = paillier.public, paillier.secret
    assert isinstance(public, PaillierPublicKey)
    message = public.encrypt([-12345]).to_wire()
    number = int.from_bytes(message.payload["numbers"].tobytes(), "big")
    p, q = (int(prime) for prime in secret._primes)  # type: ignore[attr-defined]
    n = p * q
    order = (p - 1) * (q - 1)
    opened = (pow(number, order, n * n) - 1) // n * pow(order, -1, n) % n
    assert opened == n - 12345


def test_key_sizes() -> None:
    public, _ = make_scheme("paillier").generate()
    assert isinstance(public, PaillierPublicKey)
    assert public.bits == 3072
    with pytest.raises(ConfigError, match="security"):
        make_scheme("paillier", security=80)
    with pytest.raises(KeyMismatch, match="2048"):
        make_scheme("paillier", security=112).load_public(public.to_wire())


def test_unsound_moduli_are_refused(paillier: SchemeCase) -> None:
    p, q = paillier.secret._primes  # type: ignore[attr-defined]
    prime = int(gmpy2.next_prime(2**2047))
    for bad in (int(p * q) + 1, 3 * int(gmpy2.next_prime(2**2046)), prime):
        with pytest.raises(KeyMismatch, match="modulus"):
            check_modulus(bad, 2048)
    root = int(gmpy2.next_prime(gmpy2.isqrt(gmpy2.mpz(2) ** 2047)))
    with pytest.raises(KeyMismatch, match="modulus"):
        check_modulus(root * root, 2048)
    check_modulus(int(p * q), 2048)


def test_ciphertexts_outside_the_group_are_refused(paillier: SchemeCase) -> None:
    public = paillier.public
    assert isinstance(public, PaillierPublicKey)
    payload = public.encrypt([1, 2]).to_wire().payload
    p, _ = paillier.secret._primes  # type: ignore[attr-defined]
    for bad in (0, int(public.square), int(p), int(public.n)):
        matrix = payload["numbers"].copy()
        matrix[1] = np.frombuffer(bad.to_bytes(public.width, "big"), dtype=np.uint8)
        with pytest.raises(ProtocolError, match=r"range|unit"):
            public.load(Ciphertext(payload | {"numbers": matrix}))


def test_values_far_past_int64(paillier: SchemeCase) -> None:
    values = np.array([2**900, -(2**901), 5], dtype=object)
    x = paillier.send(values)
    paillier.check(x * 2**100, values * 2**100)
    paillier.check(x.inner(np.array([[1], [2**70], [-3]], dtype=object)), x_inner(values))


def x_inner(values: Any) -> Any:
    return np.array([values[0] + 2**70 * values[1] - 3 * values[2]], dtype=object)


def test_columns_of_a_row_share_a_ciphertext(paillier: SchemeCase) -> None:
    values = paillier.values(6, 40)
    packed = paillier.public.encrypt(values, use="inner")
    assert isinstance(packed, PaillierArray)
    assert len(packed.to_wire().payload["numbers"]) == 6 * 2
    assert packed.capacity == SLOT_CAPACITY
    columns = paillier.values(6, 3)
    paillier.check(packed.inner(columns), values.T @ columns)
    with pytest.raises(BoundExceeded):
        packed * 2**50
    single = paillier.public.encrypt(values)
    with pytest.raises(CryptoError, match="layout"):
        packed + single


def test_masked_requests_are_packed(paillier: SchemeCase) -> None:
    request, _ = paillier.public.encrypt(np.arange(62)).mask()
    assert len(request.payload["numbers"]) == 2
    large = paillier.public.encrypt(np.array([2**63, 1], dtype=object))
    assert len(large.mask()[0].payload["numbers"]) == 2


@pytest.mark.slow
def test_worker_processes_agree(paillier: SchemeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfsl.crypto.work.WORTH_SECONDS", 0.0)
    values = paillier.values(70, 2)
    columns = paillier.values(70, 5)
    groups = paillier.rng.integers(-1, 4, size=(70, 7))
    with using_workers(2):
        for use in ("any", "inner"):
            x = paillier.public.encrypt(values, use=use)
            paillier.check(x.inner(columns), values.T @ columns)
            expected = np.zeros((7, 4, 2), dtype=np.int64)
            for feature, column in enumerate(groups.T):
                np.add.at(expected[feature], column[column >= 0], values[column >= 0])
            paillier.check(x.sum_by_many(groups, 4), expected)


def test_prefix_sums_and_rows_of_packed_sums(paillier: SchemeCase) -> None:
    values = paillier.values(6, 3)
    packed = paillier.public.encrypt(values, use="sum_by")
    paillier.check(packed.take([5, 0]), values[[5, 0]])
    with pytest.raises(CryptoError, match="fold"):
        packed.sum_by([0, 0, 1, 1, 2, 2], 3).mask(PrefixSums(*np.array([[0], [2], [-1]])))
    products = paillier.public.encrypt(values, use="inner").inner(np.ones((6, 2), dtype=np.int64))
    with pytest.raises(CryptoError, match="before summing"):
        products.take([0])


def test_only_what_is_shown_is_packed_and_sent(paillier: SchemeCase) -> None:
    sums = paillier.public.encrypt(paillier.values(80)).sum_by(np.arange(80), 80)
    asked = PrefixSums(np.zeros(80, dtype=np.int64), np.arange(80), np.full(80, -1))
    assert len(sums.mask(asked)[0].payload["numbers"]) == 3
    assert len(sums.mask(asked, np.arange(80) < 30)[0].payload["numbers"]) == 1
