"""Messages as bytes: typed, versioned, checked and length-limited; never pickle.

frame  = "VF" | version | 0 | crc32 of the body | length of the body | body
body   = name, value        each value: a one-byte tag, then its content, numbers little-endian
Array data starts at a multiple of eight bytes, so that a decoded array is a view, not a copy.
The checksum catches accidents on unsealed channels; forgery is the sealing layer's business.

Memory. A hostile frame could name millions of tiny values, each of which is far larger as an object
than on the wire. What a message takes in memory once it is read is therefore limited to four times
its size. Reader and writer add up the same sizes in the same order: the reader refuses before it
takes the memory, the writer refuses what the reader would.
"""

from __future__ import annotations

import math
import struct
import zlib
from functools import lru_cache
from typing import Any, Final

import numpy as np

from vfsl.errors import UnsupportedValue, WireError
from vfsl.values import PROTECTED, Array, Protected, Wire

VERSION: Final = 1
MAX_BYTES: Final = 1 << 30
MAX_DEPTH: Final = 16
MAX_INTEGER_BYTES: Final = 1 << 16
# What a message may take in memory: this many times its size, plus a little, so that short messages
# may consist of small values only.
MEMORY_FACTOR: Final = 4
SPARE_MEMORY: Final = 1 << 18
# Dict keys that repeat within a message are read once: at most this many, up to this length.
KEPT_KEYS: Final = 64
KEPT_KEY_BYTES: Final = 64

_HEADER = struct.Struct("<2sBBIQ")
_MAGIC = b"VF"
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_F64 = struct.Struct("<d")
_ALIGNMENT = 8
_LARGE = 1 << 12

# The position is the code on the wire: append, never reorder.
_DTYPES = [
    np.dtype(name)
    for name in ("?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f4", "<f8")
]
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_PROTECTED_CODES = {kind: code for code, kind in enumerate(PROTECTED)}


def encode(name: str, value: Wire, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The frame of one message; what may not cross a channel raises ``UnsupportedValue``."""
    writer = _Writer(max_bytes)
    writer.name(name)
    writer.value(value, depth=0)
    taken, limit = writer.account.peak, allow_memory(writer.size)
    if taken > limit:
        raise UnsupportedValue(
            f"Message {name!r} of {writer.size:,} bytes would take {taken:,} bytes of memory at "
            f"its receiver, who allows {limit:,}; send a long list as a numpy array or as one "
            "block of bytes."
        )
    crc = 0
    for part in writer.parts:
        crc = zlib.crc32(part, crc)
    header = _HEADER.pack(_MAGIC, VERSION, 0, crc, writer.size)
    return b"".join([header, *writer.parts])


def decode(frame: bytes | memoryview, *, max_bytes: int = MAX_BYTES) -> tuple[str, Wire]:
    """Name and value of a frame; arrays are read-only views of it."""
    view = memoryview(frame)
    if len(view) < _HEADER.size:
        raise WireError(f"A message of {len(view)} bytes is shorter than its header.")
    magic, version, reserved, crc, size = _HEADER.unpack(view[: _HEADER.size])
    body = view[_HEADER.size :]
    if magic != _MAGIC or reserved != 0:
        raise WireError("These bytes are not a vfsl message.")
    if version != VERSION:
        raise WireError(f"The message has wire version {version}; this vfsl reads {VERSION}.")
    if size > max_bytes:
        raise WireError(f"The message announces {size} bytes; the limit is {max_bytes}.")
    if size != len(body):
        raise WireError(f"The message announces {size} bytes but has {len(body)}.")
    if zlib.crc32(body) != crc:
        raise WireError("The message is damaged: its checksum does not match.")
    reader = _Reader(body)
    name = reader.text()
    value = reader.value(depth=0)
    reader.end()
    return name, value


class _Writer:
    """Collects the parts of a body; large buffers are copied once, by the final join."""

    def __init__(self, max_bytes: int) -> None:
        # Messages consist of many small values, which go straight into one buffer.
        self._small = bytearray()
        self.parts: list[bytes | bytearray | memoryview] = [self._small]
        self.size = 0
        self.account = Account()
        self._keys: set[str] = set()
        self._max_bytes = max_bytes

    def add(self, part: bytes | memoryview) -> None:
        self.size += len(part)
        if self.size > self._max_bytes:
            raise UnsupportedValue(
                f"The message has more than {self._max_bytes} bytes; send it in several parts."
            )
        if len(part) < _LARGE:
            self._small += part
        else:
            self._small = bytearray()
            self.parts += [part, self._small]

    def name(self, text: str) -> None:
        self._text(text, _pack_name(text))

    def _text(self, text: str, packed: bytes) -> None:
        self.add(packed)
        size = len(packed) - _U32.size
        widest = 0 if text.isascii() else max(packed[_U32.size :])
        self.account.reach(size_of_reading(widest, size))
        self.account.hold(size_of_text(widest, size, len(text)))

    def value(self, value: Wire, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise UnsupportedValue(f"The message nests deeper than {MAX_DEPTH} levels.")
        match value:
            case str():
                self.add(b"s")
                self._text(value, _pack(value))
            case np.ndarray():
                self._array(value)
            case dict():
                self._mapping(value, depth)
            case None:
                self.add(b"N")
            case bool() | np.bool_():
                self.add(b"T" if value else b"F")
            case int() | np.integer():
                self._integer(int(value))
            case float() | np.floating():
                self.add(b"d" + _F64.pack(float(value)))
                self.account.hold(FLOAT_SIZE)
            case bytes():
                self.add(b"b" + _U64.pack(len(value)))
                self.add(value)
                self.account.hold(size_of_bytes(len(value)))
            case list() | tuple():
                self.add(b"l" + _U32.pack(len(value)))
                self.account.hold(size_of_list(len(value)))
                for item in value:
                    self.value(item, depth + 1)
            case Protected() if type(value) in _PROTECTED_CODES:
                self.add(b"p" + bytes([_PROTECTED_CODES[type(value)]]))
                self.account.hold(PROTECTED_SIZE)
                self.value(value.payload, depth + 1)
            case _:
                raise UnsupportedValue(
                    f"A value of type {type(value).__name__} may not cross a channel; send "
                    "numbers, text, bytes, numpy arrays, or lists and dicts of those."
                )

    def _integer(self, value: int) -> None:
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if len(data) > MAX_INTEGER_BYTES:
            raise UnsupportedValue(
                f"An integer of {len(data)} bytes may not cross a channel; the limit is "
                f"{MAX_INTEGER_BYTES}."
            )
        self.add(b"i" + _U32.pack(len(data)) + data)
        self.account.hold(size_of_integer(value))

    def _mapping(self, value: dict[Any, Any], depth: int) -> None:
        self.add(b"m" + _U32.pack(len(value)))
        self.account.reach(size_of_growing_dict(len(value)))
        self.account.hold(size_of_dict(len(value)))
        for key, item in value.items():
            if not isinstance(key, str):
                raise UnsupportedValue(
                    "The keys of a dict on a channel must be text. "
                    f"Got {type(key).__name__} instead."
                )
            self._key(key)
            self.value(item, depth + 1)

    def _key(self, text: str) -> None:
        """A key of a dict; the reader has kept those that came before."""
        packed = _pack_name(text)
        if text in self._keys:
            self.add(packed)
            return
        self._text(text, packed)
        if len(packed) - _U32.size <= KEPT_KEY_BYTES and len(self._keys) < KEPT_KEYS:
            self._keys.add(text)

    def _array(self, array: Array) -> None:
        dtype = array.dtype if array.dtype in _DTYPE_CODES else array.dtype.newbyteorder("<")
        if dtype not in _DTYPE_CODES:
            raise UnsupportedValue(
                f"An array of dtype {array.dtype} may not cross a channel; use booleans, integers "
                "or floats of up to 64 bits."
            )
        lengths = struct.pack(f"<{array.ndim}Q", *array.shape)
        head = b"a" + bytes([_DTYPE_CODES[dtype], array.ndim]) + lengths
        self.add(head + bytes(-(self.size + len(head)) % _ALIGNMENT))
        self.account.hold(size_of_array(array.ndim))
        if array.size:
            data = np.ascontiguousarray(array, dtype=dtype)
            self.add(data.reshape(-1).view(np.uint8).data)


def _pack(text: str) -> bytes:
    """A text with its length."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise UnsupportedValue("A text with lone surrogates may not cross a channel.") from None
    return _U32.pack(len(data)) + data


_pack_name = lru_cache(maxsize=1024)(_pack)  # names and keys come again and again


class _Reader:
    """Reads a body; every length is checked against what is left before it is believed."""

    def __init__(self, body: memoryview) -> None:
        self._account = Account(allow_memory(len(body)))
        self._keys: dict[bytes, str] = {}
        self._body = body
        self._end = len(body)
        self._at = 0

    def _skip(self, count: int) -> int:
        """Skip ``count`` bytes; returns where they begin."""
        start = self._at
        self._at = start + count
        if self._at > self._end:
            raise WireError("The message ends in the middle of a value.")
        return start

    def take(self, count: int) -> memoryview:
        start = self._skip(count)
        return self._body[start : start + count]

    def end(self) -> None:
        if self._at != self._end:
            raise WireError(f"The message has {self._end - self._at} bytes after its value.")

    def _count(self) -> int:
        """A number of items, each of which takes at least one byte."""
        count: int = _U32.unpack_from(self._body, self._skip(4))[0]
        if count > self._end - self._at:
            raise WireError("The message announces more items than it can hold.")
        return count

    def text(self) -> str:
        return self._text(self.take(self._count()))

    def _text(self, data: memoryview) -> str:
        self._account.reach(size_of_reading(widest := _find_widest(data), len(data)))
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError:
            raise WireError("The message holds a text that is not UTF-8.") from None
        self._account.hold(size_of_text(widest, len(data), len(text)))
        return text

    def _key(self) -> str:
        """A key of a dict; those that come again are read once."""
        data = self.take(self._count())
        if len(data) > KEPT_KEY_BYTES:
            return self._text(data)
        name = bytes(data)
        text = self._keys.get(name)
        if text is None:
            text = self._text(data)
            if len(self._keys) < KEPT_KEYS:
                self._keys[name] = text
        return text

    def value(self, depth: int) -> Wire:
        if depth > MAX_DEPTH:
            raise WireError(f"The message nests deeper than {MAX_DEPTH} levels.")
        match chr(self._body[self._skip(1)]):
            case "s":
                return self.text()
            case "a":
                return self._array()
            case "m":
                return self._mapping(depth)
            case "N":
                return None
            case "T":
                return True
            case "F":
                return False
            case "i":
                return self._integer()
            case "d":
                self._account.hold(FLOAT_SIZE)
                return _F64.unpack_from(self._body, self._skip(8))[0]
            case "b":
                data = self.take(_U64.unpack_from(self._body, self._skip(8))[0])
                self._account.hold(size_of_bytes(len(data)))
                return bytes(data)
            case "l":
                return self._list(depth)
            case "p":
                code = self._body[self._skip(1)]
                if code >= len(PROTECTED):
                    raise WireError(f"The message has an unknown protection code {code}.")
                self._account.hold(PROTECTED_SIZE)
                return PROTECTED[code](self.value(depth + 1))
            case tag:
                raise WireError(f"The message has an unknown type tag {tag.encode('latin-1')!r}.")

    def _integer(self) -> int:
        data = self.take(self._count())
        if not 0 < len(data) <= MAX_INTEGER_BYTES:
            raise WireError(f"The message has an integer of {len(data)} bytes.")
        value = int.from_bytes(data, "little", signed=True)
        self._account.hold(size_of_integer(value))
        return value

    def _list(self, depth: int) -> list[Wire]:
        count = self._count()
        self._account.hold(size_of_list(count))
        items: list[Wire] = [None] * count  # no more than that: a growing list takes room ahead
        for place in range(count):
            items[place] = self.value(depth + 1)
        return items

    def _mapping(self, depth: int) -> dict[str, Wire]:
        count = self._count()
        self._account.reach(size_of_growing_dict(count))
        self._account.hold(size_of_dict(count))
        mapping = {}
        for _ in range(count):
            key = self._key()
            mapping[key] = self.value(depth + 1)
        if len(mapping) != count:
            raise WireError("The message has a dict with a repeated key.")
        return mapping

    def _array(self) -> Array:
        code, dimensions = self.take(2)
        if code >= len(_DTYPES) or dimensions > 8:
            raise WireError("The message has an array of an unknown type.")
        dtype = _DTYPES[code]
        shape = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions))
        # Zero lengths must not hide absurd ones: numpy would still compute their strides.
        if math.prod(max(length, 1) for length in shape) * dtype.itemsize > 1 << 48:
            raise WireError("The message announces an array larger than any memory.")
        padding = -self._at % _ALIGNMENT
        if padding and any(self.take(padding)):
            raise WireError("The message has an array with a damaged padding.")
        start = self._skip(math.prod(shape) * dtype.itemsize)
        self._account.hold(size_of_array(dimensions))
        array: Array = np.ndarray(shape, dtype, self._body, start)
        if code == 0 and array.size and array.view(np.uint8).max() > 1:
            raise WireError("The message has a boolean that is neither true nor false.")
        array.flags.writeable = False
        return array


def _find_widest(data: memoryview) -> int:
    """The largest byte of a text, or any below 128 where all are ASCII."""
    if len(data) > _LARGE:
        return int(np.frombuffer(data, dtype=np.uint8).max())  # without a copy
    return 0 if (copied := bytes(data)).isascii() else max(copied)


# ---- what a message takes in memory -------------------------------------------------------------

# The sizes are those of CPython 3.11 on 64 bits, rounded up as its allocator does; those of 3.12
# and 3.13 are the same or smaller. They are fixed, so that parties with different releases agree; a
# test compares them with the release at hand. None, truth values, integers from -5 to 256 and empty
# text or bytes exist once, and cost nothing.
FLOAT_SIZE: Final = 32
PROTECTED_SIZE: Final = 96
_LIST, _DICT, _KEYS, _ARRAY = 64, 64, 32, 96
_TEXT, _WIDE_TEXT, _BYTES, _INTEGER = 49, 76, 33, 24
_SLOT, _ENTRY, _AXIS, _DIGIT = 8, 16, 16, 4
_DIGIT_BITS = 30
_FEWEST_SLOTS = 8
_LOWEST, _HIGHEST = -5, 256  # integers that exist once
# What CPython takes for each byte of a text while it reads it, by the widest character: it starts
# narrow, and copies to a wider buffer whenever a character does not fit.
_READING = {1: 2, 2: 3, 4: 6}


class Account:
    """What a message takes in memory so far; more than ``limit`` is refused."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._held = 0
        self.peak = 0  # the most that was held at a time

    def hold(self, size: int) -> None:
        """A value of that size is read, and stays."""
        self._held += size
        self.reach(0)

    def reach(self, size: int) -> None:
        """``size`` more is taken for a moment."""
        most = self._held + size
        if most > self.peak:
            self.peak = most
            if self._limit is not None and most > self._limit:
                raise WireError(
                    f"Reading the message would take more than {self._limit:,} bytes of memory; "
                    f"a message may take {MEMORY_FACTOR} times its own size."
                )


def allow_memory(size: int) -> int:
    """How much memory a message of ``size`` bytes may take."""
    return MEMORY_FACTOR * size + SPARE_MEMORY


def size_of_list(count: int) -> int:
    return _LIST + _round_up(_SLOT * count)


def size_of_bytes(size: int) -> int:
    return _round_up(_BYTES + size) if size else 0


def size_of_integer(value: int) -> int:
    if _LOWEST <= value <= _HIGHEST:
        return 0
    return _round_up(_INTEGER + _DIGIT * -(-value.bit_length() // _DIGIT_BITS))


def size_of_array(axes: int) -> int:
    """An array is a view: its data is the frame's own."""
    return _ARRAY + _AXIS * axes


def size_of_dict(count: int) -> int:
    """A dict without its keys and values."""
    return _DICT + (_table(_slots(count)) if count else 0)


def size_of_growing_dict(count: int) -> int:
    """What a dict takes at most while it grows: its table and the one before, half as large."""
    slots = _slots(count)
    return size_of_dict(count) + (_table(slots // 2) if slots > _FEWEST_SLOTS else 0)


def size_of_text(widest: int, size: int, characters: int) -> int:
    """A text of ``size`` bytes in UTF-8, the largest of which is ``widest``."""
    if widest < 0x80:
        return _round_up(_TEXT + size) if size else 0
    return _round_up(_WIDE_TEXT + _width(widest) * characters)


def size_of_reading(widest: int, size: int) -> int:
    """What reading such a text takes for a moment, itself included."""
    if widest < 0x80:
        return _TEXT + size
    return 2 * _WIDE_TEXT + _READING[_width(widest)] * size


def _width(widest: int) -> int:
    """Bytes per character in memory, by the largest byte of the text in UTF-8."""
    if widest < 0xC4:
        return 1
    return 2 if widest < 0xF0 else 4


def _slots(count: int) -> int:
    """Places in the table of a dict: a power of two, filled to two thirds at most."""
    slots = _FEWEST_SLOTS
    while slots * 2 // 3 < count:
        slots *= 2
    return slots


def _table(slots: int) -> int:
    index = 1 if slots <= 1 << 7 else 2 if slots <= 1 << 15 else 4 if slots <= 1 << 31 else 8
    return _round_up(_KEYS + index * slots + _ENTRY * (slots * 2 // 3))


def _round_up(size: int) -> int:
    return -(-size // 16) * 16
