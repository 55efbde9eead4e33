"""What a party keeps of a training between rounds, so that a later attempt goes on from there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vfsl import store
from vfsl.values import Array


class Kept:
    """Finished rounds of one party in its own folder; without a folder nothing is kept.

    No key, mask or order of candidates is written. The label holder's folder has the seed of its
    rows and their scores, which must stay with it.

    Parameters
    ----------
    folder : str or Path, optional
    party : str
    settings : mapping
        Another model, or the same one with other settings, does not go on from here.
    data : sequence of arrays or None
        Binned columns, labels, weights: nor does a training on other data.
    """

    def __init__(
        self,
        folder: str | Path | None,
        party: str,
        settings: Mapping[str, Any],
        data: Sequence[Array | None],
    ) -> None:
        self._folder = None if folder is None else Path(folder) / party
        self._rounds = None
        if self._folder is not None:
            # Lists are written out in full; arrays would be shortened.
            lists = [None if each is None else each.tolist() for each in data]
            text = json.dumps([dict(settings), lists], sort_keys=True, default=str)
            digest = hashlib.sha256(text.encode()).hexdigest()
            self._rounds = store.Checkpoints(self._folder, digest)
        self.finished = 0
        while self.load(self.finished) is not None:
            self.finished += 1

    def save(self, number: int, value: Any, arrays: Mapping[str, Array] | None = None) -> None:
        """Keep a finished round; arrays come first, as the round counts once its value is there."""
        if self._rounds is None or self._folder is None:
            return
        if arrays is not None:
            store.write_arrays(self._folder / f"round-{number}.npz", arrays)
        self._rounds.save(f"round-{number}", value)

    def load(self, number: int) -> Any:
        """A finished round, or None."""
        return None if self._rounds is None else self._rounds.load(f"round-{number}")

    def arrays(self, number: int) -> dict[str, Array]:
        """The arrays of a finished round."""
        return store.read_arrays((self._folder or Path()) / f"round-{number}.npz")
