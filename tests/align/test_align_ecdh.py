"""The Diffie–Hellman method: vectors, blinding, refused points, kept keys."""

import os
import stat

import numpy as np
import pytest

from vfsl.align import CurveKey
from vfsl.align.byterows import rows_of
from vfsl.align.ecdh import (
    CurveClient,
    blinding_pair,
    clamp,
    clamped_inverse,
    hash_and_multiply,
    multiply,
    own_values,
    unblinded_values,
)
from vfsl.align.methods import BadElement, run_context, tags_of
from vfsl.errors import ConfigError, StoreError


def test_vectors(vectors):
    data = vectors("psi_ecdh")
    scalar, inverse, key = (bytes.fromhex(data[name]) for name in ("scalar", "inverse", "key"))
    assert clamped_inverse(scalar) == inverse
    public = CurveKey(key).public
    assert public.hex() == data["public"]
    nonces = [bytes.fromhex(nonce) for nonce in data["nonces"]]
    context = run_context("ecdh", data["client"], data["server"], *nonces, public)
    for vector in data["vectors"]:
        digest = bytes.fromhex(vector["digest"])
        blinded = hash_and_multiply(scalar, digest)
        answered = multiply(key, blinded)
        value = unblinded_values(inverse, digest, answered)
        assert blinded.hex() == vector["blinded"]
        assert answered.hex() == vector["answered"]
        assert value.hex() == vector["value"]
        assert own_values(key, digest).hex() == vector["value"]
        assert tags_of(rows_of(value, 32), context).tobytes().hex() == vector["tag"]


def test_both_sides_compute_the_same_values(curve_key):
    digests = rows_of(os.urandom(32 * 50), 32)
    client = CurveClient(curve_key.public)
    elements, secret = client.blind(digests)
    values = client.values(digests, curve_key.answer(elements), secret)
    assert np.array_equal(values, curve_key.values(digests))


def test_worker_processes_compute_what_this_process_does(curve_key):
    digests = rows_of(os.urandom(32 * 2100), 32)  # more than two chunks: spread over processes
    values = curve_key.values(digests)
    assert np.array_equal(values[:10], curve_key.values(digests[:10]))
    assert np.array_equal(values[-10:], curve_key.values(digests[-10:]))


def test_blinding_differs_in_every_run(curve_key):
    digests = rows_of(bytes(32), 32)
    first, second = (CurveClient(curve_key.public).blind(digests)[0] for _ in range(2))
    assert not np.array_equal(first, second)


def test_blinding_pairs_are_clamped_inverses():
    for _ in range(20):
        scalar, inverse = blinding_pair()
        assert clamp(scalar) == scalar
        assert clamp(inverse) == inverse
        assert clamped_inverse(inverse) == scalar


ORDER_8 = 325606250916557431795983626356110631294008115727848805560023387167927233504


@pytest.mark.parametrize(
    ("x", "why"),
    [
        (0, "small order"),
        (1, "small order"),
        (ORDER_8, "small order"),
        (2**255 - 20, "not on the curve"),  # -1: order 4 on the twist
        (2, "not on the curve"),
        (2**255 - 19, "canonical"),
        (2**255 - 18, "canonical"),
        (2**256 - 1, "canonical"),
    ],
)
def test_bad_points_are_refused(curve_key, x, why):
    point = rows_of(x.to_bytes(32, "little"), 32)
    with pytest.raises(BadElement, match=why):
        curve_key.answer(point)
    client = CurveClient(curve_key.public)
    with pytest.raises(BadElement, match=why):
        client.values(rows_of(bytes(32), 32), point, None)


def test_a_key_that_is_no_point_is_refused():
    for public in (bytes(31), (2).to_bytes(32, "little"), b"\xff" * 32):
        with pytest.raises(BadElement, match="key that is not a point"):
            CurveClient(public)


def test_keys_are_kept_privately(tmp_path, curve_key):
    path = tmp_path / "key.pem"
    curve_key.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert CurveKey.load(path).public == curve_key.public
    path.write_bytes(b"no key")
    with pytest.raises(StoreError, match="damaged"):
        CurveKey.load(path)
    with pytest.raises(StoreError, match="does not exist"):
        CurveKey.load(tmp_path / "other.pem")


def test_unknown_security_is_refused():
    with pytest.raises(ConfigError, match="must be 128 or 112"):
        CurveKey.generate(security=80)
