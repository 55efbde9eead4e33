"""Wire forms of keys and ciphertexts: plain dicts, checked field by field when they come in."""

from __future__ import annotations

import hashlib
import math
from typing import Any, TypeVar

import numpy as np

from vfsl.errors import KeyMismatch, ProtocolError
from vfsl.values import Array, Protected

Field = TypeVar("Field", bound=int | str | bytes)

# A header that claims more is refused before any work: numpy could not index it anyway.
MAX_VALUES = 2**40
MAX_AXES = 8


def hash_key(wire: dict[str, Any]) -> str:
    """SHA-256 over the fields of a key's wire form, in the order of names, each with its length."""
    digest = hashlib.sha256(b"vfsl.crypto key")
    for name in sorted(wire):
        value = wire[name]
        content = value if isinstance(value, bytes) else str(value).encode()
        for part in (name.encode(), type(value).__name__.encode(), content):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


def read_content(value: object, kind: type[Protected], what: str) -> dict[str, Any]:
    """The dict inside a protected value that a peer sent."""
    if not isinstance(value, kind) or not isinstance(value.payload, dict):
        raise ProtocolError(
            f"{what} must be a {kind.__name__} with a dict inside. "
            f"Got {type(value).__name__} instead."
        )
    return value.payload


def read_field(payload: dict[str, Any], name: str, kind: type[Field]) -> Field:
    """One field of the stated type; bool does not pass for int."""
    value = payload.get(name)
    if type(value) is not kind:
        raise ProtocolError(
            f"Field {name!r} of a crypto message must be {kind.__name__}. "
            f"Got {type(value).__name__} instead."
        )
    return value


def read_array(payload: dict[str, Any], name: str, dtype: type[Any], axes: int) -> Array:
    """One numpy field of the stated dtype and number of axes."""
    value = payload.get(name)
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != axes:
        came = (
            f"{value.dtype} with {value.ndim} axes"
            if isinstance(value, np.ndarray)
            else type(value).__name__
        )
        raise ProtocolError(
            f"Field {name!r} of a crypto message must be a {np.dtype(dtype)} array with {axes} "
            f"axes. Got {came} instead."
        )
    return value


def read_shape(payload: dict[str, Any], *, least: int = 1) -> tuple[int, ...]:
    """The shape of an encrypted array; absurd ones are refused before memory is taken."""
    shape = tuple(int(length) for length in read_array(payload, "shape", np.int64, 1))
    size = math.prod(max(length, 0) for length in shape)
    if len(shape) > MAX_AXES or min(shape, default=1) < least or size > MAX_VALUES:
        raise ProtocolError(
            f"A crypto message must state a shape of lengths from {least}. Got {shape} instead."
        )
    return shape


def read_bound(payload: dict[str, Any], capacity: int) -> int:
    """A stated bound on absolute values, within what the key can hold."""
    bound = int.from_bytes(read_field(payload, "bound", bytes), "big")
    if bound > capacity:
        raise ProtocolError(
            "A crypto message must state a bound within its key's capacity. Got "
            f"{bound.bit_length()} bits instead."
        )
    return bound


def write_bound(bound: int) -> bytes:
    """What :func:`read_bound` reads."""
    return bound.to_bytes((bound.bit_length() + 7) // 8, "big")


def coarsen(bound: int, capacity: int) -> int:
    """A bound that may leave: a power of two less one, since a tight one tells too much."""
    return min((1 << bound.bit_length()) - 1, capacity)


def check_header(payload: dict[str, Any], scheme: str, key: str, form: str) -> None:
    """Refuse content of another scheme, another key or another purpose."""
    came = read_field(payload, "scheme", str)
    if came != scheme:
        raise ProtocolError(
            f"A message of scheme {scheme!r} was expected. Got scheme {came!r} instead; all "
            "parties of a job must use one scheme."
        )
    if read_field(payload, "key", str) != key:
        raise KeyMismatch(
            f"A ciphertext of key {key[:12]} was expected. Got one of another key instead; "
            "exchange the public key again."
        )
    if read_field(payload, "form", str) != form:
        raise ProtocolError(
            f"A crypto message of form {form!r} was expected. Got {payload['form']!r} instead."
        )
