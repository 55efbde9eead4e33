"""The doctor: looks at files before any cryptography, says what is wrong and what mends it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from vfsl.align.overlap import Overlap, best_overlap, compare_ids
from vfsl.data import Kind, PartyTable
from vfsl.data.checks import counted
from vfsl.data.examine import (
    Remark,
    common_prefix,
    describe_ids,
    examine_cells,
    examine_table,
    guess_encoding,
)
from vfsl.data.files import read_raw
from vfsl.data.sources import locate_table, measure_table
from vfsl.errors import ConfigError, DataError
from vfsl.job.mistakes import nearest
from vfsl.job.schema import Job
from vfsl.job.tables import IdSection, Reading

IdColumns = str | list[str]
_UNIQUE = 0.9  # of its rows: a column that may name them
_SAMPLE = 20_000


@dataclass(frozen=True)
class Patient:
    """One file, looked at.

    Attributes
    ----------
    party : str
    path : Path
    rows, columns, size : int
        The size in bytes.
    id : str or list of str or None
        The id column(s); None: none was found.
    ids : str
        How ids are written.
    kinds : dict of Kind to columns
        As they would be read with the section.
    remarks : tuple of Remark
    section : dict
        Fields of the party's section of a job: what was said, and what mends the file.
    """

    party: str
    path: Path
    rows: int
    columns: int
    size: int
    id: IdColumns | None
    ids: str
    kinds: Mapping[Kind, Sequence[str]]
    remarks: tuple[Remark, ...]
    section: Mapping[str, Any]
    headers: tuple[str, ...] = ()
    table: PartyTable | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Checkup:
    """What the doctor found.

    Attributes
    ----------
    patients : dict of party to Patient
    overlaps : tuple of Overlap
        The common ids under each way to compare; none with one file or without ids.
    best : Overlap or None
    """

    patients: Mapping[str, Patient]
    overlaps: tuple[Overlap, ...] = ()
    best: Overlap | None = None

    @property
    def remarks(self) -> list[Remark]:
        return [remark for one in self.patients.values() for remark in one.remarks]

    @property
    def ids(self) -> dict[str, IdColumns]:
        """The id columns of each party; ConfigError where none was found."""
        for party, one in self.patients.items():
            if one.id is None:
                raise ConfigError(
                    f"No column of {party} names each row once and the same rows as the other "
                    f"files; say which by --id {party}=COLUMN."
                )
        return {party: one.id for party, one in self.patients.items() if one.id is not None}


def examine_files(
    files: Mapping[str, Path],
    ids: Mapping[str, IdColumns] | None = None,
    labels: Mapping[str, str | Literal[False]] | None = None,
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    id_section: Mapping[str, Any] | None = None,
) -> Checkup:
    """Look at the files of one owner.

    Parameters
    ----------
    files : mapping of party to path
    ids : mapping of party to column or columns, optional
        Without it the columns that name each row once and have the most values in common.
    labels : mapping of party to column or False, optional
    sections : mapping of party to fields, optional
        How tables are read, as far as it was said.
    id_section : mapping, optional
        How ids are compared, as far as it was said.
    """
    given = {party: dict((sections or {}).get(party, {})) for party in files}
    raw: dict[str, dict[str, pa.Array]] = {}
    encodings: dict[str, Remark] = {}
    for party, path in files.items():
        if "encoding" not in given[party] and path.suffix.lower() in (".csv", ".tsv"):
            remark = _find_encoding(party, path)
            if remark is not None:
                encodings[party] = remark
                given[party] |= remark.fix
        raw[party] = read_raw(
            path,
            party=party,
            ids=_as_list((ids or {}).get(party)),
            separator=given[party].get("separator"),
            encoding=given[party].get("encoding", "utf-8"),
        )
    chosen: dict[str, IdColumns | None] = {}
    chosen |= {party: (ids or {}).get(party) for party in files}
    if ids is None:
        chosen = _guess_ids(raw)
    for party, columns in chosen.items():
        for column in _as_list(columns):
            if column not in raw[party]:
                raise ConfigError(
                    f"--id must be a column of the file of {party}: {', '.join(raw[party])}. "
                    f"Got {column!r} instead{nearest(column, raw[party])}"
                )
    patients = {
        party: _examine(
            party,
            path,
            raw[party],
            chosen[party],
            (labels or {}).get(party),
            given[party],
            [encodings[party]] if party in encodings else [],
        )
        for party, path in files.items()
    }
    found = _compare(raw, chosen, IdSection.model_validate(dict(id_section or {})))
    return Checkup(patients, tuple(found), best_overlap(found) if found else None)


def examine_job(job: Job, folder: Path) -> Checkup:
    """Look at the files of a job as it reads them."""
    sections = {
        party: section.model_dump(include=set(Reading.model_fields), exclude_unset=True)
        for party, section in job.parties.items()
    }
    labels: dict[str, str | Literal[False]] = {}
    for party, section in job.parties.items():
        named = job.labels_of(party)
        if named or section.label is False:
            labels[party] = named[0] if named else False
    return examine_files(
        {party: locate_table(folder, section.table) for party, section in job.parties.items()},
        {party: section.id for party, section in job.parties.items()},
        labels,
        sections,
        job.ids.model_dump(),
    )


def _find_encoding(party: str, path: Path) -> Remark | None:
    if not path.is_file() or not path.stat().st_size:
        return None  # reading says what is wrong
    encoding = guess_encoding(path)
    if encoding == "utf-8":
        return None
    text = f"The file is not UTF-8 text; it reads as {encoding}."
    return Remark(party, (), "encoding", True, text, {"encoding": encoding})


def _examine(
    party: str,
    path: Path,
    raw: Mapping[str, pa.Array],
    id: IdColumns | None,
    label: str | Literal[False] | None,
    given: Mapping[str, Any],
    before: Sequence[Remark],
) -> Patient:
    """One file: what its cells show, what mends it, and what the mended table shows."""
    columns = _as_list(id)
    said = {*columns, *given.get("drop", []), *given.get("kinds", {})}
    remarks = [*before, *_examine_ids(party, raw, columns, given)]
    remarks += [one for one in examine_cells(party, raw, said) if not _is_said(one, given)]
    section = dict(given)
    for remark in remarks:
        _mend(section, remark.fix)
    table = None
    if columns:
        table, more = _read(path, party, id, label, section)
        remarks += more
        for remark in more:
            if remark.what != "leak":  # whether it is one, only people know
                _mend(section, remark.fix)
    rows = len(next(iter(raw.values()))) if raw else 0
    kinds: dict[Kind, list[str]] = {}
    for name, kind in {} if table is None else table.kinds.items():
        kinds.setdefault(kind, []).append(name)
    return Patient(
        party,
        path,
        rows,
        len(raw) - len(columns),
        measure_table(path),
        id,
        describe_ids([raw[name] for name in columns]) if columns else "",
        kinds,
        tuple(remarks),
        section,
        tuple(raw),
        table,
    )


def _read(
    path: Path,
    party: str,
    id: Any,
    label: str | Literal[False] | None,
    section: Mapping[str, Any],
) -> tuple[PartyTable | None, list[Remark]]:
    fields = {name: value for name, value in section.items() if name in Reading.model_fields}
    try:
        table = Reading.model_validate(fields).read(path, party, id, label)
    except DataError as error:
        return None, [Remark(party, (), "cannot be read", True, str(error))]
    return table, examine_table(table)


def _is_said(remark: Remark, given: Mapping[str, Any]) -> bool:
    """Whether somebody has decided on it already."""
    return any(name in given for name in remark.fix if name not in ("drop", "kinds"))


def _mend(section: dict[str, Any], fix: Mapping[str, Any]) -> None:
    for name, value in fix.items():
        if isinstance(value, list):
            section[name] = [
                *section.get(name, []),
                *(v for v in value if v not in section.get(name, [])),
            ]
        elif isinstance(value, Mapping):
            section[name] = {**section.get(name, {}), **value}
        else:
            section.setdefault(name, value)


def _as_list(columns: IdColumns | None) -> list[str]:
    if columns is None:
        return []
    return [columns] if isinstance(columns, str) else list(columns)


# ---- ids ----------------------------------------------------------------------------------------


def _examine_ids(
    party: str, raw: Mapping[str, pa.Array], columns: Sequence[str], given: Mapping[str, Any]
) -> list[Remark]:
    if not columns:
        return []
    cells = [pc.utf8_trim_whitespace(raw[name]) for name in columns]
    empty = sum(int(pc.sum(pc.equal(one, "")).as_py() or 0) + one.null_count for one in cells)
    joined = cells[0] if len(cells) == 1 else pc.binary_join_element_wise(*cells, "\x1f")
    repeats = len(joined) - joined.null_count - int(pc.count_distinct(joined).as_py())
    found = []
    if empty:
        text = (
            f"{counted(empty, 'row')} of {len(joined):,} without an id; delete such rows, or give "
            "them one."
        )
        found.append(Remark(party, tuple(columns), "empty ids", True, text))
    repeats -= max(empty - 1, 0)
    if repeats > 0 and given.get("duplicates") != "first":
        text = f"{counted(repeats, 'row')} of {len(joined):,} with an id that an earlier row has."
        fix = {"duplicates": "first"}
        found.append(Remark(party, tuple(columns), "duplicate ids", True, text, fix))
    return found


def _guess_ids(raw: Mapping[str, Mapping[str, pa.Array]]) -> dict[str, IdColumns | None]:
    """The columns that name rows and have the most values in common, of the same name if any."""
    able = {
        party: [name for name, cells in columns.items() if _may_name(cells)]
        for party, columns in raw.items()
    }
    parties = list(raw)
    same = [name for name in able[parties[0]] if all(name in able[p] for p in parties[1:])]
    choices: list[tuple[str, ...]] = [(name,) * len(parties) for name in same]
    if len(list(itertools.product(*able.values()))) <= 200:
        choices += [one for one in itertools.product(*able.values()) if len(set(one)) > 1]
    best: tuple[int, int, tuple[str, ...]] | None = None
    for names in choices:
        tables = {
            party: [raw[party][name].to_pylist()[:_SAMPLE]]
            for party, name in zip(parties, names, strict=True)
        }
        common = best_overlap(compare_ids(tables)).common
        rank = (common, 2 * (len(set(names)) == 1) + ("id" in names[0].lower()), names)
        if common and (best is None or rank[:2] > best[:2]):
            best = rank
    if best is None:
        return dict.fromkeys(parties)
    return dict(zip(parties, best[2], strict=True))


def _may_name(cells: pa.Array) -> bool:
    """Whether nearly every row has a value of its own, and no value is a decimal number."""
    rows = len(cells)
    if not rows or pc.any(pc.match_substring_regex(cells, r"^-?[0-9]+\.[0-9]+$")).as_py():
        return False
    return bool(pc.count_distinct(cells).as_py() >= _UNIQUE * rows)


def _compare(
    raw: Mapping[str, Mapping[str, pa.Array]],
    ids: Mapping[str, IdColumns | None],
    section: IdSection,
) -> list[Overlap]:
    if len(raw) < 2 or any(columns is None for columns in ids.values()):
        return []
    tables = {
        party: [raw[party][name].to_pylist() for name in _as_list(ids[party])] for party in raw
    }
    prefixes = [
        common_prefix(raw[party][_as_list(ids[party])[0]])
        for party in raw
        if len(tables[party]) == 1
    ]
    return compare_ids(tables, [one for one in prefixes if one], section.normalise())


# ---- what to write ------------------------------------------------------------------------------


def prescribe(checkup: Checkup) -> str:
    """What to put into a job, as TOML; empty where nothing is to be mended."""
    parts = []
    best, overlaps = checkup.best, checkup.overlaps
    if best is not None and best.options and best.common > overlaps[0].common:
        parts.append("\n".join(["[ids]", *write_fields(best.options)]))
    for party, one in checkup.patients.items():
        if any(remark.fix for remark in one.remarks):
            parts.append("\n".join([f"[parties.{party}]", *write_fields(one.section)]))
    return "\n\n".join(parts)


def write_fields(fields: Mapping[str, Any]) -> list[str]:
    """Fields of a section as lines of TOML."""
    return [f"{name} = {_write(value)}" for name, value in fields.items()]


def _write(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{json.dumps(k, ensure_ascii=False)} = {_write(v)}" for k, v in value.items()
        )
        return f"{{ {inner} }}"
    return json.dumps(value, ensure_ascii=False)
