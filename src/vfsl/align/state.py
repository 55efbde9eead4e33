"""What a party keeps between alignments: its key, finished values, the record of questions.

Everything lies in one folder of the party, in files that only their owner may read. The values
F_k(id) of finished batches are kept, so an interrupted run, or one with a longer list, only works
on ids that are new; tags are never kept, since a kept tag would link two runs. Ids are not kept
either: a value is filed under a keyed hash of its id, with a key that stays in the file.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from vfsl.align.byterows import ByteRows, find, joined, mapped
from vfsl.align.methods import VALUE_BYTES
from vfsl.errors import StoreError
from vfsl.store import read_arrays, write_arrays

_HANDLE_BYTES = 16
_SECRET_BYTES = 32
_SAVE_SECONDS = 20.0


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
            return np.zeros(len(digests), dtype=bool), joined([], VALUE_BYTES)
        places = find(keyed_hashes(digests, self._secret, _HANDLE_BYTES), self._handles[0])
        known = places >= 0
        return known, self._values[0][places[known]]

    def add(self, digests: ByteRows, values: ByteRows) -> None:
        """Take in the values of further ids; now and then this writes the file."""
        if self._path is None:
            return
        self._handles.append(keyed_hashes(digests, self._secret, _HANDLE_BYTES))
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
                "handles": joined(self._handles, _HANDLE_BYTES),
                "values": joined(self._values, VALUE_BYTES),
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


class PartyState:
    """The folder of one party; without a folder nothing outlives the run."""

    def __init__(self, folder: Path | str | None) -> None:
        self.folder = None if folder is None else Path(folder)

    def key_file(self, method: str) -> Path | None:
        return self._file(f"key-{method}.pem")

    def own_values(self, method: str, key: str) -> SignatureCache:
        """Values of the party's own ids under its own key: it is the server."""
        return SignatureCache(self._file(f"own-values-{method}.npz"), key)

    def asked_values(self, method: str, server: str, key: str) -> SignatureCache:
        """Values of the party's own ids under a server's key: it is the client."""
        return SignatureCache(self._file(f"values-{method}-at-{quote(server, safe='')}.npz"), key)

    def question_record(self) -> Path | None:
        return self._file("questions.json")

    def list_record(self, peer: str) -> Path | None:
        return self._file(f"last-list-{quote(peer, safe='')}.npz")

    def _file(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name


def keyed_hashes(digests: ByteRows, secret: bytes, width: int) -> ByteRows:
    """A keyed hash of each row, ``width`` bytes: says nothing without the secret."""
    blake2b = hashlib.blake2b
    return mapped(
        lambda digest: blake2b(digest, key=secret, digest_size=width).digest(), digests, width
    )
