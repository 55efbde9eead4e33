"""Schemes by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vfsl.crypto import SCHEMES, Scheme, choose_scheme, make_scheme
from vfsl.errors import ConfigError
from vfsl.testing.schemes import check_scheme


@pytest.mark.parametrize("name", SCHEMES)
def test_every_name_gives_its_scheme(name: str) -> None:
    made = make_scheme(name)
    assert isinstance(made, Scheme)
    assert made.name == name
    assert made.security == 128


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'paillier'"):
        make_scheme("pallier")
    with pytest.raises(ConfigError, match="bits"):
        make_scheme("paillier", bits=2048)


def test_only_plain_does_not_hide() -> None:
    assert [name for name in SCHEMES if not make_scheme(name).hides] == ["plain"]


TOY = """
import secrets

from vfsl.crypto.plain import Plain, PlainPublicKey, PlainSecretKey


class ToyKey(PlainPublicKey):
    scheme = "toy"


class Toy(Plain):
    name = "toy"
    serves = ("linear", "knitting")

    def __init__(self, security=128, *, colour="red"):
        super().__init__(security)
        self.colour = colour

    def generate(self):
        public = ToyKey(secrets.token_bytes(16))
        return public, PlainSecretKey(public)

    def _load_public(self, content):
        return ToyKey(super()._load_public(content)._tag)


class Hiding(Toy):
    name = "hiding toy"
    hides = True
"""


def test_a_scheme_of_another_package(install: Callable[..., None]) -> None:
    install("toy_schemes", TOY, "vfsl.schemes", toy="Toy", hiding="Hiding")
    assert SCHEMES.names() == ["plain", "shares", "paillier", "bfv", "hiding", "toy"]
    made = make_scheme("toy", 112, colour="blue")
    assert (made.security, made.colour) == (112, "blue")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="'toy' does not take the options"):
        make_scheme("toy", size=3)
    check_scheme(lambda: make_scheme("toy"))


def test_auto_asks_for_declared_facts_and_ours_come_first(install: Callable[..., None]) -> None:
    with pytest.raises(ConfigError, match="no scheme for 'knitting'"):
        choose_scheme("knitting")
    install("toy_schemes", TOY, "vfsl.schemes", aa="Toy", hiding="Hiding")
    assert choose_scheme("linear") == "shares"
    assert choose_scheme("knitting") == "hiding"  # the other one says that it does not hide


def test_facts_say_what_schemes_do() -> None:
    facts = {
        name: (
            kind.hides,
            kind.elementwise,
            kind.rows_together,
            kind.opener_sees_places,
        )
        for name in ("plain", "paillier", "bfv")
        for kind in [SCHEMES.find(name)]
    }
    assert facts == {
        "plain": (False, True, False, False),
        "paillier": (True, True, False, False),
        "bfv": (True, True, True, True),
    }
