"""The blind-RSA protocol: vectors, blinding, faults, refused numbers and keys, the pool."""

import os
import stat
from math import gcd

import gmpy2
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from vfsl.align import BlindingPool, RsaKey
from vfsl.align.blind_rsa import (
    EXPONENT,
    RsaClient,
    hash_to_modulus,
    invert_all,
    make_challenges,
    multiply_pairs,
)
from vfsl.align.ids import to_rows
from vfsl.align.psi import BadElement, bind_tags, hash_element, make_tags
from vfsl.errors import ConfigError, CryptoError, StoreError


def key_of(p: int, q: int) -> RsaKey:
    d = pow(EXPONENT, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(EXPONENT, p * q)
    numbers = rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), public)
    return RsaKey(numbers.private_key())


@pytest.fixture(scope="module")
def client(rsa_key):
    return RsaClient(rsa_key.public, rsa_key.proof(), security=112)


def test_vectors(vectors):
    data = vectors("psi_blind_rsa")
    key = key_of(int(data["p"], 16), int(data["q"], 16))
    nonces = [bytes.fromhex(nonce) for nonce in data["nonces"]]
    context = bind_tags("blind-rsa", data["client"], data["server"], *nonces, key.public)
    for vector in data["vectors"]:
        digest = bytes.fromhex(vector["digest"])
        hashed = hash_to_modulus(to_rows(digest, 32), key.modulus)
        assert f"{hashed[0]:0512x}" == vector["hash"]
        r = gmpy2.mpz(vector["r"], 16)
        power = gmpy2.powmod(r, EXPONENT, key.modulus)
        elements = multiply_pairs(hashed, [power], key.modulus)
        assert f"{elements[0]:0512x}" == vector["blinded"]
        answers = key.sign(elements)
        assert f"{answers[0]:0512x}" == vector["answered"]
        signature = multiply_pairs(answers, invert_all([r], key.modulus), key.modulus)[0]
        assert f"{signature:0512x}" == vector["signature"]
        value = hash_element(b"blind-rsa", digest, signature.to_bytes(256, "big"))
        assert value.hex() == vector["value"]
        assert key.values(to_rows(digest, 32)).tobytes() == value
        assert make_tags(to_rows(value, 32), context).tobytes().hex() == vector["tag"]


def test_both_sides_compute_the_same_values(rsa_key, client):
    digests = to_rows(os.urandom(32 * 40), 32)
    elements, secret = client.blind(digests)
    values = client.values(digests, rsa_key.answer(elements), secret)
    assert np.array_equal(values, rsa_key.values(digests))


def test_default_key_has_3072_bits():
    key = RsaKey.generate()
    assert key.modulus.bit_length() == 3072
    digests = to_rows(os.urandom(64), 32)
    client = RsaClient(key.public, key.proof())
    elements, secret = client.blind(digests)
    values = client.values(digests, key.answer(elements), secret)
    assert np.array_equal(values, key.values(digests))


def test_any_id_explains_a_blinded_value(rsa_key, client):
    """Perfect hiding: for every other id there is a factor r that gives the same value."""
    digests = to_rows(os.urandom(32 * 2), 32)
    element = gmpy2.mpz.from_bytes(client.blind(digests[:1])[0].tobytes(), "big")
    n = rsa_key.modulus
    other = hash_to_modulus(digests[1:], n)[0]
    r = rsa_key.sign([element * gmpy2.invert(other, n) % n])[0]
    assert multiply_pairs([other], [gmpy2.powmod(r, EXPONENT, n)], n) == [element]


def test_hashes_of_two_keys_and_purposes_are_unrelated(rsa_key):
    digests = to_rows(bytes(32), 32)
    n = rsa_key.modulus
    assert hash_to_modulus(digests, n) != hash_to_modulus(digests, n, b"key proof")
    assert hash_to_modulus(digests, n) != hash_to_modulus(digests, n + 2)


def test_a_faulty_signature_is_not_sent(rsa_key, monkeypatch):
    def half_wrong(elements):
        return [gmpy2.powmod(element, 3, rsa_key.modulus) for element in elements]

    monkeypatch.setattr(rsa_key, "sign_crt", half_wrong)
    with pytest.raises(CryptoError, match="faulty hardware"):
        rsa_key.answer(to_rows((5).to_bytes(rsa_key.width, "big"), rsa_key.width))


def test_the_private_exponent_never_works_on_the_clients_number(rsa_key, monkeypatch):
    seen = []
    honest = rsa_key.sign_crt
    monkeypatch.setattr(rsa_key, "sign_crt", lambda e: seen.append(list(e)) or honest(e))
    for _ in range(2):
        rsa_key.answer(to_rows((5).to_bytes(rsa_key.width, "big"), rsa_key.width))
    assert seen[0] != seen[1]
    assert [5] not in seen


@pytest.mark.parametrize("which", ["zero", "modulus", "larger", "factor"])
def test_bad_numbers_are_refused(rsa_key, client, which):
    n = int(rsa_key.modulus)
    number = {"zero": 0, "modulus": n, "larger": n + 5, "factor": 6 * int(rsa_key._p)}[which]
    why = "shares a factor" if which == "factor" else "not between 1 and the modulus"
    good = (7).to_bytes(rsa_key.width, "big")
    rows = to_rows(good + number.to_bytes(rsa_key.width, "big"), rsa_key.width)
    with pytest.raises(BadElement, match=why):
        rsa_key.answer(rows)
    digests = to_rows(bytes(64), 32)
    with pytest.raises(BadElement, match=why):
        client.values(digests, rows, to_rows(good * 2, rsa_key.width))


def test_a_wrong_signature_is_noticed(rsa_key, client):
    digests = to_rows(os.urandom(64), 32)
    elements, secret = client.blind(digests)
    answers = np.array(rsa_key.answer(elements))
    with pytest.raises(BadElement, match="signature that its key did not make"):
        client.values(digests, answers[::-1], secret)


def test_keys_that_are_too_short_are_refused(rsa_key):
    with pytest.raises(ConfigError, match="must be 128"):
        RsaKey.generate(security=80)
    with pytest.raises(ConfigError, match="at least 2048 bits"):
        RsaKey(rsa.generate_private_key(EXPONENT, 1024))
    with pytest.raises(BadElement, match="at least 3072 were expected"):
        RsaClient(rsa_key.public, rsa_key.proof(), security=128)


def test_a_key_that_does_not_hide_is_refused(rsa_key):
    """e divides p − 1: a blinded value would tell whether H(c) is an e-th power."""
    step = 2 * EXPONENT
    p = (3 * 2**1022 // step) * step + 1
    while not gmpy2.is_prime(p):
        p += step
    n = p * int(rsa_key._q)
    width = (n.bit_length() + 7) // 8
    challenges = make_challenges(gmpy2.mpz(n))
    # The best that such a server can show: roots where they exist, which is almost never.
    exponent = pow(EXPONENT, -1, (p - 1) // EXPONENT * (int(rsa_key._q) - 1))
    roots = b"".join(int(gmpy2.powmod(c, exponent, n)).to_bytes(width, "big") for c in challenges)
    with pytest.raises(BadElement, match="valid proof"):
        RsaClient(n.to_bytes(width, "big"), roots, security=112)


def test_a_key_with_a_small_factor_or_no_proof_is_refused(rsa_key):
    n = 65521 * 2**2040 + 65521
    assert gcd(n, 65521) == 65521
    with pytest.raises(BadElement, match="small factor"):
        RsaClient(n.to_bytes(257, "big"), b"", security=112)
    for proof in (b"", rsa_key.proof()[:-1], bytes(8 * rsa_key.width)):
        with pytest.raises(BadElement, match="valid proof"):
            RsaClient(rsa_key.public, proof, security=112)


def test_keys_are_kept_privately(tmp_path, rsa_key, curve_key):
    path = tmp_path / "key.pem"
    rsa_key.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert RsaKey.load(path).public == rsa_key.public
    curve_key.save(path)
    with pytest.raises(StoreError, match="another kind of key"):
        RsaKey.load(path)
    path.write_bytes(b"no key")
    with pytest.raises(StoreError, match="damaged"):
        RsaKey.load(path)


def test_pool_hands_out_each_factor_once(rsa_key):
    pool = BlindingPool(rsa_key.public)
    pool.fill(20)
    pool.fill(5)
    assert len(pool) == 25
    taken = [pool.take(count) for count in (7, 15, 10)]  # the last seven are made on demand
    assert len(pool) == 0
    assert [len(powers) for powers, _ in taken] == [7, 15, 10]
    all_powers = np.concatenate([powers for powers, _ in taken])
    assert len(np.unique(all_powers, axis=0)) == 32
    n = rsa_key.modulus
    for powers, inverses in taken:
        for power, inverse in zip(powers, inverses, strict=True):
            r = gmpy2.invert(gmpy2.mpz.from_bytes(inverse.tobytes(), "big"), n)
            assert gmpy2.powmod(r, EXPONENT, n) == gmpy2.mpz.from_bytes(power.tobytes(), "big")


def test_pool_of_another_key_is_refused(rsa_key, vectors):
    data = vectors("psi_blind_rsa")
    other = key_of(int(data["p"], 16), int(data["q"], 16))
    with pytest.raises(ConfigError, match="another key"):
        RsaClient(rsa_key.public, rsa_key.proof(), 112, BlindingPool(other.public))
