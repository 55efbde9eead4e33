"""Features of a party's own columns, learned without labels: the leading components of a kernel.

Under protection a feature holder's network cannot learn from labels, so its last layer reads these
instead: kernel principal components of the party's own rows by the Nyström method (Williams and
Seeger, "Using the Nyström Method to Speed Up Kernel Machines"). Rows are compared by a Gaussian
kernel whose width is the median distance; categories that differ count as one-hot vectors do.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vfsl.errors import StoreError
from vfsl.evidence.encoders import Arrays, Columns, columns_from
from vfsl.values import Floats

LANDMARKS = 512
_CHUNK = 1024
_LEAST_VALUE = 1e-8  # of an eigenvalue, as a fraction of the largest


@dataclass(frozen=True, eq=False)
class Features:
    """How a party's columns become features, whose squares add up to 1 in the mean over its rows.

    Attributes
    ----------
    columns : Columns
    landmarks : Arrays
        Rows of the party's own that all rows are compared with.
    rate : float
        The kernel is exp(−rate · squared distance).
    back : array (landmarks, features)
    centre : array (features,)
    """

    columns: Columns
    landmarks: Arrays
    rate: float
    back: Floats
    centre: Floats

    @classmethod
    def fit(cls, columns: Columns, rows: Arrays, width: int, rng: np.random.Generator) -> Features:
        """The leading components of some rows, at most ``width``."""
        count = len(rows.numbers)
        chosen = np.sort(rng.permutation(count)[:LANDMARKS])
        landmarks = Arrays(rows.numbers[chosen], rows.codes[chosen])
        distances = _distances(landmarks, landmarks)
        apart = distances[distances > 0]
        rate = float(1 / np.median(apart)) if apart.size else 1.0
        values, vectors = np.linalg.eigh(np.exp(-rate * distances))
        values, vectors = values[::-1][:width], vectors[:, ::-1][:, :width]
        kept = values > _LEAST_VALUE * values[0]
        back = vectors[:, kept] / np.sqrt(values[kept])
        raw = cls(columns, landmarks, rate, back, np.zeros(int(kept.sum())))
        made = raw.of(rows)
        spread = float(np.sqrt(((made - made.mean(axis=0)) ** 2).sum(axis=1).mean())) or 1.0
        return cls(columns, landmarks, rate, back / spread, made.mean(axis=0) / spread)

    @property
    def width(self) -> int:
        return len(self.centre)

    def of(self, rows: Arrays) -> Floats:
        """The features of rows."""
        parts = []
        for start in range(0, len(rows.numbers), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            some = Arrays(rows.numbers[chunk], rows.codes[chunk])
            parts.append(np.exp(-self.rate * _distances(some, self.landmarks)) @ self.back)
        made = np.concatenate(parts) if parts else np.zeros((0, self.width))
        return np.asarray(made - self.centre)

    def to_dict(self) -> dict[str, Any]:
        arrays = {
            "numbers": self.landmarks.numbers,
            "codes": self.landmarks.codes,
            "back": self.back,
            "centre": self.centre,
        }
        packed = {name: pack_array(values) for name, values in arrays.items()}
        return {"columns": self.columns.to_dict(), "rate": self.rate, "arrays": packed}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Features:
        """Undo `to_dict`."""
        try:
            arrays = {name: unpack_array(one) for name, one in state["arrays"].items()}
            landmarks = Arrays(arrays["numbers"], arrays["codes"])
            rate = float(state["rate"])
            return cls(
                columns_from(state["columns"]), landmarks, rate, arrays["back"], arrays["centre"]
            )
        except (KeyError, TypeError, ValueError):
            raise StoreError("This share of RISA is damaged: its features do not fit.") from None


def _distances(rows: Arrays, landmarks: Arrays) -> Floats:
    """Squared distances, (rows, landmarks), with categories as one-hot vectors."""
    left, right = rows.numbers.astype(np.float64), landmarks.numbers.astype(np.float64)
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    differ = np.zeros(squares.shape)
    for mine, theirs in zip(rows.codes.T, landmarks.codes.T, strict=True):
        differ += mine[:, None] != theirs
    return np.asarray(np.maximum(squares, 0.0) + 2 * differ)


def pack_array(values: Any) -> dict[str, Any]:
    """An array as JSON values."""
    data = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
    return {"dtype": values.dtype.str, "shape": list(values.shape), "data": data}


def unpack_array(content: Mapping[str, Any]) -> Any:
    """Undo `pack_array`."""
    flat = np.frombuffer(base64.b64decode(content["data"]), content["dtype"])
    return flat.reshape(content["shape"])
