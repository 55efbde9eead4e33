"""Parameter checks that the public functions of vfsl.data share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from vfsl.errors import ConfigError

# Party names become names of folders, files and certificates.
PARTY_NAME = "1 to 63 letters, digits, - and _, the first a letter or digit"
_PARTY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def is_party_name(name: object) -> bool:
    return isinstance(name, str) and _PARTY_NAME.fullmatch(name) is not None


def check_party_name(what: str, name: object) -> None:
    if not is_party_name(name):
        raise ConfigError(f"{what} must be {PARTY_NAME}. Got {name!r:.80} instead.")


def check_choice(where: str, name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ConfigError(
            f"The {name} parameter of {where} must be one of {allowed}. Got {value!r} instead."
        )


def check_fraction(where: str, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ConfigError(
            f"The {name} parameter of {where} must be a number from 0 to 1. Got {value!r} instead."
        )


def check_count(where: str, name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ConfigError(
            f"The {name} parameter of {where} must be a whole number of at least {least}. "
            f"Got {value!r} instead."
        )


def check_rng(where: str, rng: Any) -> None:
    if not isinstance(rng, np.random.Generator):
        raise ConfigError(
            f"The rng parameter of {where} must be a numpy Generator, as from "
            f"numpy.random.default_rng(0). Got {type(rng).__name__} instead."
        )


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """'1 row', '2,000 rows'."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
