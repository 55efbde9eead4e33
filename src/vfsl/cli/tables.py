"""Options on how tables are read and ids are compared, the same in every command that reads files.

Their names are those of the fields of a job, and of the parameters in Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from vfsl.errors import ConfigError

PANEL = "Tables and ids"


def _option(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel=PANEL)


# Of tables: [PARTY=]VALUE, for all parties or for one.
READING: dict[str, Any] = {
    "kinds": _option("PARTY=COLUMN:numeric or :categorical, where the inferred kind is wrong."),
    "drop": _option("PARTY=COLUMN,COLUMN: columns to leave out."),
    "fold": _option("PARTY=COLUMN: text in which case and spaces mean nothing: YES is yes."),
    "dates": _option("days, parts or both; or PARTY=COLUMN:days. What becomes of dates."),
    "decimal": _option("[PARTY=], or .: the decimal mark."),
    "thousands": _option("[PARTY=], or . or ' or a space: the mark between groups of digits."),
    "missing_values": _option("[PARTY=]NA,?: cells that mean missing, beside empty ones."),
    "encoding": _option("[PARTY=]cp1252: of CSV files; utf-8 by default."),
    "separator": _option("[PARTY=]; between the cells of CSV files; found by default."),
    "duplicates": _option("[PARTY=]first: keep the first row of a repeated id, do not refuse it."),
}
# Of ids: the same for all parties.
IDS: dict[str, tuple[Any, Any, Any]] = {
    "strip": (bool, True, typer.Option(help="Ignore spaces around ids.", rich_help_panel=PANEL)),
    "case": (str, "keep", _option("keep, lower or fold: how letters of ids compare.")),
    "unicode": (str, "NFC", _option("NFC, NFKC or none.")),
    "numbers": (str, "text", _option("text: 007 is not 7; integer: it is.")),
    "remove": (str, "", _option('Characters to leave out of ids, such as "-. ".')),
    "prefix": (str, "", _option("A beginning to leave out of ids, such as CUST-.")),
    "recipe": (str, "none", _option("digits, date, us-date or phone; commas for composites.")),
    "country": (str, "", _option("The country's code of telephone numbers without one.")),
}


@dataclass(frozen=True)
class TableOptions:
    """What was said of tables and ids."""

    reading: dict[str, Sequence[str]] = field(default_factory=dict)
    ids: dict[str, Any] = field(default_factory=dict)

    def sections(self, parties: Iterable[str]) -> dict[str, dict[str, Any]]:
        """For each party the fields of its section that were given."""
        names = list(parties)
        found: dict[str, dict[str, Any]] = {name: {} for name in names}
        for option, values in self.reading.items():
            for value in values:
                party, equals, rest = value.partition("=")
                named = bool(equals) and party in names
                if not named and option in ("kinds", "drop", "fold"):
                    raise ConfigError(
                        f"{_dashed(option)} must be PARTY=COLUMN. Got {value!r} instead; the "
                        f"parties are {', '.join(names)}."
                    )
                for one in [party] if named else names:
                    _add(found[one], option, rest if named else value)
        return found

    def id_section(self) -> dict[str, Any]:
        """The fields of a job's section on ids that were given."""
        defaults = {name: default for name, (_, default, _) in IDS.items()}
        given = {name: value for name, value in self.ids.items() if value != defaults[name]}
        if "," in str(given.get("recipe", "")):
            given["recipe"] = str(given["recipe"]).split(",")
        return given


def _add(section: dict[str, Any], option: str, value: str) -> None:
    """One value of an option, as a field of a party's section."""
    if option in ("drop", "fold", "missing_values"):
        section.setdefault(option, []).extend(value.split(","))
    elif option == "kinds" or (option == "dates" and ":" in value):
        for pair in value.split(","):
            column, colon, word = pair.rpartition(":")
            if not colon:
                raise ConfigError(
                    f"{_dashed(option)} must be PARTY=COLUMN:KIND. Got {value!r} instead."
                )
            known = section.setdefault(option, {})
            if not isinstance(known, dict):
                raise ConfigError("--dates must be one word, or PARTY=COLUMN:WORD for each column.")
            known[column] = word
    else:
        section[option] = value


def _dashed(option: str) -> str:
    return "--" + option.replace("_", "-")


def parameters() -> dict[str, tuple[Any, Any]]:
    """The options as parameters of a command: type and default by name."""
    made: dict[str, tuple[Any, Any]] = {
        name: (Annotated[list[str] | None, option], None) for name, option in READING.items()
    }
    made |= {
        name: (Annotated[kind, option], default) for name, (kind, default, option) in IDS.items()
    }
    return made


def collect(given: dict[str, Any]) -> TableOptions:
    """Take the options out of what a command was given."""
    reading = {name: given.pop(name) or [] for name in READING}
    return TableOptions(reading, {name: given.pop(name) for name in IDS})


def takes_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options; it gets what was said as ``options``."""

    @wraps(command)
    def whole(**given: Any) -> None:
        options = collect(given)
        command(**given, options=options)

    hints = get_type_hints(command, include_extras=True)
    own = [one for one in inspect.signature(command).parameters.values() if one.name != "options"]
    own = [one.replace(annotation=hints[one.name]) for one in own]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in parameters().items()
    ]
    whole.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    whole.__annotations__ = {one.name: one.annotation for one in [*own, *more]}
    del whole.__wrapped__
    return whole
