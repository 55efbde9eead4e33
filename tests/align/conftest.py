"""One RSA key a session: making keys is what would take the time."""

import json
from pathlib import Path
from typing import Any

import pytest

from vfsl.align import Alignment, CurveKey, Limits, RsaKey

VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def rsa_key() -> RsaKey:
    return RsaKey.generate(security=112)


@pytest.fixture(scope="session")
def curve_key() -> CurveKey:
    return CurveKey.generate()


@pytest.fixture(params=["blind-rsa", "ecdh"])
def how(request, rsa_key, curve_key) -> Alignment:
    """Both methods, with 2048-bit keys, no smallest overlap and lists as unequal as one likes."""
    key = rsa_key if request.param == "blind-rsa" else curve_key
    return Alignment(
        protocol=request.param, security=112, key=key, limits=Limits(minimum=0, asked=1000)
    )


@pytest.fixture
def vectors():
    def read(name: str) -> dict[str, Any]:
        return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))

    return read
