"""The job file: a typed description of tables, steps and settings.

A mistake is one sentence that names the field, what came and what was expected.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vfsl.errors import ConfigError
from vfsl.estimators.saved import MODELS, Model
from vfsl.pu import VFPU


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


class PuStep(_Strict):
    """Find reliable positives among the aligned rows, by the ids of a positive holder."""

    do: Literal["pu"]
    positives: str
    label_holder: str
    base: Literal["lr", "rf", "gbdt", "xgb", "lgb"] = "lr"
    preset: Literal["default", "seed"] = "default"
    outer: int | None = Field(default=None, ge=1)
    rounds: int | None = Field(default=None, ge=1)
    promote: float | None = Field(default=None, gt=0, lt=1)
    row_lists: Literal["hidden", "seed"] | None = None
    spies: bool | None = None
    protocol: Literal["blind-rsa", "ecdh"] = "blind-rsa"
    consent: list[str] = []

    def method(self) -> VFPU:
        """VFPU with the settings that were given."""
        mine = {"do", "positives", "label_holder", "protocol", "consent"}
        return VFPU(**self.model_dump(exclude=mine, exclude_none=True))


Step = Annotated[AlignStep | TrainStep | PuStep, Field(discriminator="do")]
STEPS = ("align", "train", "pu")


class Job(_Strict):
    """A whole job."""

    run: RunSection = RunSection()
    parties: dict[str, PartySection] = Field(min_length=2)
    steps: list[Step] = Field(min_length=1)

    @model_validator(mode="after")
    def _parties_exist(self) -> Job:
        for number, step in enumerate(self.steps):
            for party in _named(step):
                if party not in self.parties:
                    raise ValueError(
                        f"steps[{number}] names party {party!r}, which has no table; the parties "
                        f"are {', '.join(self.parties)}"
                    )
        return self

    @model_validator(mode="after")
    def _positives_stand_apart(self) -> Job:
        aligned: list[str] = []
        for number, step in enumerate(self.steps):
            if isinstance(step, AlignStep):
                aligned = step.parties or list(self.parties)
            elif isinstance(step, PuStep):
                _check_pu(step, f"steps[{number}]", aligned)
        return self


def _check_pu(step: PuStep, where: str, aligned: list[str]) -> None:
    """What would otherwise be refused only after the work."""
    if step.positives in aligned:
        raise ValueError(
            f"{where}.positives is {step.positives!r}, which is aligned; the align step must name "
            "the parties that hold columns, without the positive holder"
        )
    if step.label_holder not in aligned:
        raise ValueError(
            f"{where}.label_holder must be an aligned party. Got {step.label_holder!r} instead"
        )
    if step.consent and sorted(set(step.consent)) != sorted(aligned):
        raise ValueError(
            f"{where}.consent must name all parties that hold columns, {', '.join(aligned)}, or "
            f"none. Got {', '.join(step.consent)} instead"
        )


def _named(step: AlignStep | TrainStep | PuStep) -> list[str]:
    """The parties that a step names."""
    if isinstance(step, AlignStep):
        return step.parties or []
    if isinstance(step, TrainStep):
        return [step.label[0]]
    return [step.positives, step.label_holder, *step.consent]


def check(content: Mapping[str, Any]) -> Job:
    """A job from plain values."""
    try:
        return Job.model_validate(content)
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from None


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
        return f"{where}.do is missing; it must be one of {', '.join(map(repr, STEPS))}."
    if kind == "value_error":
        return f"{first['ctx']['error']}."
    wanted = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return f"{where} must be {wanted}. Got {given!r:.80} instead."


def _place(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in STEPS or not text.endswith("]"):  # the tag of a step
            text += f".{part}" if text else part
    return text or "The job"


def _nearest(location: tuple[int | str, ...]) -> str:
    models: Mapping[str, type[BaseModel]] = {
        "run": RunSection,
        "parties": PartySection,
        "align": AlignStep,
        "train": TrainStep,
        "pu": PuStep,
    }
    owner = next(
        (models[str(part)] for part in reversed(location[:-1]) if str(part) in models), Job
    )
    known = list(owner.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
