"""What may cross a channel: plain wire data, and wrappers whose type says how it is protected.

A raw number, string or array is *plain*: its receiver can read it. A wrapper states why the
receiver cannot, or how little it says; the transcript and the ledger take the kind from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
# None, bool, int, float, str, bytes, numpy array, list or dict of those, or a Protected wrapper.
Wire = Any


@dataclass(frozen=True, eq=False)
class Protected:
    """A wire value together with the reason why it may leave its party."""

    payload: Wire
    kind: ClassVar[str] = "protected"


class Ciphertext(Protected):
    """Readable by nobody without the secret key."""

    kind = "ciphertext"


class Masked(Protected):
    """Hidden by a uniform mask that only one other party can remove."""

    kind = "masked"


class SealedIds(Protected):
    """Blinded ids, signatures or tags of a set intersection."""

    kind = "sealed ids"


class Aggregate(Protected):
    """A sum or rounded statistic over many rows."""

    kind = "aggregate"


PROTECTED: tuple[type[Protected], ...] = (Ciphertext, Masked, SealedIds, Aggregate)


class Disclosure(NamedTuple):
    """What one message of a protocol carries, and the fact that it tells its receiver."""

    type: type[Any]
    fact: str


Disclosures = dict[str, Disclosure]


def kind_of(value: Wire) -> str:
    """How a value is protected, judged by its type alone."""
    return value.kind if isinstance(value, Protected) else "plain"
