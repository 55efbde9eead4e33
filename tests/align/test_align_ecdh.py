"""The Diffie–Hellman protocol: vectors, blinding, refused points, kept keys; RFC 9380's hash."""

import os
import stat

import numpy as np
import pytest

from vfsl.align import CurveKey
from vfsl.align.ecdh import (
    CurveClient,
    add,
    clamp,
    compute_asked_values,
    compute_own_values,
    draw_blinding_pair,
    expand_message_xmd,
    find_fault,
    hash_and_multiply,
    hash_to_field,
    hash_to_point,
    invert_clamped,
    map_to_curve,
    multiply,
)
from vfsl.align.ids import to_rows
from vfsl.align.psi import BadElement, bind_tags, make_tags
from vfsl.errors import ConfigError, StoreError


def test_vectors(vectors):
    data = vectors("psi_ecdh")
    scalar, inverse, key = (bytes.fromhex(data[name]) for name in ("scalar", "inverse", "key"))
    assert invert_clamped(scalar) == inverse
    public = CurveKey(key).public
    assert public.hex() == data["public"]
    nonces = [bytes.fromhex(nonce) for nonce in data["nonces"]]
    context = bind_tags("ecdh", data["client"], data["server"], *nonces, public)
    for vector in data["vectors"]:
        digest = bytes.fromhex(vector["digest"])
        blinded = hash_and_multiply(scalar, digest)
        answered = multiply(key, blinded)
        value = compute_asked_values(inverse, digest, answered)
        assert blinded.hex() == vector["blinded"]
        assert answered.hex() == vector["answered"]
        assert value.hex() == vector["value"]
        assert compute_own_values(key, digest).hex() == vector["value"]
        assert make_tags(to_rows(value, 32), context).tobytes().hex() == vector["tag"]


def test_both_sides_compute_the_same_values(curve_key):
    digests = to_rows(os.urandom(32 * 50), 32)
    client = CurveClient(curve_key.public)
    elements, secret = client.blind(digests)
    values = client.values(digests, curve_key.answer(elements), secret)
    assert np.array_equal(values, curve_key.values(digests))


def test_worker_processes_compute_what_this_process_does(curve_key):
    digests = to_rows(os.urandom(32 * 2100), 32)  # more than two chunks: spread over processes
    values = curve_key.values(digests)
    assert np.array_equal(values[:10], curve_key.values(digests[:10]))
    assert np.array_equal(values[-10:], curve_key.values(digests[-10:]))


def test_blinding_differs_in_every_run(curve_key):
    digests = to_rows(bytes(32), 32)
    first, second = (CurveClient(curve_key.public).blind(digests)[0] for _ in range(2))
    assert not np.array_equal(first, second)


def test_blinding_pairs_are_clamped_inverses():
    for _ in range(20):
        scalar, inverse = draw_blinding_pair()
        assert clamp(scalar) == scalar
        assert clamp(inverse) == inverse
        assert invert_clamped(inverse) == scalar


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
    point = to_rows(x.to_bytes(32, "little"), 32)
    with pytest.raises(BadElement, match=why):
        curve_key.answer(point)
    client = CurveClient(curve_key.public)
    with pytest.raises(BadElement, match=why):
        client.values(to_rows(bytes(32), 32), point, None)


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


# Hash-to-curve against the vectors that RFC 9380 prints


def test_expand_message_of_the_rfc(vectors):
    data = vectors("rfc9380_expand_sha512")
    for vector in data["vectors"]:
        uniform = expand_message_xmd(vector["msg"].encode(), data["dst"].encode(), vector["length"])
        assert uniform.hex() == vector["uniform_bytes"]


def test_hash_to_curve_of_the_rfc(vectors):
    data = vectors("rfc9380_curve25519")
    for vector in data["vectors"]:
        message, dst = vector["msg"].encode(), data["dst"].encode()
        numbers = {name: int(value, 16) for name, value in vector.items() if name != "msg"}
        first, second = hash_to_field(message, dst)
        assert (first, second) == (numbers["u[0]"], numbers["u[1]"])
        q0, q1 = map_to_curve(first), map_to_curve(second)
        assert q0 == (numbers["Q0.x"], numbers["Q0.y"])
        assert q1 == (numbers["Q1.x"], numbers["Q1.y"])
        total = add(q0, q1)
        point = hash_to_point(message, dst)
        assert int.from_bytes(point, "little") == total[0]
        assert find_fault(point) is None
        cleared = total
        for _ in range(3):
            cleared = add(cleared, cleared)
        assert cleared == (numbers["P.x"], numbers["P.y"])


def test_points_off_the_curve_and_out_of_form_are_told():
    on_curve = sum(find_fault(x.to_bytes(32, "little")) is None for x in range(2, 402))
    assert 150 < on_curve < 250  # half of all x belong to the curve, half to its twist
    assert find_fault((9).to_bytes(32, "little")) is None
    assert find_fault((2).to_bytes(32, "little")) == "is not on the curve"
    for x in (2**255 - 19, 2**255 - 10, 2**256 - 1):
        assert find_fault(x.to_bytes(32, "little")) == "is not in canonical form"
