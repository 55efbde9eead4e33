"""Homomorphic encryption of integer arrays and computing on shares; room for other schemes."""

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
        "shares": "vfsl.crypto.shares:Shares",
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


def choose_scheme(work: str, asked: str = "auto") -> str:
    """The scheme for a kind of work: the one that was asked for, if it can do that work.

    "auto" means the first scheme that serves it and hides values.
    """
    if asked != "auto":
        facts = SCHEMES.find(asked)
        if not facts.encrypts and work not in facts.serves:
            raise ConfigError(
                f"Scheme {asked!r} cannot do this step, which needs encryption ({work}); use "
                "'auto' or 'bfv'."
            )
        return asked
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
