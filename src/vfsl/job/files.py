"""Single steps on files: jobs that are made from options instead of a job file."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pandas as pd
from pydantic import ValidationError

from vfsl.align import Limits, Normalise
from vfsl.data import PartyTable, write_table
from vfsl.data.checks import counted
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import Estimator, load_model
from vfsl.estimators.trees import TreeModel
from vfsl.federation import Federation
from vfsl.job.common import find_common
from vfsl.job.drafting import in_options
from vfsl.job.mistakes import sentence
from vfsl.job.play import explain_to_file, predict_to_file, write_aligned
from vfsl.job.run import check_free, run_job
from vfsl.job.schema import check
from vfsl.job.tables import IdSection, Reading
from vfsl.progress import OnEvent
from vfsl.record import FILE_NAME

Ids = Mapping[str, str | list[str]]
Sections = Mapping[str, Mapping[str, Any]]


def step_files(
    files: Mapping[str, Path],
    ids: Ids,
    step: Mapping[str, Any],
    out: Path,
    *,
    labels: Mapping[str, str | Literal[False]] | None = None,
    sections: Sections | None = None,
    id_section: Mapping[str, Any] | None = None,
    test: float = 0.0,
    protocol: str = "ecdh",
    scheme: str = "auto",
    seed: int = 0,
    results: str | None = None,
    on_event: OnEvent | None = None,
) -> Federation:
    """Align files and do one step on them: a job of two steps, from options.

    Parameters
    ----------
    files, ids, out, protocol
        As in :func:`align_files`. A party whose ids are known positives is not aligned.
    step : mapping
        The fields of a pu, complete or train step, ``do`` among them.
    labels : mapping of party to column or False, optional
        Labels of the files, which are never features; False: no column is one.
    sections : mapping of party to fields, optional
        How its table is read, as in its section of a job.
    id_section : mapping, optional
        How ids are compared, as in the section of a job.
    test : float
        The fraction of the common rows to hold out from a train step and judge its model on.
    scheme, seed, results
        As in the run section of a job.
    """
    parties: dict[str, dict[str, Any]] = {
        party: {
            "table": str(path),
            "id": ids[party],
            "label": (labels or {}).get(party),
            **(sections or {}).get(party, {}),
        }
        for party, path in files.items()
    }
    aligned = [party for party in files if party != step.get("positives")]
    pair = {step.get("given"), step.get("missing")}
    if step["do"] == "complete" and len(pair.intersection(aligned)) == 2:
        for party in aligned:
            if party not in pair:
                raise ConfigError(
                    "A completion is between the given and the missing party alone. Got a table "
                    f"of {party!r} as well; leave it out."
                )
    content: dict[str, Any] = {
        "run": {"scheme": scheme, "seed": seed, "results": results},
        "parties": parties,
        "ids": dict(id_section or {}),
        "steps": [{"do": "align", "parties": aligned, "protocol": protocol}, dict(step)],
    }
    if step["do"] == "train" and test:
        content["test"] = {"share": test}
        content["steps"].append({"do": "evaluate"})
    try:
        job = check(content)
    except ConfigError as error:
        # The only step that options are about.
        raise ConfigError(str(error).removeprefix("step 2: ")) from None
    with _as_options():
        return run_job(job, Path(), out, on_event, in_options)


def predict_files(
    run: Path,
    files: Mapping[str, Path],
    ids: Ids,
    out: Path,
    *,
    sections: Sections | None = None,
    id_section: Mapping[str, Any] | None = None,
    model: str | None = None,
    rows: str = "overlap",
    offline: Sequence[str] = (),
    explain: bool = False,
    explain_columns: Sequence[str] = (),
    protocol: str = "ecdh",
    scheme: str = "auto",
    seed: int = 0,
    results: str | None = None,
    on_event: OnEvent | None = None,
) -> Federation:
    """Score the rows that new files have in common with a model of an earlier run.

    Parameters
    ----------
    run : Path
        The output folder of a run that trained a model.
    files, ids, out, protocol, sections, id_section
        As in :func:`align_files`. The label column need not be there.
    model : str, optional
        The model's name, if the run has several: model-2, for example.
    rows, offline
        As in `Estimator.decision_function`. Parties without a file must be offline, unless the
        label holder's is the only file: it then predicts all its rows by its own columns.
    explain : bool
        Whether the label holder learns what each party adds to the scores; trees.
    explain_columns : sequence of str
        Parties that learn what each of their own columns adds; trees.
    scheme, seed, results
        As in the run section of a job.
    """
    check_free(out)
    form = _form_of(results)
    known = sorted(path.stem for path in run.glob("model-*.json"))
    name = model or (known[0] if len(known) == 1 else None)
    if not known:
        raise ConfigError(
            f"There is no run in {run}."
            if not (run / FILE_NAME).exists()
            else f"The run in {run} has no model; it trained none."
        )
    if name not in known or name is None:
        raise ConfigError(
            f"The run in {run} has {counted(len(known), 'model')}: {', '.join(known)}; name one "
            "of them by --model."
        )
    fitted = load_model(run, name)
    holder, column = fitted.label_
    if holder not in files:
        raise ConfigError(f"The model needs a table of party {holder!r}; add it by --party.")
    for party in fitted.shares_:
        if party not in (*files, *offline) and len(files) > 1:
            raise ConfigError(
                f"The model needs a table of party {party!r}; add it by --party"
                + (f", or say --offline {party}." if fitted.predicts_without else ".")
            )
    offline = fitted.find_offline(files, offline, rows)
    whom: list[str | None] = [*([None] if explain else []), *explain_columns]
    _check_explained(fitted, whom, offline)
    here = [party for party in fitted.shares_ if party not in offline]
    how, compared = _readings(sections, here), _normalise(id_section)
    with _as_options():
        tables = {party: how[party].read(files[party], party, ids[party]) for party in here}
    tables[holder] = _with_label(tables[holder], column)
    settings: dict[str, Any] = {"scheme": scheme, "seed": seed, "on_event": on_event}
    if len(tables) == 1:
        fed = Federation.of_one(tables[holder], **settings)
    else:
        find_common(tables, compared)
        fed = Federation(tables, **settings)
    fed.sites[holder].form = form
    with _finished_folder(out) as folder:
        if len(tables) > 1:
            fed.align(protocol=protocol, normalise=compared)
        path = folder / "parties" / holder / f"predictions{form}"
        play = partial(
            predict_to_file,
            model=fitted,
            label=fitted.label_,
            path=path,
            rows=rows,
            offline=tuple(offline),
        )
        own = {party: {"share": fitted.shares_[party]} for party in tables}
        fed.play(play, own=own)
        for party, part in fed.parts(fitted.label_).items():
            for kind, frame in fitted.compare_rows(fitted.shares_[party], part).items():
                write_table(frame, folder / "parties" / party / f"{kind}.csv")
        if isinstance(fitted, TreeModel):
            play = partial(explain_to_file, model=fitted, label=fitted.label_)
            for one in whom:
                fed.play(partial(play, folder=folder / "parties", party=one), own=own)
        fed.record.save(folder)
        fed.report(folder / "report.html")
    return fed


def _check_explained(model: Estimator, whom: Sequence[str | None], offline: Sequence[str]) -> None:
    """Refuse to explain to parties that are not there, or what is not trees."""
    if whom and (offline or not isinstance(model, TreeModel)):
        raise ConfigError("Only scores of trees are explained, with all parties of the training.")
    for party in whom:
        if party is not None and party not in model.shares_:
            raise ConfigError(
                f"--explain-columns must name one of {', '.join(model.shares_)}. Got {party!r} "
                "instead."
            )


def _with_label(table: PartyTable, column: str) -> PartyTable:
    """New rows need no label; where they have one it is not a feature."""
    if column not in table.columns:
        return table
    values = pd.Series(table.column(column), dtype=object)
    return table.without([column]).with_column(column, values, "label")


def align_files(
    files: Mapping[str, Path],
    ids: Ids,
    out: Path,
    *,
    sections: Sections | None = None,
    id_section: Mapping[str, Any] | None = None,
    protocol: str = "ecdh",
    security: int = 128,
    hub: str | None = None,
    empty: Literal["error", "drop"] = "error",
    hide_sizes: bool = False,
    count_only: bool = False,
    limits: Limits | None = None,
    state: Path | None = None,
    seed: int | None = None,
    results: str | None = None,
    on_event: OnEvent | None = None,
) -> Federation:
    """Align the ids of files and write each party's aligned rows and plan below ``out``.

    Parameters
    ----------
    files, ids : mappings by party
        Where the table is, and which of its columns make the id.
    out : Path
        A new folder.
    sections : mapping of party to fields, optional
        How its file is read, as in its section of a job.
    id_section : mapping, optional
        How ids are compared, as in the section of a job.
    protocol, hub, empty, hide_sizes, limits
        As in `Federation.align`.
    count_only : bool
        Count the common ids, as `Federation.count_common` does, and write only the record.
    state : Path, optional
        A private folder for keys and finished values: the same command goes on where it was
        interrupted, and a grown list costs only its new ids.
    seed : int, optional
        Repeats the row order; by default the operating system draws it.
    results : {"csv", "parquet"}, optional
        What the files of aligned ids are.
    """
    check_free(out)
    form, how, compared = _form_of(results), _readings(sections, files), _normalise(id_section)
    with _as_options():
        tables = {
            party: how[party].read_ids(path, party, ids[party], empty)
            for party, path in files.items()
        }
    if not count_only:  # none is an answer, too
        find_common(tables, compared)
    first = any(reading.duplicates == "first" for reading in how.values())
    order = secrets.randbits(62) if seed is None else seed
    fed = Federation(tables, security=security, seed=order, on_event=on_event)
    folders = {} if state is None else {party: state / quote(party, safe="") for party in files}
    options: dict[str, Any] = {
        "hide_sizes": hide_sizes,
        "normalise": compared,
        "duplicates": "first" if first else "error",
        "empty": empty,
        "limits": limits,
        "state": folders,
    }
    with _finished_folder(out) as folder, _as_options():
        if count_only:
            fed.count_common(**options)
        else:
            plan = fed.align(protocol=protocol, hub=hub, **options)
            for party in plan.parties:
                fed.sites[party].form = form
                write_aligned(fed.sites[party], folder / "parties" / party)
            fed.save_plan(folder / "parties")
        fed.record.save(folder)
        fed.report(folder / "report.html")
    return fed


def _readings(sections: Sections | None, parties: Iterable[str]) -> dict[str, Reading]:
    found = {}
    for party in parties:
        try:
            found[party] = Reading.model_validate((sections or {}).get(party, {}))
        except ValidationError as error:
            where = f"parties.{party}"
            raise ConfigError(
                sentence(error, lambda _: list(Reading.model_fields), where)
            ) from None
    return found


def _normalise(section: Mapping[str, Any] | None) -> Normalise:
    try:
        return IdSection.model_validate(dict(section or {})).normalise()
    except ValidationError as error:
        raise ConfigError(sentence(error, lambda _: list(IdSection.model_fields), "ids")) from None


def _form_of(results: str | None) -> str:
    """The suffix of tables of results."""
    if results not in (None, "csv", "parquet"):
        raise ConfigError(f"--results must be csv or parquet. Got {results!r} instead.")
    return f".{results or 'csv'}"


@contextmanager
def _as_options() -> Iterator[None]:
    """Advice on repeated and empty ids in the words of a command's options."""
    try:
        yield
    except DataError as error:
        text = str(error).replace("duplicates='first'", "--duplicates first")
        raise DataError(text.replace("empty='drop'", "--empty drop")) from None


@contextmanager
def _finished_folder(out: Path) -> Iterator[Path]:
    """A folder that takes the name ``out`` when all of it is written, and goes if that fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as name:
        folder = Path(name) / "run"
        yield folder
        if out.exists():
            out.rmdir()
        shutil.move(folder, out)
