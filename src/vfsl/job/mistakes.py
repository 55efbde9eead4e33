"""Mistakes in job files as sentences: the field, what came, what was expected, the nearest name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from pydantic import ValidationError

Location = tuple[int | str, ...]
KnownFields = Callable[[Location], Sequence[str]]
# Fields that name a column and whose it is.
_PAIRS = ("label", "column")


def sentence(error: ValidationError, known: KnownFields, place: str = "") -> str:
    """The first mistake, in one sentence.

    Parameters
    ----------
    error : ValidationError
    known : function
        From the place of an unknown field to the fields that are known there.
    place : str
        Where the checked values stand, such as "step 2".
    """
    first = error.errors()[0]
    where = name_place(first["loc"], place)
    kind, given = first["type"], first.get("input")
    if kind == "extra_forbidden":
        return (
            f"{where} is not a known field{nearest_or_all(first['loc'][-1], known(first['loc']))}"
        )
    if kind == "missing" and not isinstance(first["loc"][-1], int):
        return f"{where} is missing."
    if kind == "value_error":
        return _own_words(where, str(first["ctx"]["error"]))
    if kind == "too_short" and first["loc"] == ("parties",):
        named = ", ".join(map(str, given or [])) or "none"
        return f"Two parties are needed; only {named} was given."
    if kind == "too_short":
        return f"{where} must have at least one item. Got none instead."
    if (
        first["loc"]
        and first["loc"][-1] in _PAIRS
        and kind in ("tuple_type", "missing", "too_long")
    ):
        return f"{where} must be [party, column]. Got {given!r:.80} instead."
    if len(first["loc"]) > 1 and first["loc"][-2] in _PAIRS:
        whole = name_place(first["loc"][:-1], place)
        return f"{whole} must be [party, column]. Got {given!r:.80} instead."
    wanted = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    choices = re.findall(r"'([^']*)'", wanted) if kind == "literal_error" else []
    return f"{where} must be {wanted}. Got {given!r:.80} instead{nearest(given, choices)}"


def _own_words(where: str, text: str) -> str:
    """What a check of ours said: of a whole part, of a field in it (.field …), or of a value."""
    if text.startswith("must "):
        return f"{where} {text}"
    if text.startswith("."):
        text = f": {text[1:]}"
    whole = f"{where}{text}" if text.startswith(": ") else text
    return whole if whole.endswith(("?", ".")) else f"{whole}."


def wrong(wanted: str, given: object, choices: Iterable[str] = ()) -> ValueError:
    """For checks of single fields: the sentence gets the field's place in front."""
    return ValueError(f"must be {wanted}. Got {given!r:.80} instead{nearest(given, choices)}")


def name_place(location: Location, start: str = "") -> str:
    """A location as people write it: step 2: model; parties.A.table."""
    text = start
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            joint = ": " if text == start and start.startswith("step ") else "."
            text += f"{joint}{part}" if text else part
    return text or "The job"


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a sentence: the nearest of the known names as a question, or a full stop."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "."


def nearest_or_all(name: object, known: Sequence[str]) -> str:
    """The end of a sentence: the nearest of the known names, or all of them."""
    found = nearest(name, known)
    return found if found != "." else f"; known are {', '.join(known)}."
