"""Ids as text: what may be one, how several columns join into one, and never quoted in an error."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd

from vfsl.data.checks import counted
from vfsl.errors import DataError
from vfsl.values import Array

# Between the parts of a composite id. No part may hold it, so ("a", "bc") never equals ("ab", "c").
SEPARATOR = "\x1f"


def id_texts(frame: pd.DataFrame, columns: tuple[str, ...], party: str) -> Array:
    """One text per row from the id column(s); whole numbers become their decimal digits."""
    parts = [_texts(frame[name], name, party) for name in columns]
    for name, part in zip(columns, parts, strict=True):
        empty = sum(text is None or not text.strip() for text in part)
        if empty:
            raise DataError(
                f"Id column {name!r} of party {party} is empty in {counted(empty, 'row')} of "
                f"{len(frame):,}; give every row an id, or drop those rows."
            )
        split = sum(SEPARATOR in text for text in part if text) if len(parts) > 1 else 0
        if split:
            raise DataError(
                f"Id column {name!r} of party {party} has {counted(split, 'value')} with the unit "
                "separator (character 31), which joins composite ids; remove it."
            )
    joined: list[Any] = parts[0]
    if len(parts) > 1:
        joined = [SEPARATOR.join(row) for row in zip(*parts, strict=True)]
    ids = np.empty(len(joined), dtype=object)
    ids[:] = joined
    return ids


def id_parts(ids: Array, count: int) -> list[list[str]]:
    """Undo the joining: the texts of each id column."""
    if count == 1:
        return [list(ids)]
    rows = [text.split(SEPARATOR) for text in ids]
    return [[row[part] for row in rows] for part in range(count)]


def _texts(values: pd.Series[Any], name: str, party: str) -> list[str | None]:
    where = f"Id column {name!r} of party {party}"
    if pd.api.types.is_float_dtype(values.dtype):
        raise _decimal(where)
    texts: list[str | None] = []
    for value, missing in zip(values.tolist(), values.isna().tolist(), strict=True):
        if missing:
            texts.append(None)
        elif isinstance(value, str):
            texts.append(value)
        elif isinstance(value, Integral) and not isinstance(value, bool):
            texts.append(str(int(value)))
        elif isinstance(value, float):
            raise _decimal(where)
        else:
            raise DataError(
                f"{where} must hold text or whole numbers. Got {type(value).__name__} instead; "
                "convert it to text."
            )
    return texts


def _decimal(where: str) -> DataError:
    return DataError(
        f"{where} holds decimal numbers, usually because whole numbers with missing cells were "
        "read as such, and 17.0 would not match a peer's 17; read the ids as text "
        "(dtype=str in pandas.read_csv), or convert them with .astype('Int64')."
    )
