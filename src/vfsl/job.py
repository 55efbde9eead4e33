"""Jobs: a typed TOML file that says which tables, which steps and with which settings.

A mistake is one sentence that names the field, what came and what was expected; nothing is written
before the whole job has succeeded.
"""

from __future__ import annotations

import difflib
import hashlib
import secrets
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vfsl import store
from vfsl.align import Limits, Normalise
from vfsl.data import FILE_ROW, read_ids, read_table, write_table
from vfsl.errors import ConfigError, InputError
from vfsl.estimators import LinearRegression, load_model, save_model
from vfsl.estimators.saved import MODELS, Model
from vfsl.estimators.trees import TreeModel
from vfsl.federation import Federation, OnEvent
from vfsl.record import StepRecord
from vfsl.values import Array


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class RunSection(_Strict):
    """Settings of the whole run."""

    seed: int = 0
    scheme: Literal["auto", "plain", "paillier", "bfv"] = "auto"
    security: Literal[128, 112] = 128
    channel: Literal["memory", "processes"] = "memory"
    key_holder: str = "K"


class PartySection(_Strict):
    """One party's table."""

    table: str
    id: str | list[str]
    label: str | None = None
    kinds: dict[str, Literal["numeric", "categorical"]] = {}
    duplicates: Literal["error", "first"] = "error"


class AlignStep(_Strict):
    """Find the common rows."""

    do: Literal["align"]
    parties: list[str] | None = None
    protocol: Literal["blind-rsa", "ecdh"] = "blind-rsa"


class TrainStep(_Strict):
    """Train a federated model and predict the aligned rows."""

    do: Literal["train"]
    model: Literal["linear", "logistic", "rf", "gbdt", "xgb", "lgb"]
    label: tuple[str, str] = Field(strict=False)
    l2: float | None = Field(default=None, ge=0)
    max_rounds: int | None = Field(default=None, ge=1)
    refine: int | None = Field(default=None, ge=0)
    class_weight: Literal["balanced"] | None = None
    solver: Literal["rounds", "one-shot"] | None = None
    task: Literal["classes", "regression"] | None = None
    n_estimators: int | None = Field(default=None, ge=1)
    max_depth: int | None = Field(default=None, ge=0, le=30)
    max_leaves: int | None = Field(default=None, ge=2)
    max_bins: int | None = Field(default=None, ge=2, le=255)
    learning_rate: float | None = Field(default=None, gt=0, le=1)
    subsample: float | None = Field(default=None, gt=0, le=1)
    colsample: float | None = Field(default=None, gt=0, le=1)
    validation: float | None = Field(default=None, ge=0, le=0.9)
    patience: int | None = Field(default=None, ge=1)
    categories: Literal["one-vs-rest", "sorted"] | None = None
    keys: Literal["key-holder", "label-holder"] | None = None

    @model_validator(mode="after")
    def _fields_fit_the_model(self) -> TrainStep:
        known = _field_names(MODELS[self.model])
        for name in self._given():
            if name not in known:
                owners = [model for model, kind in MODELS.items() if name in _field_names(kind)]
                raise ValueError(f"{name} belongs to model = {' or '.join(map(repr, owners))}")
        return self

    def estimator(self) -> Model:
        """The model with the settings that were given."""
        return MODELS[self.model](**self._given())

    def _given(self) -> dict[str, Any]:
        return self.model_dump(exclude={"do", "model", "label"}, exclude_none=True)


def _field_names(kind: type[Any]) -> set[str]:
    return {field.name for field in fields(kind)}


Step = Annotated[AlignStep | TrainStep, Field(discriminator="do")]


class Job(_Strict):
    """A whole job."""

    run: RunSection = RunSection()
    parties: dict[str, PartySection] = Field(min_length=2)
    steps: list[Step] = Field(min_length=1)

    @model_validator(mode="after")
    def _parties_exist(self) -> Job:
        for number, step in enumerate(self.steps):
            named = step.parties or [] if isinstance(step, AlignStep) else [step.label[0]]
            for party in named:
                if party not in self.parties:
                    raise ValueError(
                        f"steps[{number}] names party {party!r}, which has no table; the parties "
                        f"are {', '.join(self.parties)}"
                    )
        return self


def load_job(path: Path) -> Job:
    """Read and check a job file."""
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"The job file {path} does not exist.") from None
    except IsADirectoryError:
        raise ConfigError(f"The job file {path} is a folder.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The job file {path} is not valid TOML: {error}.") from None
    try:
        return Job.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"In {path}: {_sentence(error)}") from None


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
                if isinstance(step, AlignStep):
                    _align(fed, step, checkpoints, number)
                    for party in step.parties or list(fed.tables):
                        _write_aligned(fed, party, folder_to_be)
                else:
                    _train(fed, step, folder_to_be, checkpoints, number)
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
    try:
        job = Job.model_validate(content)
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from None
    return run_job(job, Path(), out, on_event)


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
        _write_predictions(fitted, fed, folder / "parties" / holder / "predictions.csv")
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
            _write_aligned(fed, party, folder)
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


def _write_aligned(fed: Federation, party: str, out: Path) -> None:
    """The party's own ids of the common rows, in the common order."""
    table = fed.tables[party].take(fed.share(party).overlap)
    frame = table.to_frame()
    kept = [*table.id_columns, *([FILE_ROW] if FILE_ROW in frame else [])]
    write_table(frame[kept], out / "parties" / party / "aligned.csv")


def _align(fed: Federation, step: AlignStep, checkpoints: store.Checkpoints, number: int) -> None:
    """Align, or take up the alignment that an earlier attempt of this job finished."""
    name = f"step-{number}"
    plan = checkpoints.folder / name
    parties = step.parties or list(fed.tables)
    done = checkpoints.load(name)
    if done is not None:
        fed.load_plan(plan, *parties)
        fed.adopt(StepRecord.from_dict(done))
        return
    fed.align(*parties, protocol=step.protocol)
    fed.save_plan(plan)
    checkpoints.save(name, asdict(fed.record.steps[-1]))


def _train(
    fed: Federation, step: TrainStep, out: Path, checkpoints: store.Checkpoints, number: int
) -> None:
    """Train, keep the model and predict the aligned rows; trees go on from the last finished."""
    model = step.estimator()
    if isinstance(model, TreeModel):
        model = replace(model, checkpoints=checkpoints.folder / f"step-{number}-trees")
    model.fit(fed, label=step.label)
    save_model(model, out, f"model-{number}")
    path = out / "parties" / step.label[0] / f"predictions-{number}.csv"
    _write_predictions(model, fed, path)


def _write_predictions(model: Model, fed: Federation, path: Path) -> None:
    """The label holder's ids of the aligned rows with what the model says of them."""
    holder, column = model.label_
    table = fed.tables[holder].take(fed.parts(model.label_)[holder].rows)
    answer = table.to_frame()[list(table.id_columns)]
    write_table(answer.assign(**_predictions(model, fed, column)), path)


def _predictions(model: Model, fed: Federation, column: str) -> dict[str, Array]:
    if isinstance(model, LinearRegression) or getattr(model, "task", "") == "regression":
        return {f"predicted {column}": model.predict(fed)}
    probabilities = model.predict_proba(fed)
    most = model.classes_[probabilities.argmax(axis=1)]
    named = {f"p({column}={c})": p for c, p in zip(model.classes_, probabilities.T, strict=True)}
    return {f"predicted {column}": most, **named}


def _sentence(error: ValidationError) -> str:
    """The first mistake, in one sentence."""
    first = error.errors()[0]
    where = _place(first["loc"])
    kind, given = first["type"], first.get("input")
    if kind == "extra_forbidden":
        return f"{where} is not a known field{_nearest(first['loc'])}."
    if kind == "missing":
        return f"{where} is missing."
    if kind == "union_tag_invalid":
        context = first["ctx"]
        return (
            f"{where}.do must be one of {context['expected_tags']}. Got {context['tag']!r} instead."
        )
    if kind == "union_tag_not_found":
        return f"{where}.do is missing; it must be 'align' or 'train'."
    if kind == "value_error":
        return f"{first['ctx']['error']}."
    wanted = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return f"{where} must be {wanted}. Got {given!r:.80} instead."


def _place(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in ("align", "train") or not text.endswith("]"):  # the tag of a step
            text += f".{part}" if text else part
    return text or "The job"


def _nearest(location: tuple[int | str, ...]) -> str:
    models: Mapping[str, type[BaseModel]] = {
        "run": RunSection,
        "parties": PartySection,
        "align": AlignStep,
        "train": TrainStep,
    }
    owner = next(
        (models[str(part)] for part in reversed(location[:-1]) if str(part) in models), Job
    )
    fields = list(owner.model_fields)
    close = difflib.get_close_matches(str(location[-1]), fields, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(fields)}"
