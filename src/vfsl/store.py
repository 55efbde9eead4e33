"""Files of a run: written to a temporary name and moved, so nobody ever sees half of one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vfsl.errors import StoreError
from vfsl.values import Array


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path``; on success it takes that name, on error it goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
        _sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make a move outlast a loss of power, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # no handles of folders, as on Windows
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_full(error: BaseException) -> bool:
    """Whether an error says that no more can be written."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist.") from None
    except ValueError as error:
        raise StoreError(f"{path} is damaged: it is not JSON ({error}).") from None


class Checkpoints:
    """What an unfinished job has already done, in a folder that goes when the job is finished.

    Parameters
    ----------
    folder : Path, str or None
        None: nothing is kept, and nothing is found.
    *facts : JSON values, bytes or arrays
        What the work depends on: settings, rows, data. Work on other facts does not go on from
        these checkpoints.
    """

    def __init__(self, folder: Path | str | None, *facts: Any) -> None:
        self.folder = None if folder is None else Path(folder)
        self._job = facts[0] if len(facts) == 1 and isinstance(facts[0], str) else digest(*facts)

    def within(self, name: str, *facts: Any) -> Checkpoints:
        """Checkpoints of a part of the work, in a folder below, bound to further facts."""
        below = None if self.folder is None else self.folder / name.replace(" ", "-")
        return Checkpoints(below, self._job, *facts)

    def save(self, name: str, value: Any, arrays: Mapping[str, Array] | None = None) -> None:
        """Keep a JSON value, and arrays beside it; a crash leaves the one before it, or none."""
        if self.folder is None:
            return
        if arrays is not None:  # first: a checkpoint counts once its value is there
            write_arrays(self.folder / f"{name}.npz", arrays)
        write_json(self.folder / f"{name}.json", {"job": self._job, "value": value})

    def load(self, name: str) -> Any:
        """The kept value, or None if there is none; StoreError if another job kept it."""
        if self.folder is None or not (path := self.folder / f"{name}.json").exists():
            return None
        content = read_json(path)
        if (
            not isinstance(content, dict)
            or content.get("job") != self._job
            or "value" not in content
        ):
            raise StoreError(
                f"{path} was kept by another job or is damaged; delete {self.folder} to start "
                "afresh."
            )
        return content["value"]

    def load_arrays(self, name: str) -> dict[str, Array]:
        """The arrays that were kept beside a value."""
        if self.folder is None:
            raise StoreError(f"Nothing is kept here, so there are no arrays {name!r}.")
        return read_arrays(self.folder / f"{name}.npz")

    def numbers(self, name: str) -> list[int]:
        """The numbers N of all kept values called "NAME-N", in order."""
        if self.folder is None:
            return []
        found = (path.stem.removeprefix(f"{name}-") for path in self.folder.glob(f"{name}-*.json"))
        return sorted(int(number) for number in found if number.isdigit())

    def forget(self, name: str) -> None:
        """Remove one kept value and its arrays."""
        if self.folder is not None:
            for suffix in (".json", ".npz"):  # the value first: without it the arrays do not count
                (self.folder / f"{name}{suffix}").unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all of them."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def digest(*facts: Any) -> str:
    """A fingerprint of JSON values, bytes and arrays, in full."""
    found = hashlib.sha256()
    for fact in facts:
        if isinstance(fact, np.ndarray):
            numbers = not fact.dtype.hasobject
            body = np.ascontiguousarray(fact).tobytes() if numbers else _text(fact.tolist())
            part = f"{fact.dtype} {fact.shape} ".encode() + body
        else:
            part = fact if isinstance(fact, bytes) else _text(fact)
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def digest_file(path: Path) -> str:
    """A fingerprint of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, default=str).encode()


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Save named arrays of numbers or strings; objects are refused, since they would pickle."""
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise StoreError(f"{path}: array {name!r} holds Python objects, which are not stored.")
    named: dict[str, Any] = dict(arrays)
    with replacing(path) as file:
        np.savez(file, **named)


def read_arrays(path: Path) -> dict[str, Array]:
    try:
        # Opened here: numpy leaves a file open that turns out not to be an archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist.") from None
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} is damaged: {type(error).__name__}.") from None
