"""What happens at and after the key holder: masks, and the secret key that answers requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from vfsl.crypto import wire
from vfsl.crypto.integers import INT64_MAX, largest
from vfsl.errors import CryptoError, KeyMismatch, ProtocolError
from vfsl.values import Array, Ciphertext, Masked

if TYPE_CHECKING:
    from vfsl.crypto.scheme import EncryptedArray, PublicKey


class Mask(ABC):
    """What ``masked()`` added; whoever holds it takes it off the answer."""

    def __init__(self, key: PublicKey, shape: tuple[int, ...], bound: int) -> None:
        self.key = key
        self.shape = shape
        self.bound = bound
        # Which of the key holder's answers the values are.
        self.shown: Array = np.arange(int(np.prod(shape, dtype=np.int64)))

    def __reduce__(self) -> NoReturn:
        raise CryptoError("A mask cannot be copied or stored; mask again instead.")

    def remove(self, answer: Masked) -> Array:
        """The integers behind the key holder's answer.

        In the shape of the masked array; with runs, the sums that are shown, in their order.
        """
        payload = wire.content(answer, Masked, "The answer to a masked request")
        wire.check_header(payload, self.key.scheme, self.key.fingerprint, "answer")
        return fitted(self._remove(payload), self.bound)

    def to_wire(self) -> Masked:
        """The mask for the party that is to read the values; ``PublicKey.load_mask`` reads it.

        Whoever has both the mask and the answer reads what was shown, and nothing else. Send it
        to that one party only, and never to the key holder, who sees every answer.
        """
        key = self.key
        header = {"scheme": key.scheme, "key": key.fingerprint, "form": "mask"}
        stated = {
            "shape": np.array(self.shape, dtype=np.int64),
            "bound": wire.as_bound(wire.coarse(self.bound, key.widest)),
            "shown": self.shown,
        }
        return Masked(header | stated | self._fields())

    @abstractmethod
    def _remove(self, payload: dict[str, Any]) -> Array: ...

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """What the scheme's ``_load_mask`` needs beside shape and bound."""


class SecretKey(ABC):
    """Decrypts. It is never written to the wire, to a checkpoint or into a message."""

    def __init__(self, public: PublicKey) -> None:
        self.public = public

    def __reduce__(self) -> NoReturn:
        raise CryptoError("A secret key cannot be copied or stored; generate a new one.")

    def __repr__(self) -> str:
        return f"<secret {self.public.scheme} key {self.public.fingerprint[:12]}>"

    def decrypt(self, array: EncryptedArray) -> Array:
        """Signed integers: int64 if the array's bound fits, else Python ints."""
        if array.key.fingerprint != self.public.fingerprint:
            raise KeyMismatch("This array was encrypted under another key.")
        return fitted(self._decrypt(array), array.bound)

    def open(self, ciphertext: Ciphertext, shape: tuple[int, ...]) -> Masked:
        """Answer a request made by ``EncryptedArray.masked``: decrypted, still masked.

        Parameters
        ----------
        ciphertext : Ciphertext
        shape : tuple of int
            The shape of the array that the job declares; the sender has no say in how much is
            decrypted. A request for runs opens sums over an array of that shape.
        """
        payload = wire.content(ciphertext, Ciphertext, "A masked request")
        public, declared = self.public, tuple(shape)
        answer = {"scheme": public.scheme, "key": public.fingerprint, "form": "answer"}
        if payload.get("form") == "masked runs":
            wire.check_header(payload, public.scheme, public.fingerprint, "masked runs")
            return Masked(answer | self._open_runs(payload, declared))
        wire.check_header(payload, public.scheme, public.fingerprint, "masked")
        return Masked(answer | self._open(payload, declared))

    @abstractmethod
    def _decrypt(self, array: EncryptedArray) -> Array: ...

    @abstractmethod
    def _open(self, payload: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]: ...

    @abstractmethod
    def _open_runs(self, payload: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]: ...


def shown_field(payload: dict[str, Any], shape: tuple[int, ...]) -> Array:
    """The rising positions of a mask's values among the answers, one for each value."""
    shown = wire.array_field(payload, "shown", np.int64, 1)
    size = int(np.prod(shape, dtype=np.int64))
    if shown.size != size or (np.diff(shown, prepend=-1) < 1).any():
        raise ProtocolError(
            f"A mask of shape {shape} must state {size} rising positions. Got {shown.size} "
            "instead, or some out of order."
        )
    return shown


def fitted(values: Array, bound: int) -> Array:
    """Decrypted values in their public type; past their own bound they are not ours."""
    if largest(values) > bound:
        raise CryptoError("The ciphertext could not be decrypted.")
    return values.astype(np.int64 if bound <= INT64_MAX else object)
