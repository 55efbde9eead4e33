"""What happens at and after the key holder: masks, the secret key, and the guard before it."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from vfsl.crypto import wire
from vfsl.crypto.fixed import INT64_MAX, max_abs
from vfsl.errors import CryptoError, KeyMismatch, ProtocolError, QueryRefused, VfslError
from vfsl.values import Array, Ciphertext, Masked

if TYPE_CHECKING:
    from vfsl.crypto.scheme import EncryptedArray, PublicKey


@dataclass(eq=False, repr=False)
class Mask(ABC):
    """What ``EncryptedArray.mask`` added; whoever holds it takes it off the answer."""

    key: PublicKey
    shape: tuple[int, ...]
    bound: int

    @property
    def shown(self) -> Array:
        """Which of the key holder's answers the values are."""
        return np.arange(math.prod(self.shape))

    def __reduce__(self) -> NoReturn:
        raise CryptoError("A mask cannot be copied or stored; mask again instead.")

    def remove(self, answer: Masked) -> Array:
        """The integers behind the key holder's answer.

        They have the shape of the masked array; of prefix sums, those that are shown, in order.
        """
        payload = wire.read_content(answer, Masked, "The answer to a masked request")
        wire.check_header(payload, self.key.scheme, self.key.fingerprint, "answer")
        return _fit(self._remove(payload), self.bound)

    def to_wire(self) -> Masked:
        """The mask for the party that is to read the values; ``PublicKey.load_mask`` reads it.

        Whoever has both the mask and the answer reads what was shown, and nothing else. Send it
        to that one party only, and never to the key holder, who sees every answer.
        """
        key = self.key
        header = {"scheme": key.scheme, "key": key.fingerprint, "form": "mask"}
        stated = {
            "shape": np.array(self.shape, dtype=np.int64),
            "bound": wire.write_bound(wire.coarsen(self.bound, key.widest)),
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
        return _fit(self._decrypt(array), array.bound)

    def open(self, ciphertext: Ciphertext, shape: tuple[int, ...]) -> Masked:
        """Answer a request made by ``EncryptedArray.mask``: decrypted, still masked.

        Parameters
        ----------
        ciphertext : Ciphertext
        shape : tuple of int
            The shape of the array that the job declares; the sender has no say in how much is
            decrypted. A request for prefix sums opens sums over an array of that shape.
        """
        payload = wire.read_content(ciphertext, Ciphertext, "A masked request")
        scheme, key = self.public.scheme, self.public.fingerprint
        prefixes = payload.get("form") == "masked runs"
        wire.check_header(payload, scheme, key, "masked runs" if prefixes else "masked")
        answer = self._open(payload, tuple(shape), prefixes)
        return Masked({"scheme": scheme, "key": key, "form": "answer"} | answer)

    @abstractmethod
    def _decrypt(self, array: EncryptedArray) -> Array: ...

    @abstractmethod
    def _open(
        self, payload: dict[str, Any], shape: tuple[int, ...], prefixes: bool
    ) -> dict[str, Any]:
        """The answer to a checked request for an array's values, or for prefix sums of them."""


class KeyHolder:
    """The key holder's guard: it answers what the job declared, once each, and counts.

    It holds the secret key and no data, and sees only masked values, uniform over the plaintext
    space. A holder that answered anything at any time could be used to read values one by one.

    Parameters
    ----------
    secret : SecretKey
    allowed : mapping of name to shape
        Every request that the job will make. Each name is answered once.
    answered : iterable of str
        Names that an earlier attempt of the same run has answered already.

    Attributes
    ----------
    queries, refused : int
        Requests answered, and refused, so far.
    """

    def __init__(
        self,
        secret: SecretKey,
        allowed: Mapping[str, tuple[int, ...]],
        *,
        answered: Iterable[str] = (),
    ) -> None:
        self._secret = secret
        self._allowed = {name: tuple(shape) for name, shape in allowed.items()}
        self._answered = set(answered)
        self._lock = threading.Lock()
        self.queries = len(self._answered)
        self.refused = 0

    def open(
        self, name: str, ciphertext: Ciphertext, shape: tuple[int, ...] | None = None
    ) -> Masked:
        """The masked answer to one declared request.

        ``shape`` is what the sender believes, if it said so; only the declared shape is used.
        A request that cannot be opened is refused and does not use its name up.
        """
        declared = self._admit(name, shape)
        try:
            return self._secret.open(ciphertext, declared)
        except VfslError as error:
            with self._lock:
                self._answered.discard(name)
                self.queries -= 1
                self.refused += 1
            if isinstance(error, ProtocolError):
                raise QueryRefused(
                    f"The request {name!r} was refused; the job declares shape {declared}. {error}"
                ) from error
            raise

    def _admit(self, name: str, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """The declared shape of a request that may be answered now; it counts from here on."""
        with self._lock:
            if name not in self._allowed:
                raise self._refuse(f"The job declares no request named {name!r}.")
            if name in self._answered:
                raise self._refuse(f"The request {name!r} was already answered.")
            declared = self._allowed[name]
            if shape is not None and tuple(shape) != declared:
                raise self._refuse(
                    f"The job declares shape {declared} for the request {name!r}. "
                    f"Got {tuple(shape)} instead."
                )
            # Marked before the work, so that two threads cannot both get through.
            self._answered.add(name)
            self.queries += 1
            return declared

    def _refuse(self, message: str) -> QueryRefused:
        self.refused += 1
        return QueryRefused(message)

    @property
    def answered(self) -> frozenset[str]:
        """Names answered so far, to be kept with a checkpoint."""
        return frozenset(self._answered)

    @property
    def left(self) -> frozenset[str]:
        """Declared names that were not answered yet."""
        return frozenset(self._allowed) - self._answered


def read_shown(payload: dict[str, Any], shape: tuple[int, ...]) -> Array:
    """The rising positions of a mask's values among the answers, one for each value."""
    shown = wire.read_array(payload, "shown", np.int64, 1)
    size = math.prod(shape)
    if shown.size != size or (np.diff(shown, prepend=-1) < 1).any():
        raise ProtocolError(
            f"A mask of shape {shape} must state {size} rising positions. Got {shown.size} "
            "instead, or some out of order."
        )
    return shown


def _fit(values: Array, bound: int) -> Array:
    """Decrypted values in their public type; past their own bound they are not ours."""
    if max_abs(values) > bound:
        raise CryptoError("The ciphertext could not be decrypted.")
    return values.astype(np.int64 if bound <= INT64_MAX else object)
