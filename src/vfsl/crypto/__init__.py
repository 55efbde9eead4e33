"""Homomorphic encryption of integer arrays: one seam, three schemes."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

from vfsl.crypto.grouping import Grouping
from vfsl.crypto.keyholder import KeyHolder
from vfsl.crypto.opening import Mask, SecretKey
from vfsl.crypto.runs import Runs
from vfsl.crypto.scheme import EncryptedArray, PublicKey, Scheme
from vfsl.errors import ConfigError

# Import paths, so that a scheme's library is loaded only when it is used.
SCHEMES = {
    "plain": "vfsl.crypto.plain:Plain",
    "paillier": "vfsl.crypto.paillier:Paillier",
    "bfv": "vfsl.crypto.bfv:BFV",
}

# What scheme="auto" means for a kind of protocol; never plain.
SCHEME_FOR = {
    "linear": "bfv",
    "association": "bfv",
    "trees": "bfv",
    # Whoever opens a bfv array sees which bins make up a candidate; the label holder must not.
    "trees without a key holder": "paillier",
    # Several feature holders need an element-wise product.
    "linear of many": "bfv",
}


def scheme(name: str, security: int = 128, **options: Any) -> Scheme:
    """A homomorphic scheme by name.

    Parameters
    ----------
    name : str
        One of ``SCHEMES``.
    security : int
        Security level in bits.
    **options
        Further parameters of that scheme.

    Returns
    -------
    Scheme
    """
    if name not in SCHEMES:
        near = difflib.get_close_matches(name, SCHEMES, n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"The scheme parameter must be one of {sorted(SCHEMES)}. Got {name!r} instead; "
            f"did you mean {near!r}?"
        )
    module, attribute = SCHEMES[name].split(":")
    kind: type[Scheme] = getattr(import_module(module), attribute)
    try:
        return kind(security, **options)
    except TypeError:
        raise ConfigError(f"Scheme {name!r} does not take the options {sorted(options)}.") from None


__all__ = [
    "SCHEMES",
    "SCHEME_FOR",
    "EncryptedArray",
    "Grouping",
    "KeyHolder",
    "Mask",
    "PublicKey",
    "Runs",
    "Scheme",
    "SecretKey",
    "scheme",
]
