"""What loading a public data set gives, and pictures that are read only when asked for."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl.data.columns import Kind
from vfsl.data.table import PartyTable
from vfsl.errors import DataError
from vfsl.store import read_arrays
from vfsl.values import Array


class Images:
    """Pictures of a data set, row by row; nothing is read or decoded before the first use.

    Attributes
    ----------
    shape : tuple of int
        Rows, height, width, and 3 for colour.
    """

    def __init__(
        self, shape: tuple[int, ...], open: Callable[[], Callable[[Array], Array]]
    ) -> None:
        self.shape = shape
        self._open = open
        self._take: Callable[[Array], Array] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        """The pictures of these rows (a number, a slice or row numbers) as uint8."""
        if self._take is None:
            self._take = self._open()
        chosen = np.arange(len(self))[rows]
        taken = self._take(np.atleast_1d(chosen))
        return taken if np.ndim(chosen) else taken[0]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A public data set, ready to split between parties.

    Attributes
    ----------
    name : str
    frame : pandas.DataFrame
        All rows and columns, pooled, without an id. Only the label when there are ``images``.
    label : str
        The target's column.
    task : {"binary", "multiclass", "regression", "count"}
    kinds : dict of str to Kind
    source : str
        Where it came from.
    notes : tuple of str
        What was done to it, and what to beware of.
    part : array of str, optional
        The publisher's own division, such as ``"train"`` and ``"test"``, by row.
    tables : dict of str to PartyTable
        Ready vertical tables, for sets that were published divided.
    images : Images, optional
        Pictures in the row order of ``frame``.
    """

    name: str
    frame: pd.DataFrame
    label: str
    task: str
    kinds: dict[str, Kind]
    source: str
    notes: tuple[str, ...] = ()
    part: Array | None = None
    tables: dict[str, PartyTable] = field(default_factory=dict)
    images: Images | None = None


def kinds_of(frame: pd.DataFrame, label: str, categorical: tuple[str, ...] = ()) -> dict[str, Kind]:
    """Kinds by type; codes that only look like numbers are listed in ``categorical``."""
    kinds = {}
    for name, values in frame.items():
        number = pd.api.types.is_numeric_dtype(values.dtype) and values.dtype != bool
        kinds[str(name)] = Kind.NUMERIC if number and name not in categorical else Kind.CATEGORICAL
    kinds[label] = Kind.LABEL
    return kinds


def mnist_images(path: Path, count: int) -> Images:
    def open_file() -> Callable[[Array], Array]:
        arrays = read_arrays(path)
        pixels = np.concatenate([arrays["x_train"], arrays["x_test"]])
        return lambda rows: pixels[rows]

    return Images((count, 28, 28), open_file)


def cifar_images(path: Path, count: int) -> Images:
    def open_file() -> Callable[[Array], Array]:
        picture = _pillow()
        arrays = read_arrays(path)
        pieces = [
            (arrays[f"jpg_{part}"], start, stop)
            for part in ("train", "test")
            for start, stop in zip(arrays[f"off_{part}"], arrays[f"off_{part}"][1:], strict=False)
        ]

        def decode(row: int) -> Array:
            content, start, stop = pieces[row]
            image = picture.open(io.BytesIO(content[start:stop].tobytes()))
            return np.asarray(image.convert("RGB"), dtype=np.uint8)

        def take(rows: Array) -> Array:
            if not len(rows):
                return np.empty((0, 32, 32, 3), dtype=np.uint8)
            return np.stack([decode(int(row)) for row in rows])

        return take

    return Images((count, 32, 32, 3), open_file)


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        raise DataError(
            "The pictures of data set 'cifar10' are JPEG and need Pillow to decode; "
            "install it with pip install 'vfsl[deep]'."
        ) from None
