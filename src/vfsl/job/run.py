"""Running jobs: every party on this machine; results appear when all of them are there."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pandas as pd

from vfsl import store
from vfsl.align import Limits, Normalise
from vfsl.data import read_ids, read_table
from vfsl.errors import ConfigError, InputError
from vfsl.estimators import load_model
from vfsl.federation import Federation, OnEvent
from vfsl.job.schema import Job, TrainStep, check
from vfsl.job.steps import do_step, write_aligned, write_predictions


def run_job(job: Job, folder: Path, out: Path, on_event: OnEvent | None = None) -> Federation:
    """Run a job whose paths are relative to ``folder``; results appear in ``out`` at its end.

    Until then finished alignments are kept in ``unfinished(out)``, from where the same job goes on.
    """
    _check_free(out)
    tables = {
        party: read_table(
            folder / section.table,
            party=party,
            id=section.id,
            label=section.label,
            kinds=dict(section.kinds),
            duplicates=section.duplicates,
        )
        for party, section in job.parties.items()
    }
    for step in job.steps:
        if isinstance(step, TrainStep):
            tables[step.label[0]].column(step.label[1])  # an unknown label is told before any work
    settings = job.run
    fed = Federation(
        tables,
        scheme=settings.scheme,
        security=settings.security,
        seed=settings.seed,
        on=settings.channel,
        key_holder=settings.key_holder,
        on_event=on_event,
    )
    job_hash = hashlib.sha256(job.model_dump_json().encode()).hexdigest()
    checkpoints = store.Checkpoints(unfinished(out), job_hash)
    try:
        with _finished_folder(out) as folder_to_be:
            for number, step in enumerate(job.steps, start=1):
                do_step(fed, step, folder_to_be, checkpoints, number)
            fed.record.save(folder_to_be)
            fed.report(folder_to_be / "report.html")
    except InputError:
        checkpoints.clear()  # the job has to change, so it cannot go on from here
        raise
    checkpoints.clear()
    return fed


def unfinished(out: Path) -> Path:
    """Where an unfinished run keeps what it has done."""
    return out.with_name(f"{out.name}.unfinished")


def train_files(
    files: Mapping[str, Path],
    ids: Mapping[str, str | list[str]],
    step: Mapping[str, Any],
    out: Path,
    *,
    protocol: str = "blind-rsa",
    scheme: str = "auto",
    seed: int = 0,
    on_event: OnEvent | None = None,
) -> Federation:
    """Align files and train one model on them: a job of two steps, from options.

    Parameters
    ----------
    files, ids, out, protocol
        As in :func:`align_files`.
    step : mapping
        The fields of a train step: model, label and the settings of that model.
    scheme, seed
        As in the run section of a job.
    """
    label = step.get("label") or ("", "")
    content = {
        "run": {"scheme": scheme, "seed": seed},
        "parties": {
            party: {"table": str(path), "id": ids[party]}
            | ({"label": label[1]} if party == label[0] else {})
            for party, path in files.items()
        },
        "steps": [{"do": "align", "protocol": protocol}, {"do": "train", **step}],
    }
    return run_job(check(content), Path(), out, on_event)


def pu_files(
    files: Mapping[str, Path],
    ids: Mapping[str, str | list[str]],
    step: Mapping[str, Any],
    out: Path,
    *,
    scheme: str = "auto",
    seed: int = 0,
    on_event: OnEvent | None = None,
) -> Federation:
    """Align files and find reliable positives: a job of two steps, from options.

    Parameters
    ----------
    files, ids, out
        As in :func:`align_files`; one of the files holds the ids of known positives.
    step : mapping
        The fields of a pu step: positives, label_holder and the settings of VFPU.
    scheme, seed
        As in the run section of a job.
    """
    aligned = [party for party in files if party != step.get("positives")]
    content = {
        "run": {"scheme": scheme, "seed": seed},
        "parties": {party: {"table": str(path), "id": ids[party]} for party, path in files.items()},
        "steps": [
            {"do": "align", "parties": aligned, "protocol": step.get("protocol", "blind-rsa")},
            {"do": "pu", **step},
        ],
    }
    return run_job(check(content), Path(), out, on_event)


def predict_files(
    run: Path,
    files: Mapping[str, Path],
    ids: Mapping[str, str | list[str]],
    out: Path,
    *,
    model: str | None = None,
    protocol: str = "blind-rsa",
    scheme: str = "auto",
    seed: int = 0,
    on_event: OnEvent | None = None,
) -> Federation:
    """Score the rows that new files have in common with a model of an earlier run.

    Parameters
    ----------
    run : Path
        The output folder of a run that trained a model.
    files, ids, out, protocol
        As in :func:`align_files`. The label column need not be there.
    model : str, optional
        The model's name, if the run has several: model-2, for example.
    scheme, seed
        As in the run section of a job.
    """
    _check_free(out)
    known = sorted(path.stem for path in run.glob("model-*.json"))
    name = model or (known[0] if len(known) == 1 else None)
    if name not in known or name is None:
        raise ConfigError(
            f"{run} has {len(known)} saved models ({', '.join(known) or 'none'}); "
            "name one of them by --model."
        )
    fitted = load_model(run, name)
    holder, column = fitted.label_
    missing = [party for party in fitted.shares_ if party not in files]
    if missing:
        raise ConfigError(f"The model needs a table of party {missing[0]!r}; add it by --party.")
    tables = {}
    for party in fitted.shares_:
        table = read_table(files[party], party=party, id=ids[party])
        if party == holder:
            values = table.column(column) if column in table.columns else [None] * len(table)
            table = (table.without([column]) if column in table.columns else table).with_column(
                column, pd.Series(values, dtype=object), "label"
            )
        tables[party] = table
    fed = Federation(tables, scheme=scheme, seed=seed, on_event=on_event)
    with _finished_folder(out) as folder:
        fed.align(protocol=protocol)
        write_predictions(fitted, fed, folder / "parties" / holder / "predictions.csv")
        fed.record.save(folder)
        fed.report(folder / "report.html")
    return fed


def align_files(
    files: Mapping[str, Path],
    ids: Mapping[str, str | list[str]],
    out: Path,
    *,
    protocol: str = "blind-rsa",
    security: int = 128,
    hub: str | None = None,
    normalise: Normalise | None = None,
    duplicates: str = "error",
    empty: Literal["error", "drop"] = "error",
    limits: Limits | None = None,
    state: Path | None = None,
    seed: int | None = None,
    on_event: OnEvent | None = None,
) -> Federation:
    """Align the ids of files and write each party's aligned rows and plan below ``out``.

    Parameters
    ----------
    files, ids : mappings by party
        Where the table is, and which of its columns make the id.
    out : Path
        A new folder.
    protocol, hub, normalise, duplicates, empty, limits
        As in `Federation.align`.
    state : Path, optional
        A private folder for keys and finished values: the same command goes on where it was
        interrupted, and a grown list costs only its new ids.
    seed : int, optional
        Repeats the row order; by default the operating system draws it.
    """
    _check_free(out)
    tables = {
        party: read_ids(path, party=party, id=ids[party], duplicates=duplicates, empty=empty)
        for party, path in files.items()
    }
    order = secrets.randbits(62) if seed is None else seed
    fed = Federation(tables, security=security, seed=order, on_event=on_event)
    folders = {} if state is None else {party: state / quote(party, safe="") for party in files}
    with _finished_folder(out) as folder:
        plan = fed.align(
            protocol=protocol,
            hub=hub,
            normalise=normalise,
            duplicates=duplicates,
            empty=empty,
            limits=limits,
            state=folders,
        )
        for party in plan.parties:
            write_aligned(fed, party, folder)
        fed.save_plan(folder / "parties")
        fed.record.save(folder)
        fed.report(folder / "report.html")
    return fed


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


def _check_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"The output folder {out} exists and is not empty; choose another name.")
