"""What scheme checks stand on: keys made once, values sent every way, damaged messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from vfsl.crypto import EncryptedArray, Scheme
from vfsl.errors import VfslError
from vfsl.testing.claims import require
from vfsl.values import Array

USES: tuple[Any, ...] = ("any", "inner", "sum_by", "add")


class SchemeCase:
    """A scheme with keys of its own, made once, since key generation is slow."""

    def __init__(self, scheme: Scheme, *, seed: int = 0) -> None:
        self.scheme = scheme
        self.public, self.secret = scheme.generate()
        # What another party computes with: the key as it came over the wire.
        self.peer = scheme.load_public(self.public.to_wire())
        self.other, self.other_secret = scheme.generate()
        self.rng = np.random.default_rng(seed)

    def values(self, *shape: int, limit: int = 2**20) -> Array:
        return self.rng.integers(-limit, limit, size=shape, endpoint=True)

    def send(self, values: Array, use: Any = "any") -> EncryptedArray:
        """Encrypted by one party and received by another."""
        return self.peer.load(self.public.encrypt(values, use=use).to_wire())

    def open(self, array: EncryptedArray) -> Array:
        """Through the key holder: masked, opened, unmasked."""
        request, mask = array.mask()
        return mask.remove(self.secret.open(request, array.shape))

    def check(self, array: EncryptedArray, expected: Array) -> None:
        """Decrypting and asking the key holder both give ``expected``, within the bound."""
        require(array.shape == expected.shape, f"shape {array.shape} instead of {expected.shape}")
        received = self.public.load(array.to_wire())
        for got in (self.secret.decrypt(received), self.open(array)):
            np.testing.assert_array_equal(got, expected)
            wanted = np.dtype(np.int64 if array.bound < 2**63 else object)
            require(got.dtype == wanted, f"dtype {got.dtype} instead of {wanted}")
        most = max((abs(int(value)) for value in expected.flat), default=0)
        require(array.bound >= most, f"bound {array.bound} is below a value")


def sum_by(values: Array, groups: Array, n: int) -> Array:
    """What a scheme's ``sum_by`` must give."""
    sums = np.zeros((n, *values.shape[1:]), dtype=np.int64)
    np.add.at(sums, groups[groups >= 0], values[groups >= 0])
    return sums


def sum_by_many(values: Array, groups: Array, n: int) -> Array:
    return np.stack([sum_by(values, column, n) for column in groups.T])


def require_error(
    error: type[VfslError] | tuple[type[VfslError], ...], call: Callable[..., Any], *given: Any
) -> None:
    """The call must end in that error."""
    try:
        result = call(*given)
    except error:
        return
    raise AssertionError(f"{error} was expected, but the call returned {result!r}")


def find_blob(payload: dict[str, Any]) -> bytes:
    """The encrypted part of a message: its largest array."""
    return max((v.tobytes() for v in payload.values() if isinstance(v, np.ndarray)), key=len)


def damage_fields(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message with one field missing, of another type, shorter or longer."""
    for name, value in payload.items():
        yield {key: kept for key, kept in payload.items() if key != name}
        for bad in _damage(value):
            yield payload | {name: bad}


def _damage(value: Any) -> Iterator[Any]:
    yield None
    yield 1.5
    yield [value]
    if isinstance(value, str):
        yield value + "x"
    elif isinstance(value, bytes):
        yield value.decode("latin-1")
        yield value + bytes(4096)
    elif isinstance(value, int):
        yield value + 10**6
        yield -value - 10**6
        yield True
    elif isinstance(value, np.ndarray):
        yield value[:-1]
        yield np.concatenate([value, value])
        yield value.astype(np.float64)
        yield value.reshape(*value.shape, 1)
