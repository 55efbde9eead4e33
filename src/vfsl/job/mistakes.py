"""Mistakes in job files as sentences: the field, what came, what was expected, the nearest name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from pydantic import ValidationError

Location = tuple[int | str, ...]
KnownFields = Callable[[Location], Sequence[str]]


def sentence(error: ValidationError, known: KnownFields, place: str = "") -> str:
    """The first mistake, in one sentence.

    Parameters
    ----------
    error : ValidationError
    known : function
        From the place of an unknown field to the fields that are known there.
    place : str
        Where the checked values stand, such as "steps[1]".
    """
    first = error.errors()[0]
    where = name_place(first["loc"], place)
    kind, given = first["type"], first.get("input")
    if kind == "extra_forbidden":
        return (
            f"{where} is not a known field{nearest_or_all(first['loc'][-1], known(first['loc']))}"
        )
    if kind == "missing":
        return f"{where} is missing."
    if kind == "value_error":
        return _own_words(where, str(first["ctx"]["error"]))
    wanted = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    choices = re.findall(r"'([^']*)'", wanted) if kind == "literal_error" else []
    return f"{where} must be {wanted}. Got {given!r:.80} instead{nearest(given, choices)}"


def _own_words(where: str, text: str) -> str:
    """What a check of ours said: of a whole part, of a field in it (.field …), or of a value."""
    if text.startswith("must "):
        return f"{where} {text}"
    whole = f"{where}{text}" if text.startswith((".", ": ")) else text
    return whole if whole.endswith(("?", ".")) else f"{whole}."


def wrong(wanted: str, given: object, choices: Iterable[str] = ()) -> ValueError:
    """For checks of single fields: the sentence gets the field's place in front."""
    return ValueError(f"must be {wanted}. Got {given!r:.80} instead{nearest(given, choices)}")


def name_place(location: Location, start: str = "") -> str:
    """A location as people write it: steps[1].model."""
    text = start
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text or "The job"


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a sentence: the nearest of the known names as a question, or a full stop."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "."


def nearest_or_all(name: object, known: Sequence[str]) -> str:
    """The end of a sentence: the nearest of the known names, or all of them."""
    found = nearest(name, known)
    return found if found != "." else f"; known are {', '.join(known)}."
