"""A first job from tables: ids and kinds as the files show them, steps that can run on them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from vfsl.align.overlap import count_common
from vfsl.completion.missing import LEAST_OVERLAP
from vfsl.data import Kind, PartyTable, check_labels
from vfsl.data.table import split_ids
from vfsl.errors import ConfigError, DataError
from vfsl.job.doctor import Checkup, examine_files, write_fields
from vfsl.job.mistakes import nearest
from vfsl.job.tables import Reading
from vfsl.rows import LEAST_HELD_OUT

TEST_SHARE = 0.2
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ROWS_PER_COLUMN = 12  # linear models want ten rows a column, of training rows
_MOST_CLASSES = 20


@dataclass(frozen=True)
class Draft:
    """What was found in the files.

    Attributes
    ----------
    files : dict of party to Path
    tables : dict of party to PartyTable
    ids : dict of party to str or list of str
    labels : dict of party to str or False
        What was said of labels; the first is to be predicted, False: no column is one.
    checkup : Checkup
        What the doctor found: how tables are read, how ids are compared.
    """

    files: Mapping[str, Path]
    tables: Mapping[str, PartyTable]
    ids: Mapping[str, str | list[str]]
    labels: Mapping[str, str | Literal[False]]
    checkup: Checkup

    @property
    def id_options(self) -> dict[str, Any]:
        """How ids are compared, where it is not as they are written."""
        best = self.checkup.best
        return {} if best is None else dict(best.options)

    @property
    def label(self) -> tuple[str, str] | None:
        """What is to be predicted, and by whom it is held."""
        named = [(party, name) for party, name in self.labels.items() if name is not False]
        return named[0] if named else None

    def common(self, parties: Iterable[str]) -> int:
        """How many rows these parties have in common."""
        named = {
            party: split_ids(self.tables[party].ids, len(self.tables[party].id_columns))
            for party in parties
        }
        return count_common(named, self.id_options).common

    @property
    def holders(self) -> list[str]:
        """Parties with columns, the label holder last: it asks the others."""
        found = [party for party, table in self.tables.items() if table.columns]
        if self.label is not None:
            found.sort(key=lambda party: party == (self.label or ("",))[0])
        return found

    @property
    def positives(self) -> str | None:
        """A party with ids and nothing else: those of known positives."""
        bare = [party for party, table in self.tables.items() if not table.columns]
        return bare[0] if len(bare) == 1 and len(self.holders) > 1 else None


def look_at(
    files: Mapping[str, Path],
    ids: Mapping[str, str | list[str]] | None = None,
    labels: Sequence[str] = (),
    no_labels: Sequence[str] = (),
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    id_section: Mapping[str, Any] | None = None,
) -> Draft:
    """Read the files and guess what was not said.

    Parameters
    ----------
    files : mapping of party to path
    ids : mapping of party to column or columns, optional
        Without it the columns that name each row once and have the most values in common.
    labels : sequence of str
        COLUMN or PARTY=COLUMN; the first is to be predicted, none of them is a feature.
    no_labels : sequence of str
        Parties of which no column is a label, whatever one looks like.
    sections, id_section
        How tables are read and ids are compared, as far as it was said.
    """
    if len(files) < 2:
        given = ", ".join(files) or "none"
        raise ConfigError(f"Two parties are needed; only {given} was given.")
    first = examine_files(files, ids, None, sections, id_section)
    chosen = first.ids
    headers = {party: list(one.headers) for party, one in first.patients.items()}
    said = _labels(labels, no_labels, headers, chosen)
    checkup = examine_files(files, chosen, said, sections, id_section)
    tables = {}
    for party, one in checkup.patients.items():
        if one.table is None:
            raise DataError(next(r.text for r in one.remarks if r.what == "cannot be read"))
        fields = {name: v for name, v in one.section.items() if name in Reading.model_fields}
        how = Reading.model_validate(fields)
        tables[party] = how.read(files[party], party, chosen[party], said.get(party))
    check_labels(tables, ask=in_options)
    draft = Draft(files, tables, chosen, said, checkup)
    if not checkup.best or not checkup.best.common:
        names = ", ".join(f"{party} {columns}" for party, columns in chosen.items())
        raise DataError(
            f"The files have no id in common, however they are compared ({names}); say which "
            "columns by --id PARTY=COLUMN."
        )
    return draft


def in_options(party: str, column: str) -> str:
    """What to say of a column that looks like a label, as options of a command."""
    return f"say --label {party}={column}, or --no-label {party}"


def _labels(
    labels: Sequence[str],
    no_labels: Sequence[str],
    headers: Mapping[str, list[str]],
    ids: Mapping[str, str | list[str]],
) -> dict[str, str | Literal[False]]:
    said: dict[str, str | Literal[False]] = {}
    for label in labels:
        party, column = _label(label, headers, ids)
        if party in said:
            raise ConfigError(f"--label names two columns of {party}; a party has one label.")
        said[party] = column
    for party in no_labels:
        if party not in headers or party in said:
            raise ConfigError(
                f"--no-label must be a party without a --label: {', '.join(headers)}. "
                f"Got {party!r} instead."
            )
        said[party] = False
    return said


def _label(
    label: str,
    headers: Mapping[str, list[str]],
    ids: Mapping[str, str | list[str]],
) -> tuple[str, str]:
    party, equals, column = label.partition("=")
    if equals and party in headers:
        owners = [party] if column in headers[party] else []
    else:
        column = label
        owners = [name for name, header in headers.items() if column in header]
    owners = [name for name in owners if column not in ids[name]]
    if len(owners) != 1:
        known = [name for header in headers.values() for name in header]
        said = "no file has" if not owners else f"the files of {' and '.join(owners)} have"
        raise ConfigError(
            f"--label must be a column of one file, or PARTY=COLUMN. Got {label!r}, which {said}"
            f"{nearest(column, known)}"
        )
    return owners[0], column


def job_text(draft: Draft, folder: Path) -> str:
    """The job as a commented TOML file for ``folder``; it loads and runs."""
    parts = [_head(draft), *(_party(draft, party, folder) for party in draft.files)]
    if draft.id_options:
        lines = ["[ids]                     # how ids are made comparable"]
        parts.append("\n".join([*lines, *write_fields(draft.id_options)]) + "\n")
    parts += _steps(draft)
    return "\n".join(parts)


def _head(draft: Draft) -> str:
    return f"""\
# A job for vfsl, drafted from {", ".join(path.name for path in draft.files.values())}.
# Run it by: vfsl run THIS-FILE; look before by: vfsl run THIS-FILE --dry-run.
[run]
seed = 0                  # fixes every draw on one machine; between organisations public ones
scheme = "auto"           # auto, bfv, paillier, or plain (no encryption: experiments only)
security = 128            # bits; 112 allows 2048-bit keys
key_holder = {_text("keys" if "K" in draft.files else "K")}          # holds the secret key, no data
"""


def _party(draft: Draft, party: str, folder: Path) -> str:
    table = draft.tables[party]
    path = os.path.relpath(draft.files[party].resolve(), folder.resolve())
    lines = [f"[parties.{_key(party)}]      # {len(table):,} rows", f"table = {_text(path)}"]
    lines.append(f"id = {_text(draft.ids[party])}")
    said = draft.labels.get(party)
    if said is not None:
        lines.append(f"label = {_text(said)}" if said else "label = false    # no column is one")
    section = draft.checkup.patients[party].section
    lines += write_fields({name: value for name, value in section.items() if name != "label"})
    for kind in (Kind.NUMERIC, Kind.CATEGORICAL):
        names = [name for name in table.features if table.kinds[name] is kind]
        if names:
            shown = ", ".join(map(_text, names[:12])) + (" …" if len(names) > 12 else "")
            lines.append(f"# {kind}: {shown}")
    if table.features and "kinds" not in section:
        name = table.features[0]
        other = "categorical" if table.kinds[name] is Kind.NUMERIC else "numeric"
        lines.append(
            f'# kinds = {{ {_key(name)} = "{other}" }}   # where an inferred kind is wrong'
        )
    return "\n".join(lines) + "\n"


def _steps(draft: Draft) -> list[str]:
    holders = draft.holders
    given, missing = _sides(draft)
    tested = draft.label is not None and round(TEST_SHARE * draft.common(holders)) >= LEAST_HELD_OUT
    parts = []
    if tested:
        parts.append(f"[test]\nshare = {TEST_SHARE}               # of the common rows, held out\n")
    fields = [f"given = {_text(given)}", f"missing = {_text(missing)}"]
    fields.append("# tau = 0.5              # route by association; without it by measured skill")
    complete = _step("complete", *fields, active=_can_complete(draft, given, missing))
    pair = [party for party in holders if party in (given, missing)]
    if pair != holders:
        # Completion is between two; only then are all of them aligned, to train together.
        parts += [_align(pair, "completion is between two"), complete]
    parts.append(_align(holders))
    if draft.positives is not None:
        marked = [f"positives = {_text(draft.positives)}", f"label_holder = {_text(holders[-1])}"]
        parts.append(_step("pu", *marked, "rounds = 20"))
    if pair == holders:
        parts.append(complete)
    if draft.label is None:
        return parts
    label = f"label = {_text(list(draft.label))}"
    model, *more = _model(draft)
    parts.append(_step("train", f"model = {_text(model)}", label, *more))
    if pair == holders:
        again = [f"model = {_text(model)}", 'name = "with completed rows"', label]
        again.append('rows = "completed"       # also rows that only one party has')
        parts.append(_step("train", *again, *more, active=_can_complete(draft, given, missing)))
    risa = [
        'model = "risa"           # all rows of all parties; needs PyTorch',
        label,
    ]
    parts.append(_step("train", *risa, active=False))
    if tested:
        parts.append(_step("evaluate"))
    return parts


def _sides(draft: Draft) -> tuple[str, str]:
    """Whose rows are completed, and whose columns they lack."""
    holders = draft.holders
    if len(holders) < 2:
        raise ConfigError(
            "A job needs two files with columns beside the id. Got "
            f"{len(holders)} instead; look at --id."
        )
    if draft.label is not None:
        given = draft.label[0]
    else:
        given = max(holders, key=lambda party: len(draft.tables[party]))
    return given, next(party for party in holders if party != given)


def _can_complete(draft: Draft, given: str, missing: str) -> bool:
    common = draft.common((given, missing))
    training = common - round(TEST_SHARE * common)
    enough = training >= LEAST_OVERLAP and len(draft.tables[given]) > common
    return enough and all(draft.tables[party].features for party in (given, missing))


def _model(draft: Draft) -> tuple[str, ...]:
    """A model that fits the label and the rows, and the settings that it needs."""
    holder, column = draft.label or ("", "")
    values = draft.tables[holder].column(column).dropna()
    number = pd.api.types.is_numeric_dtype(values.dtype) and values.nunique() > _MOST_CLASSES
    widths = [_width(draft.tables[party]) for party in draft.holders]
    if (1 - TEST_SHARE) * draft.common(draft.holders) >= _ROWS_PER_COLUMN * max(widths):
        return ("linear",) if number else ("logistic",)
    return ("xgb", 'task = "regression"') if number else ("xgb",)


def _width(table: PartyTable) -> int:
    """Columns once categories are written as numbers."""
    return sum(
        1 if table.kinds[name] is Kind.NUMERIC else table.column(name).nunique() + 1
        for name in table.features
    )


def _align(parties: list[str], why: str = "") -> str:
    named = f"parties = {_text(parties)}" + (f"    # {why}" if why else "")
    return _step("align", named, 'protocol = "ecdh"         # or "blind-rsa"')


def _step(do: str, *fields: str, active: bool = True) -> str:
    lines = ["[[steps]]", f'do = "{do}"', *fields]
    if not active:
        lines = [line if line.startswith("#") else f"# {line}" for line in lines]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str | list[str]) -> str:
    """A string or list of strings as TOML, which writes them as JSON does."""
    return json.dumps(value, ensure_ascii=False)
