"""Keyed tags of ids: made, kept in rising order by bucket, compared.

A bucket holds the tags that begin with the same bits, so lists can be sorted, sent and compared one
bucket after another. However long the lists are, a bucket has about a million tags; those of long
lists wait in files. Bucket by bucket gives the same result as all at once, in the same order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from vfsl.align.ids import ByteRows, RowNumbers, find_rows, to_rows

Bits = npt.NDArray[np.bool_]

TAG_BYTES = 12
KEY_BYTES = 32
NO_ID = -1  # the number of a tag that stands for no id
_BLOCK_BYTES = 16
_BUCKET_TAGS = 1 << 20
_MOST_BUCKETS = 1 << 10  # open files; a trillion ids would have buckets of a billion
_IN_MEMORY = 1 << 22  # tags; longer lists wait in files
_NUMBER_BYTES = 8


def make_keyed_tags(digests: ByteRows, key: bytes) -> ByteRows:
    """F_k of ids."""
    blocks = np.ascontiguousarray(digests[:, :_BLOCK_BYTES]).tobytes()
    encrypted = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)
    return to_rows(encrypted, _BLOCK_BYTES)[:, :TAG_BYTES]


def count_buckets(longest: int) -> int:
    """Into how many buckets lists go whose longest has so many tags: a power of two."""
    wanted = max(longest - 1, 0) // _BUCKET_TAGS
    return min(1 << wanted.bit_length(), _MOST_BUCKETS)


def find_buckets(tags: ByteRows, buckets: int) -> npt.NDArray[np.uint16]:
    """The bucket of each tag: its first bits."""
    starts = np.ascontiguousarray(tags[:, :2]).view(">u2").ravel().astype(np.uint16)
    return starts >> np.uint16(16 - (buckets.bit_length() - 1)) if buckets > 1 else starts * 0


@dataclass(frozen=True, eq=False)
class SortedTags:
    """Tags of a list in rising order, as their first eight and last four bytes.

    ``order`` says where they stood in the list, ``unique`` whether the first eight bytes tell them
    all apart, and ``repeats`` whether two of them are equal.
    """

    order: RowNumbers
    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint32]
    unique: bool
    repeats: bool

    @classmethod
    def of(cls, rows: ByteRows) -> SortedTags:
        high = np.ascontiguousarray(rows[:, :8]).view(">u8").ravel().astype(np.uint64)
        low = np.ascontiguousarray(rows[:, 8:]).view(">u4").ravel().astype(np.uint32)
        order, repeats = np.argsort(high), False
        unique = bool((np.diff(high[order]) != 0).all())
        if not unique:
            order = np.lexsort((low, high))
        high, low = high[order], low[order]
        if not unique:
            repeats = bool(((np.diff(high) == 0) & (np.diff(low) == 0)).any())
        return cls(order.astype(np.int64), high, low, unique, repeats)

    def find_in(self, other: SortedTags) -> RowNumbers:
        """The place of each tag among the sorted tags of another list, −1 if it is not there."""
        if not len(other.order):
            return np.full(len(self.order), -1, dtype=np.int64)
        if not other.unique:
            return find_rows(self.join(), other.join())
        place = np.minimum(np.searchsorted(other.high, self.high), len(other.high) - 1)
        same = (other.high[place] == self.high) & (other.low[place] == self.low)
        return np.where(same, place, -1)

    def join(self) -> ByteRows:
        """The tags as rows of bytes again."""
        high = self.high.astype(">u8").view(np.uint8).reshape(-1, 8)
        low = self.low.astype(">u4").view(np.uint8).reshape(-1, TAG_BYTES - 8)
        return np.concatenate([high, low], axis=1)


def mark_common(lists: Sequence[SortedTags]) -> list[Bits]:
    """For each list, which of its sorted tags all lists have."""
    first, *others = lists
    places = [first.find_in(other) for other in others]
    common = np.logical_and.reduce([place >= 0 for place in places])
    marks = [common]
    for other, at in zip(others, places, strict=True):
        found = np.zeros(len(other.order), dtype=bool)
        found[at[common]] = True
        marks.append(found)
    return marks


class TagList:
    """All tags of a party's list by bucket, each with the number of its id; private to the party.

    Parameters
    ----------
    tags : int
        How many there will be; long lists wait in files.
    buckets : int
    folder : Path, optional
        Where these files may lie for a while; by default with other temporary ones.
    """

    def __init__(self, tags: int, buckets: int, folder: Path | None = None) -> None:
        self.sizes = np.zeros(buckets, dtype=np.int64)
        self._parts: list[list[ByteRows]] = [[] for _ in range(buckets)]
        self._numbers: dict[int, RowNumbers] = {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._files: list[BinaryIO] = []
        if tags > _IN_MEMORY:
            self._scratch = tempfile.TemporaryDirectory(prefix="vfsl-tags-", dir=folder)
            at = Path(self._scratch.name)
            self._files = [(at / f"{place}").open("w+b") for place in range(buckets)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files:
            file.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def add(self, tags: ByteRows, numbers: RowNumbers) -> None:
        """Put tags into their buckets."""
        where = find_buckets(tags, len(self.sizes))
        order = np.argsort(where, kind="stable")
        counts = np.bincount(where, minlength=len(self.sizes))
        rows = np.empty((len(tags), TAG_BYTES + _NUMBER_BYTES), dtype=np.uint8)
        rows[:, :TAG_BYTES] = tags[order]
        placed = numbers[order].astype("<i8")
        rows[:, TAG_BYTES:] = placed.view(np.uint8).reshape(-1, _NUMBER_BYTES)
        stops = np.cumsum(counts)
        for place in np.flatnonzero(counts):
            part = rows[stops[place] - counts[place] : stops[place]]
            if self._files:
                self._files[place].write(part.tobytes())
            else:
                self._parts[place].append(part)
        self.sizes += counts

    def sort(self, bucket: int) -> ByteRows:
        """The tags of a bucket in rising order; this is their order for `find_ids` too."""
        if self._files:
            file = self._files[bucket]
            file.seek(0)
            rows = to_rows(file.read(), TAG_BYTES + _NUMBER_BYTES)
            file.truncate(0)  # nobody asks again
        else:
            empty = np.empty((0, TAG_BYTES + _NUMBER_BYTES), dtype=np.uint8)
            rows = np.concatenate([empty, *self._parts[bucket]])
            self._parts[bucket] = []
        found = SortedTags.of(rows[:, :TAG_BYTES])
        numbers = np.ascontiguousarray(rows[:, TAG_BYTES:]).view("<i8").ravel()[found.order]
        small = int(self.sizes.sum()) < 1 << 31
        self._numbers[bucket] = numbers.astype(np.int32 if small else np.int64)
        return found.join()

    def find_ids(self, bucket: int, marks: Bits) -> RowNumbers:
        """The numbers of the ids whose sorted tags are marked, in that order."""
        numbers: RowNumbers = self._numbers.pop(bucket)[marks].astype(np.int64)
        return np.asarray(numbers[numbers != NO_ID])
