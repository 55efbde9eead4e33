"""The job file: a typed description of tables, steps and settings.

A mistake is one sentence that names the field, what came and what was expected.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationError, model_validator

from vfsl.completion.fedpsg import check_pair
from vfsl.data.checks import PARTY_NAME, is_party_name
from vfsl.errors import ConfigError
from vfsl.job.fields import (
    STEP_FIELDS,
    STEPS,
    AlignStep,
    AnyStep,
    CompleteStep,
    EvaluateStep,
    LabelColumn,
    PuStep,
    Step,
    Strict,
    TrainStep,
)
from vfsl.job.mistakes import Location, nearest, sentence, wrong

__all__ = [
    "STEPS",
    "AlignStep",
    "AnyStep",
    "CompleteStep",
    "EvaluateStep",
    "Job",
    "PartySection",
    "PuStep",
    "RunSection",
    "Step",
    "TestSection",
    "TrainStep",
    "check",
    "load_job",
]


def _id_columns(value: object) -> str | list[str]:
    several = isinstance(value, list) and value and all(isinstance(name, str) for name in value)
    if not isinstance(value, str) and not several:
        raise wrong("a column name, or a list of them", value)
    return value  # type: ignore[return-value]


class RunSection(Strict):
    """Settings of the whole run."""

    seed: int = Field(default=0, ge=0)
    scheme: Literal["auto", "plain", "paillier", "bfv"] = "auto"
    security: Literal[128, 112] = 128
    channel: Literal["memory", "processes"] = "memory"
    key_holder: str = "K"
    # "seed": this run repeats exactly; "system": what parties hide is drawn anew, as between them.
    private_draws: Literal["seed", "system"] = "seed"


class PartySection(Strict):
    """One party's table."""

    table: str
    id: Annotated[str | list[str], PlainValidator(_id_columns)]
    label: LabelColumn = None
    kinds: dict[str, Literal["numeric", "categorical"]] = Field(default_factory=dict)
    duplicates: Literal["error", "first"] = "error"


class TestSection(Strict):
    """Common rows that no step learns from, to evaluate on: a share by the seed, or a column."""

    __test__ = False  # pytest takes the name for a test

    share: float | None = Field(default=None, gt=0, lt=1)
    column: tuple[str, str] | None = Field(default=None, strict=False)

    @model_validator(mode="after")
    def _one_of_them(self) -> TestSection:
        if (self.share is None) == (self.column is None):
            raise ValueError(
                "test must have either share or column. Got "
                f"{'neither' if self.share is None else 'both'} instead"
            )
        return self


class Job(Strict):
    """A whole job."""

    run: RunSection = RunSection()
    parties: dict[str, PartySection] = Field(min_length=2)
    test: TestSection | None = None
    steps: list[Step] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits_together(self) -> Job:
        for party in (*self.parties, self.run.key_holder):
            if not is_party_name(party):
                raise ValueError(
                    f"the name of a party must be {PARTY_NAME}. Got {party!r:.80} instead"
                )
        if self.run.key_holder in self.parties:
            raise ValueError(
                f"run.key_holder must be no party with a table. Got {self.run.key_holder!r} instead"
            )
        if self.test is not None and self.test.column is not None:
            _known_party("test.column", self.test.column[0], self.parties)
        aligned: list[str] = []
        for number, step in enumerate(self.steps):
            where = f"steps[{number}]"
            for party in _named(step):
                _known_party(where, party, self.parties)
            _check_label(step, where, self.parties)
            if isinstance(step, AlignStep):
                aligned = _aligned(step, where, list(self.parties))
                continue
            if not aligned:
                raise ValueError(
                    f"{where} must come after an align step. Got do = {step.do!r} first instead"
                )
            if isinstance(step, PuStep):
                _check_pu(step, where, aligned)
            elif isinstance(step, CompleteStep):
                _check_complete(step, where, aligned)
            elif isinstance(step, TrainStep):
                _check_train(step, where, aligned, self.steps[:number])
            else:
                _check_evaluate(step, where, self, number + 1)
        return self

    def labels_of(self, party: str) -> list[str]:
        """The columns of a party that the job calls a label anywhere; none of them is a feature."""
        named = [self.parties[party].label, *(_label_of(step, party) for step in self.steps)]
        return list(dict.fromkeys(name for name in named if isinstance(name, str)))

    def holders_of_features(self) -> list[str]:
        """The parties whose columns some step learns from."""
        aligned, found = [], []
        for step in self.steps:
            if isinstance(step, AlignStep):
                aligned = step.parties or list(self.parties)
            elif not isinstance(step, EvaluateStep):
                found += aligned
        return list(dict.fromkeys(found))

    def completed_before(self, number: int) -> int | None:
        """The number of the last complete step before step ``number``, counted from 1."""
        return _completed(self.steps[: number - 1])

    def trained_before(self, number: int) -> list[int]:
        """The numbers of the train steps that an evaluation at ``number`` can judge, from 1.

        Each alignment draws its own test rows, so a model of before may have learned from them;
        rows that a column marks are the same ones in each.
        """
        drawn = self.test is None or self.test.column is None
        found: list[int] = []
        for place, step in enumerate(self.steps[: number - 1], start=1):
            if isinstance(step, AlignStep) and drawn:
                found = []
            elif isinstance(step, TrainStep):
                found.append(place)
        return found


def _known_party(where: str, party: str, parties: Mapping[str, Any]) -> None:
    if party not in parties:
        end = nearest(party, parties)
        raise ValueError(
            f"{where} names party {party!r}, which has no table; the parties are "
            f"{', '.join(parties)}{end}"
        )


def _aligned(step: AlignStep, where: str, parties: list[str]) -> list[str]:
    chosen = parties if step.parties is None else step.parties
    if len(chosen) < 2 or len(set(chosen)) != len(chosen):
        raise ValueError(
            f"{where}.parties must name two or more different parties. Got {chosen} instead"
        )
    return chosen


def _label_of(step: AnyStep, party: str) -> str | None:
    """The column of a party that a step takes for a label."""
    if isinstance(step, TrainStep):
        return step.label[1] if step.label[0] == party else None
    return step.label if isinstance(step, CompleteStep) and step.given == party else None


def _check_label(step: AnyStep, where: str, parties: Mapping[str, PartySection]) -> None:
    for party, section in parties.items():
        name = _label_of(step, party)
        if name is not None and section.label is False:
            raise ValueError(
                f"{where}.label names {name!r} of {party}, but parties.{party}.label is false; "
                "name the label there"
            )


def _check_pu(step: PuStep, where: str, aligned: Sequence[str]) -> None:
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


def _check_complete(step: CompleteStep, where: str, aligned: Sequence[str]) -> None:
    for name in ("given", "missing"):
        if getattr(step, name) not in aligned:
            raise ValueError(
                f"{where}.{name} must be an aligned party. Got {getattr(step, name)!r} instead"
            )
    if step.advice_trees is not None and step.label is None:
        raise ValueError(
            f"{where}.advice_trees must come with a label to advise on. Got {step.advice_trees} "
            "without one instead"
        )
    if step.given == step.missing:
        raise ValueError(
            f"{where}.missing must be another party than given. Got {step.missing!r} instead"
        )
    try:
        check_pair(step.given, step.missing, aligned)
    except ConfigError as error:
        raise ValueError(f"{where}: {error}") from None


def _check_train(
    step: TrainStep, where: str, aligned: Sequence[str], before: Sequence[AnyStep]
) -> None:
    if step.label[0] not in aligned:
        raise ValueError(
            f"{where}.label must be at an aligned party. Got {step.label[0]!r} instead"
        )
    if step.rows == "completed":
        completed = _completed(before)
        made = None if completed is None else before[completed - 1]
        if not isinstance(made, CompleteStep):
            raise ValueError(
                f"{where}.rows must be 'common' where no complete step comes before. Got "
                "'completed' instead"
            )
        if made.given != step.label[0]:
            raise ValueError(
                f"{where}.label must be at {made.given!r}, the given party of the complete step, "
                f"since completed rows have no label elsewhere. Got {step.label[0]!r} instead"
            )


def _check_evaluate(step: EvaluateStep, where: str, job: Job, number: int) -> None:
    if job.test is None:
        raise ValueError(
            f"{where} must have rows to evaluate on: add a [test] section with a share or a "
            "column. Got none instead"
        )
    trained = job.trained_before(number)
    if not trained:
        raise ValueError(
            f"{where} must come after a train step since the last alignment. Got none before it "
            "instead"
        )
    for model in step.models or []:
        if model not in trained:
            raise ValueError(
                f"{where}.models must be numbers of train steps since the last alignment: "
                f"{', '.join(map(str, trained))}, counted from 1. Got {model} instead"
            )


def _completed(before: Sequence[AnyStep]) -> int | None:
    """The last complete step since the last alignment, counted from 1."""
    found = None
    for place, step in enumerate(before, start=1):
        if isinstance(step, AlignStep):
            found = None
        elif isinstance(step, CompleteStep):
            found = place
    return found


def _named(step: AnyStep) -> list[str]:
    """The parties that a step names."""
    if isinstance(step, AlignStep):
        return step.parties or []
    if isinstance(step, TrainStep):
        return [step.label[0]]
    if isinstance(step, CompleteStep):
        return [step.given, step.missing]
    if isinstance(step, PuStep):
        return [step.positives, step.label_holder, *step.consent]
    return []


def check(content: Mapping[str, Any]) -> Job:
    """A job from plain values."""
    try:
        return Job.model_validate(content)
    except ValidationError as error:
        raise ConfigError(sentence(error, known_fields, STEPS)) from None


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
        return check(content)
    except ConfigError as error:
        raise ConfigError(f"In {path}: {error}") from None


def known_fields(location: Location) -> list[str]:
    """The fields that are known where an unknown one was found."""
    sections: dict[str, type[Strict]] = {
        "run": RunSection,
        "test": TestSection,
        "parties": PartySection,
    }
    first = location[0]
    if first == "steps":
        return list(STEP_FIELDS[str(location[2])].model_fields)
    owner = sections.get(str(first), Job) if len(location) > 1 else Job
    return list(owner.model_fields)
