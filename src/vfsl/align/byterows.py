"""Rows of bytes of one width (digests, tags, handles): finding, repeats and secret orders."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

ByteRows = npt.NDArray[np.uint8]
RowNumbers = npt.NDArray[np.int64]
_CHUNK = 65_536


def rows_of(data: bytes, width: int) -> ByteRows:
    """Bytes of many equally long values as one row each; read-only."""
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width)


def mapped(function: Callable[[bytes], bytes], rows: ByteRows, width: int) -> ByteRows:
    """A function of each row; in chunks, since bytes objects take more than their content."""
    result = np.empty((len(rows), width), dtype=np.uint8)
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        data = b"".join([function(row.tobytes()) for row in chunk])
        result[start : start + _CHUNK] = rows_of(data, width)
    return result


def joined(parts: list[ByteRows], width: int) -> ByteRows:
    """Several blocks of rows under each other; also one, which is not copied, or none."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty((0, width), dtype=np.uint8)


def find(wanted: ByteRows, among: ByteRows) -> RowNumbers:
    """Which row of ``among``, which has no repeats, equals each wanted row; −1 if none."""
    found = np.full(len(wanted), -1, dtype=np.int64)
    if not len(among):
        return found
    keys = _words(among)
    order = np.argsort(keys)
    keys = keys[order]
    for start in range(0, len(wanted), _CHUNK):
        words = _words(wanted[start : start + _CHUNK])
        places = np.minimum(np.searchsorted(keys, words), len(keys) - 1)
        found[start : start + _CHUNK] = np.where(keys[places] == words, order[places], -1)
    return found


def count_repeats(rows: ByteRows) -> int:
    """How many rows equal an earlier one."""
    if len(rows) < 2:
        return 0
    keys = np.sort(_words(rows))
    return int(np.count_nonzero(keys[1:] == keys[:-1]))


def first_of_each(rows: ByteRows) -> npt.NDArray[np.bool_]:
    """True where a row, of eight bytes or more, is the first of its value."""
    first = np.ones(len(rows), dtype=bool)
    # Eight bytes of a digest nearly always tell; sorting those alone takes a quarter of the memory.
    starts = np.ascontiguousarray(rows[:, :8]).view(np.uint64).ravel()
    order = np.argsort(starts, kind="stable")
    alike = np.flatnonzero(starts[order[1:]] == starts[order[:-1]])
    if not len(alike):
        return first
    suspects = np.unique(np.concatenate([order[alike], order[alike + 1]]))
    keys = _words(rows[suspects])
    inner = np.argsort(keys, kind="stable")
    first[suspects[inner[1:]]] = keys[inner[1:]] != keys[inner[:-1]]
    return first


def secret_order(count: int) -> RowNumbers:
    """A uniformly random order of ``count`` rows from the operating system's randomness."""
    keys = np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)
    return np.argsort(keys, kind="stable").astype(np.int64)


def _words(rows: ByteRows) -> npt.NDArray[Any]:
    # Fixed-width byte strings compare as the padded bytes, so a trailing zero byte is no trap.
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel()
