"""How much memory a message takes once it is read, and how much it may: four times its size.

A hostile frame could name millions of tiny values, each of which is far larger as an object than on
the wire. Reader and writer therefore add up the same sizes in the same order: the reader refuses
before it takes the memory, the writer refuses what the reader would. The sizes are those of CPython
3.11 on 64 bits, rounded up as its allocator does; those of 3.12 and 3.13 are the same or smaller.
They are fixed, so that parties with different releases agree; a test compares them with the release
at hand.
None, truth values, integers from -5 to 256 and empty text or bytes exist once, and cost nothing.
"""

from __future__ import annotations

from typing import Final

from vfsl.errors import WireError

FACTOR: Final = 4
SPARE: Final = 1 << 18  # short messages may be made of small values as they like

# Keys of dicts that come again in a message are read once: so many of them, up to that length.
KEPT_KEYS: Final = 64
KEPT_KEY_BYTES: Final = 64

FLOAT: Final = 32
PROTECTED: Final = 96
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
        """So much more is taken for a moment."""
        most = self._held + size
        if most > self.peak:
            self.peak = most
            if self._limit is not None and most > self._limit:
                raise WireError(
                    f"Reading the message would take more than {self._limit:,} bytes of memory; "
                    f"a message may take {FACTOR} times its own size."
                )


def allowed(size: int) -> int:
    """How much memory a message of ``size`` bytes may take."""
    return FACTOR * size + SPARE


def of_list(count: int) -> int:
    return _LIST + _rounded(_SLOT * count)


def of_bytes(size: int) -> int:
    return _rounded(_BYTES + size) if size else 0


def of_integer(value: int) -> int:
    if _LOWEST <= value <= _HIGHEST:
        return 0
    return _rounded(_INTEGER + _DIGIT * -(-value.bit_length() // _DIGIT_BITS))


def of_array(axes: int) -> int:
    """An array is a view: its data is the frame's own."""
    return _ARRAY + _AXIS * axes


def of_dict(count: int) -> int:
    """A dict without its keys and values."""
    return _DICT + (_table(_slots(count)) if count else 0)


def growing_dict(count: int) -> int:
    """What a dict takes at most while it grows: its table and the one before, half as large."""
    slots = _slots(count)
    return of_dict(count) + (_table(slots // 2) if slots > _FEWEST_SLOTS else 0)


def of_text(widest: int, size: int, characters: int) -> int:
    """A text of ``size`` bytes in UTF-8, the largest of which is ``widest``."""
    if widest < 0x80:
        return _rounded(_TEXT + size) if size else 0
    return _rounded(_WIDE_TEXT + _width(widest) * characters)


def reading_text(widest: int, size: int) -> int:
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
    return _rounded(_KEYS + index * slots + _ENTRY * (slots * 2 // 3))


def _rounded(size: int) -> int:
    return -(-size // 16) * 16
