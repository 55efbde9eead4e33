"""Declared parameters: what is told of them, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from vfsl.errors import ConfigError
from vfsl.params import check_params, documented, param, params_of, settings_of


@documented
@dataclass
class Toy:
    """A toy method.

    Attributes
    ----------
    found_ : int
    """

    depth: int = param(5, "How deep it goes.", ge=1, le=30)
    rate: float = param(0.1, "How fast it learns.", gt=0, le=1)
    mode: Literal["fast", "exact"] = param("fast", "How it works.", formerly={"precise": "exact"})
    tau: float | Literal["auto"] | None = param(None, "Where to cut.", ge=0, le=1)
    shrink: bool = param(True, "Whether to shrink.")
    names: Sequence[str] = param((), "Which columns.")
    stop: Any = param(None, "A rule of your own.", option=False)
    scratch: int = 0


def test_parameters_are_declared_once_and_read_everywhere():
    declared = params_of(Toy)
    assert list(declared) == ["depth", "rate", "mode", "tau", "shrink", "names", "stop"]
    assert declared["depth"].bounds == {"ge": 1, "le": 30}
    assert declared["mode"].choices == ("fast", "exact")
    assert declared["tau"].choices == ("auto",)
    assert "stop" not in settings_of(Toy())
    assert settings_of(Toy(depth=3))["depth"] == 3


def test_a_value_of_an_earlier_version_does_and_is_not_advertised():
    check_params(Toy(mode="precise"))
    assert settings_of(Toy(mode="precise"))["mode"] == "exact"
    assert "precise" not in Toy.__doc__
    with pytest.raises(ConfigError, match=r"one of 'fast', 'exact'\. Got 'slower'"):
        check_params(Toy(mode="slower"))


def test_a_subclass_with_another_default_inherits_the_rest_of_the_declaration():
    @documented
    @dataclass
    class Deeper(Toy):
        """A deeper toy."""

        depth: int = 20

    declared = params_of(Deeper)
    assert list(declared) == list(params_of(Toy))
    assert (declared["depth"].default, declared["depth"].bounds) == (20, {"ge": 1, "le": 30})
    assert "depth : int from 1 to 30, default 20" in Deeper.__doc__
    with pytest.raises(ConfigError, match=r"from 1 to 30\. Got 31"):
        check_params(Deeper(depth=31))


def test_the_docstring_lists_them_before_the_attributes():
    text = Toy.__doc__
    assert text.index("depth : int from 1 to 30, default 5") < text.index("Attributes")
    assert "    How fast it learns." in text
    assert "mode : 'fast', 'exact', default 'fast'" in text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"depth": 0}, "The depth parameter of Toy must be a whole number from 1 to 30. Got 0"),
        ({"depth": 2.5}, "must be a whole number from 1 to 30. Got 2.5"),
        ({"depth": True}, "must be a whole number from 1 to 30. Got True"),
        ({"rate": 0}, "must be a number above 0 and at most 1. Got 0"),
        ({"rate": float("nan")}, "must be a number above 0 and at most 1. Got nan"),
        ({"mode": "slow"}, "must be one of 'fast', 'exact'. Got 'slow'"),
        ({"tau": "some"}, "must be a number from 0 to 1 or 'auto'. Got 'some'"),
        ({"tau": 2.0}, "must be a number from 0 to 1 or 'auto'. Got 2.0"),
        ({"names": "age"}, "must be a list, each item text. Got 'age'"),
        ({"names": [1]}, "must be a list, each item text. Got [1]"),
        ({"shrink": 1}, "must be True or False. Got 1"),
    ],
)
def test_a_wrong_value_is_one_sentence(given, sentence):
    with pytest.raises(ConfigError) as caught:
        check_params(Toy(**given))
    assert sentence in str(caught.value)


@pytest.mark.parametrize("given", [{}, {"tau": "auto"}, {"tau": 0.5}, {"rate": 1}, {"tau": None}])
def test_a_right_value_passes(given):
    check_params(Toy(**given))
