"""The job file: a typed description of tables, steps and settings.

A mistake is one sentence that names the field, what came and what was expected. What a job says
without anybody's tables is a `SharedJob`: the same for all parties of a deployment.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, SerializeAsAny, ValidationError, model_validator

from vfsl.channel import CHANNELS
from vfsl.completion.fedpsg import check_pair
from vfsl.crypto import SCHEMES
from vfsl.data.checks import PARTY_NAME, is_party_name
from vfsl.errors import ConfigError
from vfsl.job.mistakes import Location, nearest, sentence, wrong
from vfsl.job.steps import (
    AlignStep,
    CompleteTerms,
    CountStep,
    EvaluateStep,
    Place,
    PuTerms,
    Step,
    TrainStep,
    make_step,
)
from vfsl.job.tables import IdColumns, IdSection, LabelColumn, Strict, Using
from vfsl.registry import Registry


def _one_of(special: Sequence[str], registry: Registry[Any], value: object) -> str:
    known = [*special, *registry.names()]
    if value not in known:
        raise wrong(f"one of {', '.join(map(repr, known))}", value, known)
    return str(value)


def _encrypting(value: object) -> str:
    known = ["auto", *(name for name in SCHEMES.names() if SCHEMES.find(name).hides)]
    if value not in known:
        raise wrong(f"one of {', '.join(map(repr, known))}", value, known)
    return str(value)


class RunSection(Strict):
    """Settings of the whole run."""

    seed: int = Field(default=0, ge=0)
    scheme: Annotated[str, PlainValidator(partial(_one_of, ("auto",), SCHEMES))] = "auto"
    security: Literal[128, 112] = 128
    channel: Annotated[str, PlainValidator(partial(_one_of, (), CHANNELS))] = "memory"
    key_holder: str = "K"
    # "seed": this run repeats exactly; "system": what parties hide is drawn anew, as between them.
    private_draws: Literal["seed", "system"] = "seed"
    # What tables of results are; without it CSV, and completed columns as the party's own table.
    results: Literal["csv", "parquet"] | None = None


class PartySection(Using):
    """One party's table, and how it is read."""

    table: str
    id: IdColumns
    label: LabelColumn = None


class TestSection(Strict):
    """Common rows that no step learns from, to evaluate on: a fraction by the seed, or a column."""

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


class JobSteps(Strict):
    """What a job of one machine and one between organisations have in common: test and steps."""

    parties: Any  # by name, or only their names
    ids: IdSection = IdSection()
    test: TestSection | None = None
    steps: list[SerializeAsAny[Step]] = Field(min_length=1)

    def aligned_before(self, number: int) -> tuple[str, ...]:
        """The parties of the last alignment before step ``number``, counted from 1."""
        chosen: tuple[str, ...] = ()
        for step in self.steps[: number - 1]:
            if isinstance(step, AlignStep):
                chosen = tuple(step.parties or self.party_names)
        return chosen

    def concerned_in(self, number: int) -> tuple[str, ...]:
        """The parties whose columns a step uses."""
        step = self.steps[number - 1]
        if isinstance(step, CompleteTerms):
            return (step.given, step.missing)
        return self.aligned_before(number)

    def completed_before(self, number: int) -> int | None:
        """The number of the last complete step since the last alignment, counted from 1."""
        found = None
        for place, step in enumerate(self.steps[: number - 1], start=1):
            if isinstance(step, AlignStep):
                found = None
            elif isinstance(step, CompleteTerms):
                found = place
        return found

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

    def labels_in_steps(self, party: str) -> list[str]:
        """The columns of a party that steps call a label."""
        named = [step.label_of(party) for step in self.steps]
        return list(dict.fromkeys(name for name in named if name is not None))

    @property
    def party_names(self) -> list[str]:
        """The parties with a table."""
        return list(self.parties)

    def _check_names(self, key_holder: str, of_key_holder: str) -> None:
        for party in (*self.party_names, key_holder):
            if not is_party_name(party):
                raise ValueError(
                    f"the name of a party must be {PARTY_NAME}. Got {party!r:.80} instead"
                )
        if key_holder in self.party_names:
            raise ValueError(of_key_holder)

    def _check_steps(self) -> None:
        """What would otherwise be refused only after the work."""
        parties = self.party_names
        if self.test is not None and self.test.column is not None:
            _check_known("test.column", self.test.column[0], parties)
        for place, step in enumerate(self.steps):
            where, aligned = f"step {place + 1}", self.aligned_before(place + 1)
            for party in step.named:
                _check_known(where, party, parties)
            if isinstance(step, AlignStep | CountStep):
                _check_chosen(step, where, parties)
            elif not aligned:
                raise ValueError(
                    f"{where} must come after an align step. Got do = {step.do!r} first instead"
                )
            elif isinstance(step, PuTerms):
                _check_pu(step, where, aligned)
            elif isinstance(step, CompleteTerms):
                _check_complete(step, where, aligned)
            elif isinstance(step, TrainStep):
                self._check_train(step, place, aligned)
            elif isinstance(step, EvaluateStep):
                self._check_evaluate(step, place)
            step.put_at(self._place_of(place + 1))

    def _place_of(self, number: int) -> Place:
        """Where a step stands, from 1, and what came before it."""
        completed = self.completed_before(number)
        made = None if completed is None else self.steps[completed - 1]
        before = None
        if isinstance(made, CompleteTerms) and completed is not None:
            before = (completed, made.given, made.missing)
        trained = {place: self.steps[place - 1] for place in self.trained_before(number)}
        marked = None
        for place, step in enumerate(self.steps[: number - 1], start=1):
            if isinstance(step, AlignStep):
                marked = None
            elif isinstance(step, PuTerms):
                marked = (place, step.label_holder)
        name = self._names().get(number, "")
        return Place(number, tuple(self.party_names), before, trained, marked, name)

    def _names(self) -> dict[int, str]:
        """What the models of train steps are called: as they say, else by model and rows."""
        steps = {n: s for n, s in enumerate(self.steps, start=1) if isinstance(s, TrainStep)}
        names = {
            n: s.name or (f"{s.model} with completed rows" if s.rows == "completed" else s.model)
            for n, s in steps.items()
        }
        said = [s.name for s in steps.values() if s.name is not None]
        for number, step in steps.items():
            if step.name is not None and said.count(step.name) > 1:
                raise ValueError(f"step {number}: name {step.name!r} is that of two steps")
        twice = [name for name in names.values() if list(names.values()).count(name) > 1]
        return {n: f"{name} (step {n})" if name in twice else name for n, name in names.items()}

    def _check_train(self, step: TrainStep, place: int, aligned: Sequence[str]) -> None:
        where = f"step {place + 1}"
        if step.label[0] not in aligned:
            raise ValueError(
                f"{where}: label must be at an aligned party. Got {step.label[0]!r} instead"
            )
        if step.rows != "completed":
            return
        completed = self.completed_before(place + 1)
        made = None if completed is None else self.steps[completed - 1]
        if not isinstance(made, CompleteTerms):
            raise ValueError(
                f"{where}: rows must be 'common' where no complete step comes before. Got "
                "'completed' instead"
            )
        if made.given != step.label[0]:
            raise ValueError(
                f"{where}: label must be at {made.given!r}, the given party of the complete step, "
                f"since completed rows have no label elsewhere. Got {step.label[0]!r} instead"
            )

    def _check_evaluate(self, step: EvaluateStep, place: int) -> None:
        where = f"step {place + 1}"
        if self.test is None:
            raise ValueError(
                f"{where} must have rows to evaluate on: add a [test] section with a share or a "
                "column. Got none instead"
            )
        trained = self.trained_before(place + 1)
        if not trained:
            raise ValueError(
                f"{where} must come after a train step since the last alignment. Got none before "
                "it instead"
            )
        for model in step.models or []:
            if model not in trained:
                raise ValueError(
                    f"{where}: models must be numbers of train steps since the last alignment: "
                    f"{', '.join(map(str, trained))}, counted from 1. Got {model} instead"
                )


class Job(JobSteps):
    """A whole job, with the tables of all parties."""

    run: RunSection = RunSection()
    parties: dict[str, PartySection] = Field(min_length=2)

    @model_validator(mode="after")
    def _fits_together(self) -> Job:
        holder = self.run.key_holder
        self._check_names(
            holder,
            f"{holder} is reserved for the key holder, who has no table; rename the party, or "
            "choose another run.key_holder",
        )
        self._check_steps()
        for place, step in enumerate(self.steps):
            for party, section in self.parties.items():
                name = step.label_of(party)
                if name is not None and section.label is False:
                    raise ValueError(
                        f"step {place + 1}: label names {name!r} of {party}, but "
                        f"parties.{party}.label is false; name the label there"
                    )
        return self

    def labels_of(self, party: str) -> list[str]:
        """The columns of a party that the job calls a label anywhere; none of them is a feature."""
        own = self.parties[party].label
        named = [*([own] if isinstance(own, str) else []), *self.labels_in_steps(party)]
        return list(dict.fromkeys(named))

    def holders_of_features(self) -> list[str]:
        """The parties whose columns some step learns from."""
        found: list[str] = []
        for number, step in enumerate(self.steps, start=1):
            if not isinstance(step, AlignStep | CountStep | EvaluateStep):
                found += self.aligned_before(number)
        return list(dict.fromkeys(found))


class RunTerms(Strict):
    """Settings of a run between organisations: no ``plain`` scheme and no local channel."""

    seed: int = 0
    scheme: Annotated[str, PlainValidator(_encrypting)] = "auto"
    security: Literal[128, 112] = 128
    key_holder: str = "K"
    seconds: float = Field(default=600.0, gt=0, strict=False)  # longest wait for one message


class SharedJob(JobSteps):
    """What all parties of a run between organisations know of it."""

    run: RunTerms = RunTerms()
    parties: list[str] = Field(min_length=2)

    @model_validator(mode="after")
    def _fits_together(self) -> SharedJob:
        holder = self.run.key_holder
        self._check_names(holder, f"the key holder {holder!r} must have no table")
        if len(set(self.parties)) != len(self.parties):
            raise ValueError("parties names a party twice")
        if not isinstance(self.steps[0], AlignStep | CountStep):
            raise ValueError("the first step must be an align step, or a count step")
        self._check_steps()
        return self

    @property
    def everyone(self) -> tuple[str, ...]:
        return (*self.parties, self.run.key_holder)

    def to_plain(self) -> dict[str, Any]:
        """As plain values: what was given, nothing else."""
        return self.model_dump(mode="json", exclude_unset=True)


def _check_known(where: str, party: str, parties: Sequence[str]) -> None:
    if party not in parties:
        raise ValueError(
            f"{where} names party {party!r}, which has no table; the parties are "
            f"{', '.join(parties)}{nearest(party, parties)}"
        )


def _check_chosen(step: AlignStep | CountStep, where: str, parties: Sequence[str]) -> None:
    chosen = parties if step.parties is None else step.parties
    if len(chosen) < 2 or len(set(chosen)) != len(chosen):
        raise ValueError(
            f"{where}: parties must name two or more different parties. Got {chosen} instead"
        )


def _check_pu(step: PuTerms, where: str, aligned: Sequence[str]) -> None:
    if step.positives in aligned:
        raise ValueError(
            f"{where}: positives is {step.positives!r}, which is aligned; the align step must name "
            "the parties that hold columns, without the positive holder"
        )
    if step.label_holder not in aligned:
        raise ValueError(
            f"{where}: label_holder must be an aligned party. Got {step.label_holder!r} instead"
        )
    if step.consent and sorted(set(step.consent)) != sorted(aligned):
        raise ValueError(
            f"{where}: consent must name all parties that hold columns, {', '.join(aligned)}, or "
            f"none. Got {', '.join(step.consent)} instead"
        )


def _check_complete(step: CompleteTerms, where: str, aligned: Sequence[str]) -> None:
    for name in ("given", "missing"):
        if getattr(step, name) not in aligned:
            raise ValueError(
                f"{where}: {name} must be an aligned party. Got {getattr(step, name)!r} instead"
            )
    if step.advice_trees is not None and step.label is None:
        raise ValueError(
            f"{where}: advice_trees must come with a label to advise on. Got {step.advice_trees} "
            "without one instead"
        )
    if step.given == step.missing:
        raise ValueError(
            f"{where}: missing must be another party than given. Got {step.missing!r} instead"
        )
    try:
        check_pair(step.given, step.missing, aligned)
    except ConfigError as error:
        raise ValueError(f"{where}: {error}") from None


def check(content: Mapping[str, Any], kind: type[JobSteps] = Job) -> Any:
    """A job from plain values; ConfigError with one sentence for the first mistake."""
    content = dict(content)
    listed = content.get("steps")
    if isinstance(listed, list):
        content["steps"] = [
            step if isinstance(step, Step) else make_step(step, f"step {place + 1}")
            for place, step in enumerate(listed)
        ]
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise ConfigError(sentence(error, _known_fields(kind))) from None


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
        job: Job = check(content)
    except ConfigError as error:
        raise ConfigError(f"In {path}: {error}") from None
    return job


def _known_fields(kind: type[JobSteps]) -> Any:
    """The fields that are known where an unknown one was found."""
    sections: dict[str, type[Strict]] = {
        "test": TestSection,
        "parties": PartySection,
        "ids": IdSection,
    }
    sections["run"] = RunSection if kind is Job else RunTerms

    def known(location: Location) -> list[str]:
        owner = sections.get(str(location[0]), kind) if len(location) > 1 else kind
        return list(owner.model_fields)

    return known
