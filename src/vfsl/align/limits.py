"""Limits against probing: how much a peer may ask, how small an overlap may be, how lists may
change.

A client can put guessed ids into its list: each that the server has shows up as a match. Nothing
in a set intersection prevents that, so the server counts. What each limit does:

- ``asked`` ids per peer and period, by default three times the party's own list: stops going
  through a number range. Counted when a batch is
  answered, before its answer leaves, in a file of counts and times; never of ids. A client that
  keeps its values asks each id once; under one key it may compare those again and again without
  asking, so the cap bounds how many *different* ids it ever learns about, not how often.
- ``minimum`` overlap: the server tells it beforehand, an honest client stops before it sends a
  plan, and the server refuses a plan with fewer rows. The client has seen the overlap by then: the
  limit keeps a small overlap from being *used* (models, statistics on five people), not from being
  known. In the marking step of VFPU no plan comes back, so there only the cap protects the server.
- ``small_change``: two alignments of lists that differ by a few ids tell the peer about exactly
  these few. The party compares its list with the one of the last alignment with that peer (keyed
  hashes, in a file of its own) and warns, as data; it does not refuse, since lists do grow.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vfsl.align.byterows import ByteRows
from vfsl.align.ids import IdList
from vfsl.align.state import keyed_hashes
from vfsl.errors import ConfigError, LimitReached, StoreError
from vfsl.store import read_arrays, read_json, write_arrays, write_json

_HASH_BYTES = 8
_DAY = 86_400.0
TIMES_OWN_LIST = 3
NO_CAP = 1 << 62  # on one machine, where nothing needs protection


@dataclass(frozen=True)
class Limits:
    """What a party allows a peer that aligns with it.

    Parameters
    ----------
    asked : int, optional
        Ids that one peer may ask about in a period; by default three times as many as the party
        has itself. A party with a short list, such as one that knows some positives, must say how
        many rows of others it is willing to be asked about.
    days : float
        The period.
    minimum : int
        Fewest overlap rows that a plan may have. 0 allows an empty plan.
    small_change : int
        Warn if the list differs from that of the last alignment by at least 1 and at most this many
        ids. 0 never warns.
    """

    asked: int | None = None
    days: float = 30.0
    minimum: int = 1
    small_change: int = 20

    def __post_init__(self) -> None:
        for name in ("asked", "minimum", "small_change"):
            value = getattr(self, name)
            if name == "asked" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(
                    f"The {name} parameter of Limits must be a whole number of at least 0. "
                    f"Got {value!r} instead."
                )
        if not self.days > 0:
            raise ConfigError(
                f"The days parameter of Limits must be positive. Got {self.days!r} instead."
            )

    def cap(self, own: int) -> int:
        """Ids that one peer may ask a party with a list of ``own`` ids about in a period."""
        return TIMES_OWN_LIST * own if self.asked is None else self.asked


def uncapped(
    client: str,
    asked: int,
    server: IdList,
    limits: Limits | None,
    state: Mapping[str, Path | str] | None,
) -> list[str]:
    """How the questions of one machine differ from those between organisations, for the record."""
    notes = []
    cap, own = Limits().cap(len(server)), len(server)
    if limits is None and asked > cap:
        notes.append(
            f"{client} asks {server.party} about {asked} ids; {server.party} has {own}, and "
            f"between organisations answers {cap} in {Limits().days:g} days unless its asked limit "
            "says otherwise."
        )
    if not state:
        notes.append(f"{server.party} counts questions for this run only: it has no state folder.")
    return notes


class QuestionRecord:
    """How many ids each peer asked about, and when; in a file, or for this object's life."""

    _lock = threading.Lock()  # one for all records: two runs of a party may share a file

    def __init__(self, path: Path | None, limits: Limits, own: int) -> None:
        self._path = path
        self._limits = limits
        self._cap = limits.cap(own)
        self._entries: dict[str, list[tuple[float, int]]] = {}

    def asked(self, peer: str, now: float | None = None) -> int:
        """Ids that the peer asked about in the current period."""
        with self._lock:
            return sum(
                count for _, count in self._recent(peer, time.time() if now is None else now)
            )

    def check(self, peer: str, count: int, now: float | None = None) -> None:
        """Refuse ``count`` further ids if they would exceed the cap; counts nothing."""
        with self._lock:
            self._refuse_beyond(
                peer, count, self._recent(peer, time.time() if now is None else now)
            )

    def _refuse_beyond(self, peer: str, count: int, entries: list[tuple[float, int]]) -> None:
        before = sum(number for _, number in entries)
        if before + count > self._cap:
            why = f" ({TIMES_OWN_LIST} × the own list)" if self._limits.asked is None else ""
            raise LimitReached(
                f"Party {peer!r} wants to ask about {count} ids; it asked about {before} in the "
                f"last {self._limits.days:g} days and may ask about {self._cap}{why}. Raise the "
                "asked limit only if you trust that these are its own customers.",
                peer,
            )

    def count(self, peer: str, count: int, now: float | None = None) -> None:
        """Count ids that are about to be answered; refuses beyond the cap."""
        now = time.time() if now is None else now
        with self._lock:
            entries = self._recent(peer, now)
            self._refuse_beyond(peer, count, entries)
            # One entry an hour keeps the file small and times coarse.
            if entries and now - entries[-1][0] < 3600.0:
                entries[-1] = (entries[-1][0], entries[-1][1] + count)
            else:
                entries.append((now, count))
            self._entries[peer] = entries
            if self._path is not None:
                write_json(self._path, {"version": 1, "asked": self._entries})

    def _recent(self, peer: str, now: float) -> list[tuple[float, int]]:
        if self._path is not None and self._path.exists():
            self._entries = _read_entries(self._path)
        start = now - self._limits.days * _DAY
        return [(at, count) for at, count in self._entries.get(peer, []) if at > start]


def _read_entries(path: Path) -> dict[str, list[tuple[float, int]]]:
    content = read_json(path)
    try:
        return {
            str(peer): [(float(at), int(count)) for at, count in entries]
            for peer, entries in content["asked"].items()
        }
    except (TypeError, KeyError, ValueError, AttributeError):
        # A damaged record must not open the door: refuse rather than start from zero.
        raise StoreError(f"{path} is damaged: it is not a record of questions.") from None


@dataclass(frozen=True)
class ListChange:
    """How a party's list differs from that of its last alignment with a peer."""

    party: str
    peer: str
    kept: int
    added: int
    removed: int

    def warning(self, limits: Limits) -> str | None:
        """What the party should know before it aligns again, or None."""
        changed = self.added + self.removed
        if not 1 <= changed <= limits.small_change:
            return None
        return (
            f"The list of {self.party!r} differs from its last alignment with {self.peer!r} by "
            f"{self.added} added and {self.removed} removed ids: comparing both results tells "
            "about exactly these. Align less often, with more changes at once."
        )


class ListRecord:
    """Keyed hashes of the list of the last alignment with one peer."""

    def __init__(self, path: Path | None, party: str, peer: str) -> None:
        self._path = path
        self._party = party
        self._peer = peer

    def compare(self, digests: ByteRows) -> ListChange | None:
        """How ``digests`` differ from the recorded list; None if there is none."""
        if self._path is None or not self._path.exists():
            return None
        arrays = read_arrays(self._path)
        if set(arrays) != {"secret", "hashes"} or arrays["hashes"].dtype != np.uint64:
            raise StoreError(f"{self._path} is damaged: it is not a record of a list; delete it.")
        before, after = arrays["hashes"], _hashes(digests, arrays["secret"].tobytes())
        kept = len(np.intersect1d(before, after, assume_unique=True))
        return ListChange(self._party, self._peer, kept, len(after) - kept, len(before) - kept)

    def keep(self, digests: ByteRows) -> None:
        """Record this list, once an alignment with it has ended well."""
        if self._path is None:
            return
        secret = secrets.token_bytes(32)
        content: dict[str, npt.NDArray[Any]] = {
            "secret": np.frombuffer(secret, dtype=np.uint8),
            "hashes": _hashes(digests, secret),
        }
        write_arrays(self._path, content)


def _hashes(digests: ByteRows, secret: bytes) -> npt.NDArray[np.uint64]:
    hashes = keyed_hashes(digests, secret, _HASH_BYTES).reshape(-1).view("<u8")
    return np.unique(hashes.astype(np.uint64))
