"""How a table is read and ids are compared: the same fields in job files, party files and options.

Their names are those of the parameters of `vfsl.data.read_table` and `vfsl.align.Normalise`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from vfsl.align import Normalise
from vfsl.data import PartyTable, read_ids, read_table
from vfsl.data.shaping import DATES
from vfsl.errors import ConfigError
from vfsl.job.mistakes import wrong

FILE_FIELDS = ("separator", "encoding")


class Strict(BaseModel):
    """No unknown fields, no silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _label(value: object) -> str | bool | None:
    if value is not None and value is not False and not isinstance(value, str):
        raise wrong("a column, or false where no column is a label", value)
    return value


def _dates(value: object) -> Any:
    known = list(value.values()) if isinstance(value, Mapping) else [value]
    if value is not None and any(one not in DATES for one in known):
        raise wrong("'days', 'parts' or 'both', or a table of columns with one of them", value)
    return value


def _id_columns(value: object) -> str | list[str]:
    several = isinstance(value, list) and value and all(isinstance(name, str) for name in value)
    if not isinstance(value, str) and not several:
        raise wrong("a column name, or a list of them", value)
    return value  # type: ignore[return-value]


# A party's label, which is never a feature; false says that no column is one.
LabelColumn = Annotated[str | Literal[False] | None, PlainValidator(_label)]
IdColumns = Annotated[str | list[str], PlainValidator(_id_columns)]


class Reading(Strict):
    """How a table is read."""

    kinds: dict[str, Literal["numeric", "categorical"]] = Field(
        default_factory=dict, description="Kinds of columns that differ from the inferred ones."
    )
    drop: list[str] = Field(default=[], description="Columns to leave out.")
    fold: list[str] = Field(
        default=[], description="Columns of text in which case and spaces mean nothing."
    )
    dates: Annotated[Any, PlainValidator(_dates)] = Field(
        default=None, description="Dates as days, parts (year, month, weekday) or both."
    )
    decimal: Literal[".", ","] = Field(default=".", description="The decimal mark of numbers.")
    thousands: Literal["", ",", ".", " ", "'"] = Field(
        default="", description="The mark between groups of three digits."
    )
    missing_values: list[str] = Field(
        default=[], description="Cells that mean missing, beside empty ones."
    )
    encoding: str = Field(default="utf-8", description="Of a CSV file, such as cp1252.")
    separator: str | None = Field(default=None, description="Between the cells of a CSV file.")
    duplicates: Literal["error", "first"] = Field(
        default="error", description="Rows that repeat an id: refuse them, or keep the first."
    )

    def read(
        self,
        path: Path,
        party: str,
        id: str | list[str],
        label: str | Literal[False] | None = None,
    ) -> PartyTable:
        """The party's table."""
        options = {name: getattr(self, name) for name in Reading.model_fields}
        return read_table(path, party=party, id=id, label=label, **options)

    def read_ids(
        self,
        path: Path,
        party: str,
        id: str | list[str],
        empty: Literal["error", "drop"] = "error",
    ) -> PartyTable:
        """Only the party's ids."""
        options = {name: getattr(self, name) for name in FILE_FIELDS}
        return read_ids(
            path, party=party, id=id, duplicates=self.duplicates, empty=empty, **options
        )


class Using(Reading):
    """How a table is read, and what models make of its missing cells."""

    missing: Literal["impute", "mean", "zero", "drop"] = Field(
        default="impute",
        description="Fill missing cells, count them as zero, or leave their rows out.",
    )


class IdSection(Strict):
    """How ids are made comparable; the same for all parties."""

    strip: bool = True
    case: Literal["keep", "lower", "fold"] = "keep"
    unicode: Literal["NFC", "NFKC", "none"] = "NFC"
    numbers: Literal["text", "integer"] = "text"
    remove: str = ""
    prefix: str = ""
    recipe: str | list[str] = "none"
    country: str = ""

    @model_validator(mode="after")
    def _fits(self) -> IdSection:
        try:
            self.normalise()
        except ConfigError as error:
            raise ValueError(f"ids: {error}") from None
        return self

    def normalise(self) -> Normalise:
        """As the alignment takes it."""
        return Normalise(**{one.name: getattr(self, one.name) for one in fields(Normalise)})


def name_options(options: Mapping[str, Any]) -> str:
    """Options of ids as a job file writes them: case = "fold", numbers = "integer"."""
    return ", ".join(f'{name} = "{value}"' for name, value in options.items())
