"""Homomorphic encryption of integer arrays: one seam, three schemes, room for others."""

from __future__ import annotations

from typing import Any

from vfsl.crypto.opening import KeyHolder, Mask, SecretKey
from vfsl.crypto.scheme import EncryptedArray, PublicKey, Scheme, Work
from vfsl.crypto.sums import Grouping, PrefixSums
from vfsl.errors import ConfigError
from vfsl.registry import Registry

# A scheme's library is loaded only when the scheme is used.
SCHEMES: Registry[type[Scheme]] = Registry(
    what="scheme",
    group="vfsl.schemes",
    builtin={
        "plain": "vfsl.crypto.plain:Plain",
        "paillier": "vfsl.crypto.paillier:Paillier",
        "bfv": "vfsl.crypto.bfv:BFV",
    },
)


def make_scheme(name: str, security: int = 128, **options: Any) -> Scheme:
    """A homomorphic scheme by name.

    Parameters
    ----------
    name : str
        One of ``SCHEMES.names()``.
    security : int
        Security level in bits.
    **options
        Further parameters of that scheme.
    """
    kind = SCHEMES.find(name)
    try:
        return kind(security, **options)
    except TypeError:
        raise ConfigError(f"Scheme {name!r} does not take the options {sorted(options)}.") from None


def choose_scheme(work: str) -> str:
    """What scheme="auto" means for a kind of work: the first that serves it and hides values."""
    for name in SCHEMES.names():
        facts = SCHEMES.find(name)
        if facts.hides and work in facts.serves:
            return name
    raise ConfigError(f"There is no scheme for {work!r}; name one instead of 'auto'.")


__all__ = [
    "SCHEMES",
    "EncryptedArray",
    "Grouping",
    "KeyHolder",
    "Mask",
    "PrefixSums",
    "PublicKey",
    "Scheme",
    "SecretKey",
    "Work",
    "choose_scheme",
    "make_scheme",
]
