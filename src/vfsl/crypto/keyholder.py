"""The key holder's guard: it answers what the job declared, once each, and counts.

Holds the secret key and no data. Sees masked values only, uniform over the plaintext space.
A holder that answered anything anytime could be used to read values one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from vfsl.crypto.opening import SecretKey
from vfsl.errors import ProtocolError, QueryRefused, VfslError
from vfsl.values import Ciphertext, Masked


class KeyHolder:
    """Opens masked requests by declared name and shape.

    Parameters
    ----------
    secret : SecretKey
    allowed : mapping of name to shape
        Every request that the job will make. Each name is answered once.
    answered : iterable of str
        Names that an earlier attempt of the same run has answered already.

    Attributes
    ----------
    queries : int
        Requests answered so far.
    refused : int
        Requests refused so far.
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
        declared = self._admitted(name, shape)
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

    def _admitted(self, name: str, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """The declared shape of a request that may be answered now; it counts from here on."""
        with self._lock:
            if name not in self._allowed:
                raise self._refusal(f"The job declares no request named {name!r}.")
            if name in self._answered:
                raise self._refusal(f"The request {name!r} was already answered.")
            declared = self._allowed[name]
            if shape is not None and tuple(shape) != declared:
                raise self._refusal(
                    f"The job declares shape {declared} for the request {name!r}. "
                    f"Got {tuple(shape)} instead."
                )
            # Marked before the work, so that two threads cannot both get through.
            self._answered.add(name)
            self.queries += 1
            return declared

    @property
    def answered(self) -> frozenset[str]:
        """Names answered so far, to be kept with a checkpoint."""
        return frozenset(self._answered)

    @property
    def left(self) -> frozenset[str]:
        """Declared names that were not answered yet."""
        return frozenset(self._allowed) - self._answered

    def _refusal(self, message: str) -> QueryRefused:
        self.refused += 1
        return QueryRefused(message)
