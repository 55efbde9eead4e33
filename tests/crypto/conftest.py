"""Keys for the crypto tests: made once, since they cost a second."""

from __future__ import annotations

import pytest

from vfsl.crypto import scheme
from vfsl.testing.schemes import SchemeCase

# Small keys where the maths is the same at every size.
CASES = {
    "plain": lambda: SchemeCase(scheme("plain")),
    "paillier": lambda: SchemeCase(scheme("paillier", security=112)),
    "bfv": lambda: SchemeCase(scheme("bfv")),
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
