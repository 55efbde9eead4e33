"""Schemes by name."""

from __future__ import annotations

import pytest

from vfsl.crypto import SCHEMES, Scheme, make_scheme
from vfsl.errors import ConfigError


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
