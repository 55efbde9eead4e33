"""What a party allows its peers, and what it keeps between alignments to hold them to it.

A client can put guessed ids into its list: each one that the server has shows up as a match.
Nothing in a set intersection prevents that, so the server counts. What each limit does:

- ``asked`` ids per peer and period, by default three times the party's own list, stops a client
  from going through a number range. Ids are counted when a batch is answered, before its answer
  leaves, in a file of counts and times, never of ids. A client that keeps its values asks about
  each id once; under one key it may compare those again and again without asking, so the cap bounds
  how many *different* ids it ever learns about, not how often.
- ``minimum`` overlap: the server tells it beforehand, an honest client stops before it sends a
  plan, and the server refuses a plan with fewer rows. The client has seen the overlap by then: the
  limit keeps a small overlap from being *used* (models or statistics about five people), not from
  being known. In the marking step of VFPU no plan comes back, so there only the cap protects the
  server.
- ``small_change``: two alignments of lists that differ by a few ids tell the peer about exactly
  these few. The party compares its list with that of its last alignment with the peer (keyed
  hashes, in a file of its own) and warns, as data; it does not refuse, since lists do grow.

Everything lies in one folder of the party, in files that only their owner may read. The values
F_k(id) of finished batches are kept, so an interrupted alignment, or one with a longer list, only
works on ids that are new; tags are never kept, since a kept tag would link two alignments. Ids are
not kept either: a value is filed under a keyed hash of its id, with a key that stays in the file.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from vfsl.align.ids import ByteRows, IdList, find_rows, join_rows, map_rows
from vfsl.errors import LimitReached, StoreError
from vfsl.params import check_params, documented, param
from vfsl.store import read_arrays, read_json, write_arrays, write_json

VALUE_BYTES = 32  # of F_k(id), whatever the protocol
NO_CAP = 1 << 62  # on one machine, where nothing needs protection
_TIMES_OWN_LIST = 3
_DAY = 86_400.0
_SECRET_BYTES = 32
_HANDLE_BYTES = 16
_LIST_HASH_BYTES = 8
_SAVE_SECONDS = 20.0


@documented
@dataclass(frozen=True)
class Limits:
    """What a party allows a peer that aligns with it."""

    asked: int | None = param(
        None,
        "How many ids one peer may ask about in a period; by default three times as many as the "
        "party has itself. A party with a short list, such as one that knows some positives, must "
        "say about how many rows of others it is willing to be asked.",
        ge=0,
    )
    days: float = param(30.0, "The length of the period.", gt=0)
    minimum: int = param(
        1, "The smallest number of overlap rows that a plan may have; 0 allows an empty plan.", ge=0
    )
    small_change: int = param(
        20,
        "Warn if the list differs from that of the last alignment by at least 1 and at most this "
        "many ids; 0 never warns.",
        ge=0,
    )

    def __post_init__(self) -> None:
        check_params(self)

    def cap(self, own: int) -> int:
        """How many ids one peer may ask about in a period if the party's list has ``own`` ids."""
        return _TIMES_OWN_LIST * own if self.asked is None else self.asked


def note_missing_caps(
    client: str, asked: int, server: IdList, limits: Limits, state: Path | str | None
) -> list[str]:
    """How the questions on one machine differ from those between organisations, for the record."""
    notes = []
    cap, own, party = Limits().cap(len(server)), len(server), server.party
    if limits.asked == NO_CAP and asked > cap:
        notes.append(
            f"{client} asks {party} about {asked} ids. {party} has {own}, and between "
            f"organisations it would answer {cap} in {Limits().days:g} days unless its asked limit "
            "says otherwise."
        )
    if state is None:
        notes.append(f"{party} counts questions for this run only: it has no state folder.")
    return notes


class PartyState:
    """The folder of one party; without a folder nothing outlives the run."""

    def __init__(self, folder: Path | str | None) -> None:
        self.folder = None if folder is None else Path(folder)

    def key_file(self, protocol: str) -> Path | None:
        return self._file(f"key-{protocol}.pem")

    def own_values(self, protocol: str, key: str) -> SignatureCache:
        """Values of the party's own ids under its own key: it is the server."""
        return SignatureCache(self._file(f"own-values-{protocol}.npz"), key)

    def asked_values(self, protocol: str, server: str, key: str) -> SignatureCache:
        """Values of the party's own ids under a server's key: it is the client."""
        return SignatureCache(self._file(f"values-{protocol}-at-{quote(server, safe='')}.npz"), key)

    def questions(self, limits: Limits, own: int) -> QuestionRecord:
        """What the peers have asked the party, which has a list of ``own`` ids."""
        return QuestionRecord(self._file("questions.json"), limits, own)

    def last_list(self, party: str, peer: str) -> ListRecord:
        """The party's list in its last alignment with the peer."""
        return ListRecord(self._file(f"last-list-{quote(peer, safe='')}.npz"), party, peer)

    def _file(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name


class SignatureCache:
    """Values F_k of ids under one key, found again by a keyed hash of the id.

    Parameters
    ----------
    path : Path or None
        The file; None keeps nothing beyond this object.
    key : str
        Fingerprint of the server's key. A file of another key is replaced: its values are
        worthless.
    """

    def __init__(self, path: Path | None, key: str) -> None:
        self._path = path
        self._key = key
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self._handles: list[ByteRows] = []
        self._values: list[ByteRows] = []
        self._saved_at = time.monotonic()
        self._dirty = False
        if path is not None and path.exists():
            self._read(path)

    def __len__(self) -> int:
        return sum(len(block) for block in self._handles)

    def lookup(self, digests: ByteRows) -> tuple[npt.NDArray[np.bool_], ByteRows]:
        """Which of the ids are known, and the values of those."""
        self._merge()
        if not self._handles:
            return np.zeros(len(digests), dtype=bool), join_rows([], VALUE_BYTES)
        places = find_rows(hash_rows(digests, self._secret, _HANDLE_BYTES), self._handles[0])
        known = places >= 0
        return known, self._values[0][places[known]]

    def add(self, digests: ByteRows, values: ByteRows) -> None:
        """Take in the values of further ids; now and then this writes the file."""
        if self._path is None:
            return
        self._handles.append(hash_rows(digests, self._secret, _HANDLE_BYTES))
        self._values.append(np.array(values))
        self._dirty = True
        if time.monotonic() - self._saved_at > _SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the file, as a whole or not at all."""
        if self._path is None or not self._dirty:
            return
        self._merge()
        write_arrays(
            self._path,
            {
                "handles": join_rows(self._handles, _HANDLE_BYTES),
                "values": join_rows(self._values, VALUE_BYTES),
                "secret": np.frombuffer(self._secret, dtype=np.uint8),
                "key": np.array(self._key),
            },
        )
        self._dirty = False
        self._saved_at = time.monotonic()

    def _merge(self) -> None:
        if len(self._handles) > 1:
            self._handles = [np.concatenate(self._handles)]
            self._values = [np.concatenate(self._values)]

    def _read(self, path: Path) -> None:
        arrays = read_arrays(path)
        shapes = {name: array.shape[1:] for name, array in arrays.items()}
        wanted = {"handles": (_HANDLE_BYTES,), "values": (VALUE_BYTES,), "secret": (), "key": ()}
        if shapes != wanted or len(arrays["handles"]) != len(arrays["values"]):
            raise StoreError(f"{path} is damaged: it is not a file of kept values; delete it.")
        if str(arrays["key"]) != self._key:
            return
        self._secret = arrays["secret"].tobytes()
        self._handles = [arrays["handles"]]
        self._values = [arrays["values"]]


class QuestionRecord:
    """How many ids each peer asked about, and when; in a file, or for this object's life."""

    _lock = threading.Lock()  # one for all records: two runs of a party may share a file

    def __init__(self, path: Path | None, limits: Limits, own: int) -> None:
        self._path = path
        self._limits = limits
        self._cap = limits.cap(own)
        self._entries: dict[str, list[tuple[float, int]]] = {}

    def check(self, peer: str, count: int, now: float | None = None) -> None:
        """Refuse ``count`` further ids if they would exceed the cap; counts nothing."""
        with self._lock:
            self._refuse_beyond(peer, count, self._recent(peer, _time(now)))

    def count(self, peer: str, count: int, now: float | None = None) -> None:
        """Count ids that are about to be answered; refuses beyond the cap."""
        now = _time(now)
        with self._lock:
            entries = self._recent(peer, now)
            self._refuse_beyond(peer, count, entries)
            # One entry per hour keeps the file small and the times coarse.
            if entries and now - entries[-1][0] < 3600.0:
                entries[-1] = (entries[-1][0], entries[-1][1] + count)
            else:
                entries.append((now, count))
            self._entries[peer] = entries
            if self._path is not None:
                write_json(self._path, {"version": 1, "asked": self._entries})

    def _refuse_beyond(self, peer: str, count: int, entries: list[tuple[float, int]]) -> None:
        before = sum(number for _, number in entries)
        if before + count > self._cap:
            why = f" ({_TIMES_OWN_LIST} × the own list)" if self._limits.asked is None else ""
            raise LimitReached(
                f"Party {peer!r} wants to ask about {count} ids; it asked about {before} in the "
                f"last {self._limits.days:g} days and may ask about {self._cap}{why}. Raise the "
                "asked limit only if you trust that these are its own customers.",
                peer,
            )

    def _recent(self, peer: str, now: float) -> list[tuple[float, int]]:
        if self._path is not None and self._path.exists():
            self._entries = _read_entries(self._path)
        start = now - self._limits.days * _DAY
        return [(at, count) for at, count in self._entries.get(peer, []) if at > start]


def _time(now: float | None) -> float:
    return time.time() if now is None else now


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


class ListRecord:
    """Keyed hashes of a party's list in its last alignment with one peer."""

    def __init__(self, path: Path | None, party: str, peer: str) -> None:
        self._path = path
        self._party = party
        self._peer = peer

    def warn(self, digests: ByteRows, limits: Limits) -> str | None:
        """What the party should know before it aligns with this list; None if nothing."""
        if self._path is None or not self._path.exists():
            return None
        arrays = read_arrays(self._path)
        if set(arrays) != {"secret", "hashes"} or arrays["hashes"].dtype != np.uint64:
            raise StoreError(f"{self._path} is damaged: it is not a record of a list; delete it.")
        before, after = arrays["hashes"], _hash_list(digests, arrays["secret"].tobytes())
        kept = len(np.intersect1d(before, after, assume_unique=True))
        added, removed = len(after) - kept, len(before) - kept
        if not 1 <= added + removed <= limits.small_change:
            return None
        return (
            f"The list of {self._party!r} differs from its last alignment with {self._peer!r} by "
            f"{added} added and {removed} removed ids: whoever compares both results learns "
            "about exactly these. Align less often, with more changes at once."
        )

    def keep(self, digests: ByteRows) -> None:
        """Record this list, once an alignment with it has ended well."""
        if self._path is None:
            return
        secret = secrets.token_bytes(_SECRET_BYTES)
        key = np.frombuffer(secret, dtype=np.uint8)
        write_arrays(self._path, {"secret": key, "hashes": _hash_list(digests, secret)})


def _hash_list(digests: ByteRows, secret: bytes) -> npt.NDArray[np.uint64]:
    hashes = hash_rows(digests, secret, _LIST_HASH_BYTES).reshape(-1).view("<u8")
    return np.unique(hashes.astype(np.uint64))


def hash_rows(digests: ByteRows, secret: bytes, width: int) -> ByteRows:
    """A keyed hash of each row, ``width`` bytes long: says nothing without the secret."""
    blake2b = hashlib.blake2b
    return map_rows(
        lambda digest: blake2b(digest, key=secret, digest_size=width).digest(), digests, width
    )
