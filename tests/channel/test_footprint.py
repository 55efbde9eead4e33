"""Memory of messages: what a hostile frame can take, and that reader and writer count the same."""

import gc
import struct
import sys
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from test_wire import VALUES

from vfsl.channel import wire
from vfsl.errors import UnsupportedValue, WireError
from vfsl.values import Aggregate, Ciphertext

MEGABYTE = 1_000_000
OVERHEAD = 1 << 16  # what the interpreter itself takes meanwhile


def count(number):
    return struct.pack("<I", number)


def framed(value):
    """A frame around the bytes of a value; its name is empty."""
    body = count(0) + value
    return struct.pack("<2sBBIQ", b"VF", wire.VERSION, 0, zlib.crc32(body), len(body)) + body


def many(item, size):
    number = size // len(item)
    return b"l" + count(number) + item * number


def many_keys(size):
    number = size // 13
    keys = b"".join(count(8) + b"%08x" % place + b"N" for place in range(number))
    return b"m" + count(number) + keys


def many_arrays(size):
    """Empty arrays; the first one's padding differs, since it begins elsewhere."""
    number = size // 16
    one = b"a\x05\x01" + struct.pack("<Q", 0)
    first = one + bytes(-(4 + 5 + len(one)) % 8)
    return b"l" + count(number) + first + (one + bytes(5)) * (number - 1)


def text(start, size):
    data = start.encode()
    data += b"a" * (size - len(data))
    return b"s" + count(len(data)) + data


EMOJI = "\N{GRINNING FACE}"
# By name: the value of about so many bytes, and whether it is refused.
SHAPES = {
    "None": (lambda size: many(b"N", size), True),
    "truth values": (lambda size: many(b"T", size), True),
    "integers that exist once": (lambda size: many(b"i" + count(1) + b"\x05", size), False),
    "small integers": (lambda size: many(b"i" + count(2) + b"\xff\x7f", size), True),
    "large integers": (lambda size: many(b"i" + count(60_000) + b"\x01" * 60_000, size), False),
    "floats": (lambda size: many(b"d" + struct.pack("<d", 1.5), size), True),
    "empty texts": (lambda size: many(b"s" + count(0), size), False),
    "short texts": (lambda size: many(b"s" + count(2) + b"ab", size), True),
    "short wide texts": (lambda size: many(b"s" + count(4) + EMOJI.encode(), size), True),
    "short bytes": (lambda size: many(b"b" + struct.pack("<Q", 1) + b"a", size), True),
    "empty lists": (lambda size: many(b"l" + count(0), size), True),
    "nested lists": (lambda size: many((b"l" + count(1)) * 9 + b"l" + count(0), size), True),
    "empty dicts": (lambda size: many(b"m" + count(0), size), True),
    "dicts of one key": (lambda size: many(b"m" + count(1) + count(1) + b"aN", size), True),
    "many short keys": (many_keys, True),
    "empty arrays": (many_arrays, True),
    "wrappers": (lambda size: many(b"p\x00N", size), True),
    "ASCII text": (lambda size: text("a", size), False),
    "Latin text": (lambda size: text("é", size), False),
    "text with one wider character": (lambda size: text("é木", size), False),
    "text with one widest character": (lambda size: text("é木" + EMOJI, size), True),
    "bytes": (lambda size: b"b" + struct.pack("<Q", size) + bytes(size), False),
    "one array": (lambda size: b"a\x05\x01" + struct.pack("<Q", size) + bytes(1 + size), False),
}


def peak_of(frame):
    """Bytes of memory that reading a frame takes at most, and whether it was refused."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        try:
            value, refused = wire.decode(frame), False
        except WireError as error:
            value, refused = None, "of memory" in str(error)
            if not refused:
                raise
        del value
        return tracemalloc.get_traced_memory()[1] - before, refused
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_frame_of_one_megabyte_takes_four_times_its_size_at_most(shape):
    make, hostile = SHAPES[shape]
    frame = framed(make(MEGABYTE))
    peak, refused = peak_of(frame)
    assert refused is hostile
    assert peak <= wire.MEMORY_FACTOR * len(frame) + wire.SPARE_MEMORY + OVERHEAD


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_frame_of_16_megabytes_takes_70_at_most(shape):
    make, hostile = SHAPES[shape]
    frame = framed(make(16 * MEGABYTE))
    peak, refused = peak_of(frame)
    assert refused is hostile
    assert peak <= wire.MEMORY_FACTOR * len(frame) + wire.SPARE_MEMORY + OVERHEAD
    assert peak < 70 * MEGABYTE


@pytest.mark.parametrize("shape", [name for name, (_, hostile) in SHAPES.items() if hostile])
def test_without_the_limit_the_same_frames_take_more(shape, monkeypatch):
    """The control: these frames are refused for a reason."""
    frame = framed(SHAPES[shape][0](MEGABYTE // 20))
    monkeypatch.setattr(wire, "allow_memory", lambda size: 1 << 40)
    peak, refused = peak_of(frame)
    assert not refused
    # A float is 24 bytes and its place 8, for 9 on the wire; only the allocator makes it 40.
    assert peak > (3.5 if shape == "floats" else wire.MEMORY_FACTOR) * len(frame)


@given(VALUES)
def test_reader_and_writer_count_the_same(value):
    writer = wire._Writer(wire.MAX_BYTES)
    writer.name("name")
    writer.value(value, depth=0)
    reader = wire._Reader(memoryview(b"".join(writer.parts)))
    reader.text()
    reader.value(depth=0)
    assert reader._account.peak == writer.account.peak


@pytest.mark.parametrize(
    "value",
    [
        [1000] * 100_000,
        [0.5] * 100_000,
        [f"{place}" for place in range(100_000)],
        [{} for _ in range(100_000)],
        Aggregate([np.zeros(0)] * 100_000),
        {f"key {place}": None for place in range(100_000)},
        "é木" + EMOJI + "a" * MEGABYTE,
    ],
    ids=["integers", "floats", "texts", "dicts", "arrays", "keys", "wide text"],
)
def test_what_the_reader_would_refuse_is_not_sent(value, monkeypatch):
    with pytest.raises(UnsupportedValue, match=r"'name' .* at its receiver, .* numpy array"):
        wire.encode("name", value)
    monkeypatch.setattr(wire, "allow_memory", lambda size: 1 << 40)
    frame = wire.encode("name", value)
    monkeypatch.undo()
    with pytest.raises(WireError, match="of memory"):
        wire.decode(frame)


@pytest.mark.parametrize(
    "value",
    [
        [1000, 0.5, "a", {}, [], np.zeros(0)] * 200,
        list(range(257)) * 1000,
        [bytes(32)] * 100_000,
        [f"customer-{place:012d}" for place in range(100_000)],
        Ciphertext(
            [
                {
                    "scheme": "plain",
                    "key": "0" * 64,
                    "form": "array",
                    "use": "sum_by",
                    "shape": np.array([3]),
                    "bound": b"\xff\xff",
                    "values": np.zeros((3, 16), dtype=np.uint8),
                }
                for _ in range(10_000)
            ]
        ),
    ],
    ids=["short", "integers that exist once", "digests", "long ids", "tiny ciphertexts"],
)
def test_what_protocols_send_passes(value):
    name, came = wire.decode(wire.encode("name", value))
    assert name == "name"
    assert type(came) is type(value)


def test_the_sizes_are_those_of_this_python_or_larger():
    rounded = wire._round_up
    real = sys.getsizeof
    assert rounded(real(1.5)) <= wire.FLOAT_SIZE
    for number in (0, 1, 7, 1000):
        assert wire.size_of_list(number) >= real([None] * number)
        assert wire.size_of_bytes(number) >= rounded(real(bytes(number))) * (number > 0)
    for number in (-6, 257, 2**30 - 1, 2**30, 2**60, -(2**90), 2**1000):
        assert wire.size_of_integer(number) >= rounded(real(number))
    for number in (0, 1, 5, 6, 10, 11, 85, 86, 170, 171, 21_845, 21_846, 50_000):
        made = {}
        for place in range(number):
            made[str(place)] = None
        assert wire.size_of_dict(number) >= real(made)
        assert wire.size_of_growing_dict(number) >= wire.size_of_dict(number)
    for words in ("ab", "aé", "a木", "a" + EMOJI, "é" * 1000, "木" * 1000, EMOJI * 1000):
        data = words.encode()
        size = wire.size_of_text(max(data), len(data), len(words))
        assert size >= rounded(real(words))
        assert wire.size_of_reading(max(data), len(data)) >= real(words)
    for axes in range(9):
        assert wire.size_of_array(axes) >= real(np.zeros((0,) * axes)[...]) - 8 * (axes == 0)


def test_values_that_exist_once_do():
    def again(value):
        return wire.decode(wire.encode("", value))[1]

    for value in (None, True, False, -5, 0, 256, "", b""):
        assert again(value) is again(value)
        assert again(value) is value
