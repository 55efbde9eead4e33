"""Checkpoints of an unfinished training: each party keeps its own, in a folder of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vfsl.errors import StoreError
from vfsl.store import read_arrays, write_arrays
from vfsl.values import Array

_KEPT = 2  # an epoch that only some parties managed to keep must not be the only one


class Folder:
    """One party's kept epochs of one job; another job's are refused."""

    def __init__(self, folder: Path | str, job: str) -> None:
        self._folder = Path(folder)
        self._job = job

    def epochs(self) -> list[int]:
        """The epochs that could be resumed from."""
        found = sorted(self._folder.glob("risa-*.npz"))
        return sorted(int(path.stem.removeprefix("risa-")) for path in found)

    def save(self, epoch: int, arrays: Mapping[str, Array]) -> None:
        write_arrays(self._path(epoch), {**arrays, "job": np.array(self._job)})
        for old in self.epochs()[:-_KEPT]:
            self._path(old).unlink()

    def load(self, epoch: int) -> dict[str, Array]:
        arrays = read_arrays(self._path(epoch))
        if str(arrays.pop("job", "")) != self._job:
            raise StoreError(
                f"{self._path(epoch)} was kept by another training; delete {self._folder} to start "
                "afresh."
            )
        return arrays

    def clear(self) -> None:
        for epoch in self.epochs():
            self._path(epoch).unlink()

    def _path(self, epoch: int) -> Path:
        return self._folder / f"risa-{epoch:06d}.npz"


class Keeper:
    """The label holder's checkpoints, and how the other parties are asked to keep theirs.

    Parameters
    ----------
    folder : Folder
    own : function
        The arrays of the label holder's own network.
    others_keep : function
        Asks every other party to keep that epoch.
    every : int
        How many epochs apart.
    resume_at : int
        The epoch that all parties have kept; 0 for none.
    """

    def __init__(
        self,
        folder: Folder,
        own: Callable[[], Mapping[str, Array]],
        others_keep: Callable[[int], None],
        every: int,
        resume_at: int = 0,
    ) -> None:
        self.resume_at = resume_at
        self._folder = folder
        self._own = own
        self._others_keep = others_keep
        self._every = every

    def due(self, epoch: int, last: int) -> bool:
        return epoch % self._every == 0 and epoch < last

    def save_all(
        self, epoch: int, arrays: Mapping[str, Array], rounds: list[dict[str, Any]]
    ) -> None:
        text = np.frombuffer(json.dumps(rounds).encode(), dtype=np.uint8)
        self._others_keep(epoch)
        self._folder.save(epoch, {**arrays, **self._own(), "rounds": text})

    def load(self, epoch: int) -> dict[str, Array]:
        return self._folder.load(epoch)

    def load_rounds(self, epoch: int) -> list[dict[str, Any]]:
        rounds: list[dict[str, Any]] = json.loads(self.load(epoch)["rounds"].tobytes())
        return rounds
