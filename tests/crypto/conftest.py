"""Keys for the crypto tests: made once, since they cost a second."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from vfsl.crypto import make_scheme
from vfsl.testing.schemes import SchemeCase

# Small keys where the maths is the same at every size.
CASES = {
    "plain": lambda: SchemeCase(make_scheme("plain")),
    "paillier": lambda: SchemeCase(make_scheme("paillier", security=112)),
    "bfv": lambda: SchemeCase(make_scheme("bfv")),
}

_made: dict[str, SchemeCase] = {}


def case_of(name: str) -> SchemeCase:
    if name not in _made:
        _made[name] = CASES[name]()
    return _made[name]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> SchemeCase:
    return case_of(request.param)


@pytest.fixture
def paillier() -> SchemeCase:
    return case_of("paillier")


@pytest.fixture
def plain() -> SchemeCase:
    return case_of("plain")


@pytest.fixture
def bfv() -> SchemeCase:
    return case_of("bfv")


class Bits(NamedTuple):
    """log2(q / (2 t |error|)) of an array: as the secret key sees it, and as its bound promises."""

    spare: int
    promised: int


@pytest.fixture
def error_bits(bfv: SchemeCase) -> Callable[[Any], Bits]:
    def measure(array: Any) -> Bits:
        ring = array._ring
        decryptor: Any = bfv.secret._decryptors[ring.degree]  # type: ignore[attr-defined]
        spare = min(decryptor.invariant_noise_budget(ring.to_seal(raw)) for raw in array.raws)
        promised = math.log2(ring.modulus(array._limbs)) - math.log2(2 * ring.t * array.error)
        return Bits(int(spare), int(promised))

    return measure
