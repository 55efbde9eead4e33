"""Recipes for ids that are written in many ways: days and telephone numbers as one text each."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Literal

Recipe = Literal["none", "digits", "date", "us-date", "phone"]
RECIPES: tuple[Recipe, ...] = ("none", "digits", "date", "us-date", "phone")

_YEAR_FIRST = re.compile(r"(\d{4})[-/.]?(\d{1,2})[-/.]?(\d{1,2})")
_YEAR_LAST = re.compile(r"(\d{1,2})[-/. ](\d{1,2})[-/. ](\d{4})")
_TIME = re.compile(r"[T ]\d{1,2}:.*$")
_NO_DIGIT = re.compile(r"\D+", re.ASCII)


def find_recipe(name: Recipe, country: str = "") -> Callable[[str], str] | None:
    """What a recipe does to one id; None: nothing."""
    if name == "digits":
        return keep_digits
    if name in ("date", "us-date"):
        return lambda text: write_day(text, month_first=name == "us-date")
    if name == "phone":
        return lambda text: write_phone(text, country)
    return None


def keep_digits(text: str) -> str:
    """Only the digits: "AB 12-34" is 1234."""
    return _NO_DIGIT.sub("", text)


def write_day(text: str, *, month_first: bool = False) -> str:
    """A day as 2026-03-31, however it was written; a text that is no day stays as it is.

    Where the year comes last, the day comes first unless ``month_first`` says otherwise. A time of
    day is left out.
    """
    plain = _TIME.sub("", text)
    found = _YEAR_FIRST.fullmatch(plain)
    if found:
        year, month, day = map(int, found.groups())
    else:
        found = _YEAR_LAST.fullmatch(plain)
        if not found:
            return text
        first, second, year = map(int, found.groups())
        day, month = (second, first) if month_first else (first, second)
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return text


def write_phone(text: str, country: str = "") -> str:
    """A telephone number as its digits with the country's code.

    "+49 (0)170 1234" and "0049 170 1234" are 491701234; with ``country="49"`` so is "0170 1234".
    """
    abroad = text.lstrip().startswith("+")
    digits = keep_digits(text.replace("(0)", ""))
    if abroad:
        return digits
    if digits.startswith("00"):
        return digits[2:]
    if country and digits.startswith("0"):
        return country + digits[1:]
    return digits
