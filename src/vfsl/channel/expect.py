"""Checks on what a peer sent, so that a role can trust shapes and types from then on."""

from __future__ import annotations

import numpy as np

from vfsl.errors import ProtocolError
from vfsl.values import Array, Wire

_KINDS = {"integer": "iu", "float": "f", "boolean": "b", "bytes": "u"}


def expect_array(
    value: Wire, *, sender: str, name: str, holds: str, shape: tuple[int | None, ...]
) -> Array:
    """``value`` as an array of that content and shape (None: any length), else ProtocolError."""
    if not isinstance(value, np.ndarray):
        raise ProtocolError(
            f"Party {sender!r} sent {type(value).__name__} as {name!r}; expected an array.", sender
        )
    fits = value.dtype.kind in _KINDS[holds] and (holds != "bytes" or value.dtype == np.uint8)
    if not fits:
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} as {value.dtype}; expected {holds} values.", sender
        )
    if len(value.shape) != len(shape) or any(
        wanted is not None and wanted != got for wanted, got in zip(shape, value.shape, strict=True)
    ):
        wanted_text = " × ".join("any" if length is None else str(length) for length in shape)
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} with shape {value.shape}; expected {wanted_text}.",
            sender,
        )
    if holds == "float" and not np.isfinite(value).all():
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} with numbers that are not finite.", sender
        )
    return value


def expect_integer(value: Wire, *, sender: str, name: str, low: int, high: int) -> int:
    """``value`` as an integer between ``low`` and ``high``, else ProtocolError."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ProtocolError(
            f"Party {sender!r} sent {value!r:.60} as {name!r}; expected an integer from {low} "
            f"to {high}.",
            sender,
        )
    return value
