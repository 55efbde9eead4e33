"""The wire format: round trips, and bytes that are damaged by accident or on purpose."""

import random
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vfsl.channel import wire
from vfsl.errors import UnsupportedValue, VfslError, WireError
from vfsl.values import Aggregate, Ciphertext, Masked, Protected, SealedIds

DTYPES = st.sampled_from([np.dtype(name) for name in ("?", "i1", "i8", "u1", "u8", "f4", "f8")])
ARRAYS = DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0)))
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary() | ARRAYS
VALUES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXT, inner, max_size=4)
        | st.builds(
            lambda kind, payload: kind(payload), st.sampled_from([Ciphertext, Masked]), inner
        )
    ),
    max_leaves=8,
)


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    if isinstance(one, Protected):
        return type(one) is type(other) and same(one.payload, other.payload)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    return type(one) is type(other) and one == other


@given(TEXT, VALUES)
def test_round_trip(name, value):
    came_name, came = wire.decode(wire.encode(name, value))
    assert came_name == name
    assert same(value, came)


@given(VALUES, st.data())
def test_one_flipped_bit_is_always_noticed(value, data):
    frame = bytearray(wire.encode("name", value))
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError):
        wire.decode(bytes(frame))


@given(VALUES, st.data())
def test_truncated_and_extended_frames_are_refused(value, data):
    frame = wire.encode("name", value)
    cut = data.draw(st.integers(0, len(frame) - 1))
    for damaged in (frame[:cut], frame + b"\0"):
        with pytest.raises(WireError):
            wire.decode(damaged)


def framed(body):
    """A frame with a right checksum around any body, to reach the decoder behind it."""
    return struct.pack("<2sBBIQ", b"VF", wire.VERSION, 0, zlib.crc32(body), len(body)) + body


def test_fuzzed_bytes_never_crash_the_decoder():
    """100,000 random, mutated and spliced bodies behind a right checksum."""
    random_source = random.Random(7)
    arrays = {"a": np.arange(5), "b": [np.ones((2, 2)), b"xyz", 2**70], "c": SealedIds("text")}
    seeds = [
        wire.encode("n", value)[16:] for value in (arrays, None, "ü", [[[1.5]]], np.array(True))
    ]
    accepted = 0
    for case in range(100_000):
        body = bytearray(random_source.choice(seeds))
        match case % 4:
            case 0:
                body = bytearray(random_source.randbytes(random_source.randrange(60)))
            case 1:
                for _ in range(random_source.randrange(1, 5)):
                    body[random_source.randrange(len(body))] = random_source.randrange(256)
            case 2:
                del body[random_source.randrange(len(body)) :]
                body += random_source.choice(seeds)[random_source.randrange(10) :]
            case 3:
                at = random_source.randrange(len(body))
                body[at:at] = struct.pack("<Q", random_source.choice([2**63, 2**32 - 1, 2**31, 0]))
        try:
            name, value = wire.decode(framed(bytes(body)))
        except VfslError:
            continue
        accepted += 1
        assert same(value, wire.decode(wire.encode(name, value))[1])
    assert accepted > 0  # otherwise the mutations are too coarse to test anything


def body_of(value):
    return wire.encode("", value)[16:]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\0\0\0\0d\x00", "middle of a value"),
        (b"\0\0\0\0" + b"l\x01\0\0\0" * 40 + b"N", "nests deeper"),
        (b"\0\0\0\0l\xff\xff\xff\xff", "more items"),
        (b"\0\0\0\0m\x02\0\0\0\x01\0\0\0xN\x01\0\0\0xN", "repeated key"),
        (b"\0\0\0\0a\x03\x02" + struct.pack("<QQ", 0, 2**62), "larger than any memory"),
        (b"\0\0\0\0a\x63\x01" + struct.pack("<Q", 1), "unknown type"),
        (b"\0\0\0\0p\x09N", "unknown protection"),
        (b"\0\0\0\0?", "unknown type tag"),
        (b"\0\0\0\0i\0\0\0\0", "integer of 0 bytes"),
        (b"\0\0\0\0s\x01\0\0\0\xff", "not UTF-8"),
        (body_of(np.array([True]))[:-1] + b"\x02", "neither true nor false"),
    ],
)
def test_malformed_bodies_are_named(body, words):
    with pytest.raises(WireError, match=words):
        wire.decode(framed(body))


def test_other_versions_and_sizes_are_refused():
    frame = bytearray(wire.encode("n", 1))
    frame[2] = 9
    with pytest.raises(WireError, match="wire version 9"):
        wire.decode(frame)
    with pytest.raises(WireError, match="limit is 100"):
        wire.decode(wire.encode("n", bytes(500)), max_bytes=100)
    with pytest.raises(UnsupportedValue, match="100 bytes"):
        wire.encode("n", bytes(500), max_bytes=100)
    with pytest.raises(UnsupportedValue, match="integer of"):
        wire.encode("n", 1 << (8 * wire.MAX_INTEGER_BYTES))


def test_arrays_are_aligned_views_without_copies():
    frame = wire.encode("odd", ["x", np.arange(1000.0), Aggregate(np.arange(3))])
    _, (_, array, aggregate) = wire.decode(frame)
    assert array.flags.aligned
    assert np.shares_memory(array, np.frombuffer(frame, np.uint8))
    assert not array.flags.writeable
    assert aggregate.payload.tolist() == [0, 1, 2]
