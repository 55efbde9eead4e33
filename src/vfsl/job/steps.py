"""The steps of a job file: which fields each has, checked by what the methods declare.

A method's parameters are fields of its step under the same names, with the same defaults, bounds
and help (vfsl.params). Each model has a type of train step, also those of other packages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    create_model,
    model_validator,
)

from vfsl.align import PROTOCOLS, Alignment
from vfsl.completion.fedpsg import FedPSG
from vfsl.completion.low_methods import read_low
from vfsl.errors import ConfigError
from vfsl.estimators import ESTIMATORS, Estimator
from vfsl.job.mistakes import nearest, nearest_or_all, sentence, wrong
from vfsl.job.tables import Strict
from vfsl.job.verdict import Way
from vfsl.model_selection.thresholds import Rule
from vfsl.params import Param, find_mistake, params_of
from vfsl.pu import VFPU

STEPS = ("align", "pu", "complete", "train", "evaluate", "count")
LABEL_DISCLOSURE = "label-disclosure"


def _protocol(value: object) -> str:
    if value not in PROTOCOLS.names():
        known = ", ".join(map(repr, PROTOCOLS.names()))
        raise wrong(f"one of {known}", value, PROTOCOLS.names())
    return str(value)


ProtocolName = Annotated[str, PlainValidator(_protocol)]


def _check_parameter(declared: Param, value: object) -> object:
    wanted = find_mistake(declared, value)
    if wanted is not None:
        names = [choice for choice in declared.choices if isinstance(choice, str)]
        odd = value
        if isinstance(value, list) and names:  # which of them
            odd = next((item for item in value if item not in names), value)
        raise wrong(wanted, odd, names)
    return value


def _with_parameters(name: str, base: type[Step], method: type) -> Any:
    """A type of step whose further fields are a method's declared parameters."""
    fields: dict[str, Any] = {
        declared.name: (
            Annotated[Any, PlainValidator(partial(_check_parameter, declared))],
            Field(default=declared.default, description=declared.help),
        )
        for declared in params_of(method).values()
        if declared.option
    }
    return create_model(name, __base__=base, __doc__=base.__doc__, **fields)


@dataclass(frozen=True)
class Place:
    """Where a step stands in its job, and what came before it.

    Attributes
    ----------
    number : int
        From 1.
    parties : tuple of str
        All parties of the job.
    completed : tuple of (number, given, missing) or None
        The last complete step since the last alignment.
    trained : mapping of number to TrainStep
        The train steps whose models can be judged here.
    marked : tuple of (number, label holder) or None
        The last pu step since the last alignment.
    name : str
        What the model of a train step is called in figures.
    """

    number: int = 0
    parties: tuple[str, ...] = ()
    completed: tuple[int, str, str] | None = None
    trained: Mapping[int, Any] = field(default_factory=dict)
    marked: tuple[int, str] | None = None
    name: str = ""


def _check_method(check: Callable[[], Any], field: str = "") -> None:
    """What a method refuses, as a mistake of its step or of a field of it."""
    try:
        check()
    except ConfigError as error:
        raise ValueError(f"{field}: {error}") from None


class Step(Strict):
    """One step of a job."""

    do: str
    _place: Place = PrivateAttr(default=Place())

    @property
    def place(self) -> Place:
        """Where it stands in its job."""
        return self._place

    def put_at(self, place: Place) -> None:
        """Say where in a job the step stands."""
        self._place = place

    def __reduce__(self) -> Any:
        # Types of steps are made when they are asked for: another process makes them again.
        return _make_again, (self.model_dump(exclude_unset=True), self._place)

    @property
    def named(self) -> list[str]:
        """The parties that the step names."""
        return []

    def label_of(self, party: str) -> str | None:
        """The column of a party that the step takes for a label."""
        return None

    def settings(self) -> dict[str, Any]:
        """The method's parameters that were given."""
        own = set(type(self).own_fields())
        return {name: getattr(self, name) for name in self.model_fields_set if name not in own}

    @classmethod
    def own_fields(cls) -> list[str]:
        """The fields that are no parameters of a method."""
        return list(cls.model_fields)


class AlignStep(Step):
    """Find the common rows."""

    do: Literal["align"]
    parties: list[str] | None = Field(default=None, description="Which parties; all by default.")
    protocol: ProtocolName = Field(default="ecdh", description="How ids are compared.")
    hide_sizes: bool = Field(
        default=False,
        description="With the protocol aided: hide from the key holder how long lists are.",
    )

    @property
    def named(self) -> list[str]:
        return self.parties or []

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> AlignStep:
        _check_method(partial(Alignment, protocol=self.protocol, hide_sizes=self.hide_sizes))
        return self


class CountStep(Step):
    """Count the common ids with the key holder's help; nobody learns which they are."""

    do: Literal["count"]
    parties: list[str] | None = Field(default=None, description="Which parties; all by default.")
    hide_sizes: bool = Field(
        default=False, description="Hide from the key holder how long lists are."
    )

    @property
    def named(self) -> list[str]:
        return self.parties or []


class PuTerms(Step):
    """Find reliable positives among the aligned rows, by the ids of a positive holder."""

    do: Literal["pu"]
    positives: str = Field(description="The party whose ids are known positives.")
    label_holder: str = Field(description="The party that receives marks and scores.")
    protocol: ProtocolName = Field(default="ecdh", description="How ids are compared.")
    all_rows: bool = Field(
        default=False, description="Score rows that only the label holder has, too."
    )
    consent: list[str] = Field(
        default=[], description="The parties that agree to send the result to the positive holder."
    )

    @property
    def named(self) -> list[str]:
        return [self.positives, self.label_holder, *self.consent]

    @classmethod
    def own_fields(cls) -> list[str]:
        return list(PuTerms.model_fields)

    @model_validator(mode="after")
    def _fits_the_method(self) -> PuTerms:
        _check_method(self.method().check)
        return self

    def method(self) -> VFPU:
        """VFPU with the parameters that were given."""
        return VFPU(**self.settings())


class CompleteTerms(Step):
    """Complete one party's columns for the rows that only the other one has."""

    do: Literal["complete"]
    given: str = Field(description="The party whose remaining rows are completed.")
    missing: str = Field(description="The party whose columns they lack.")
    label: str | None = Field(
        default=None, description="A column of the given party, for advice on training."
    )
    advice_trees: int | None = Field(
        default=None, ge=1, description="How many trees the models behind the advice have."
    )

    @property
    def named(self) -> list[str]:
        return [self.given, self.missing]

    def label_of(self, party: str) -> str | None:
        return self.label if party == self.given else None

    @classmethod
    def own_fields(cls) -> list[str]:
        return list(CompleteTerms.model_fields)

    @model_validator(mode="after")
    def _fits_the_method(self) -> CompleteTerms:
        low = self.settings().get("low")
        _check_method(lambda: read_low(low) if low is not None else None, ".low")
        _check_method(self.method().resolve)
        return self

    def method(self) -> FedPSG:
        """FedPSG with the parameters that were given."""
        return FedPSG(**self.settings())


class TrainStep(Step):
    """Train a federated model and predict the aligned rows."""

    do: Literal["train"]
    model: str = Field(description="The model's name.")
    label: tuple[str, str] = Field(strict=False, description="The label: party and column.")
    rows: Literal["common", "completed"] = Field(
        default="common", description="Train on common rows, or on completed ones as well."
    )
    name: str | None = Field(
        default=None, min_length=1, description="What figures call it; its model by default."
    )
    all_rows: bool = Field(
        default=False, description="Predict rows that only the label holder has, too."
    )
    threshold: Any = Field(
        default=None,
        description="From which probability on the second of two classes is predicted: a number, "
        "or one of {cost}, {precision}, {top}.",
    )
    accept: list[Literal["label-disclosure"]] = Field(
        default=[], description="What the model may tell the other parties."
    )
    estimator_type: ClassVar[type[Estimator]]

    @model_validator(mode="after")
    def _fits_the_model(self) -> TrainStep:
        kind = self.estimator_type
        if kind.uses_all_rows and self.rows != "common":
            raise ValueError(
                f".rows must be 'common' with model = {self.model!r}, which uses every row "
                f"already. Got {self.rows!r} instead"
            )
        if not kind.takes_weights and self.rows != "common":
            raise ValueError(
                f".rows must be 'common' with model = {self.model!r}, which takes no row weights. "
                f"Got {self.rows!r} instead"
            )
        model = self.estimator()
        _check_method(model.check)
        if self.threshold is not None:
            _check_method(lambda: Rule.read(self.threshold), ".threshold")
            if model.predicts == "numbers":
                raise ValueError(
                    ".threshold is for a label with two classes. Got it with a model that predicts "
                    "numbers instead"
                )
        if model.discloses_labels and LABEL_DISCLOSURE not in self.accept:
            raise ValueError(
                f".accept must be ['label-disclosure'] with model = {self.model!r} and protect = "
                "'none', which tells the other parties the labels of the rows that they train on"
            )
        if self.accept and not model.discloses_labels:
            raise ValueError(
                f".accept must be left out with model = {self.model!r} unless it has "
                "protect = 'none': it tells nobody labels"
            )
        return self

    @property
    def named(self) -> list[str]:
        return [self.label[0]]

    def label_of(self, party: str) -> str | None:
        return self.label[1] if party == self.label[0] else None

    @classmethod
    def own_fields(cls) -> list[str]:
        return list(TrainStep.model_fields)

    @property
    def way(self) -> Way:
        """How its model is trained, for comparisons."""
        return Way(self.model, "all" if self.estimator_type.uses_all_rows else self.rows)

    @property
    def rule(self) -> Rule | None:
        """How its threshold is chosen."""
        return None if self.threshold is None else Rule.read(self.threshold)

    def estimator(self) -> Estimator:
        """The model with the parameters that were given."""
        return self.estimator_type(**self.settings())


class EvaluateStep(Step):
    """Judge trained models on the rows that the job holds out."""

    do: Literal["evaluate"]
    models: list[int] | None = Field(
        default=None, min_length=1, description="Numbers of train steps; all by default."
    )
    subsets: bool = Field(
        default=False,
        description="Judge trees also without each feature holder, and without all of them.",
    )
    bootstrap: int = Field(default=1000, ge=100, description="How many bootstrap samples.")
    level: float = Field(default=0.95, gt=0.5, lt=1, description="The level of the intervals.")
    bands: int = Field(
        default=10, ge=2, le=100, description="How many score bands, of ten rows or more each."
    )


PuStep: Any = _with_parameters("PuStep", PuTerms, VFPU)
CompleteStep: Any = _with_parameters("CompleteStep", CompleteTerms, FedPSG)


@cache
def train_step(model: str) -> type[TrainStep]:
    """The type of the train steps of a model, by its name."""
    kind = ESTIMATORS.find(model)
    made: type[TrainStep] = _with_parameters(f"Train {model}", TrainStep, kind)
    made.estimator_type = kind
    return made


def models() -> list[str]:
    """The names of the models that a train step may have."""
    return ESTIMATORS.names()


def fields_of(do: str, model: str | None = None) -> list[str]:
    """The fields of a kind of step; of a train step those of its model."""
    return list(_type_of(do, model).model_fields)


def make_step(content: Any, place: str) -> Step:
    """A step from plain values; ConfigError with one sentence, which begins with its place."""
    if not isinstance(content, Mapping):
        raise ConfigError(f"{place} must be a table of fields. Got {content!r:.80} instead.")
    do = content.get("do")
    listed = ", ".join(map(repr, STEPS))
    if do is None:
        raise ConfigError(f"{place}: do is missing; it must be one of {listed}.")
    if do not in STEPS:
        raise ConfigError(
            f"{place}: do must be one of {listed}. Got {do!r:.80} instead{nearest(do, STEPS)}"
        )
    model = content.get("model")
    if do == "train" and model not in models():
        known = ", ".join(map(repr, models()))
        if model is None:
            raise ConfigError(f"{place}: model is missing; it must be one of {known}.")
        raise ConfigError(
            f"{place}: model must be one of {known}. Got {model!r:.80} instead"
            f"{nearest(model, models())}"
        )
    kind = _type_of(do, model)
    for name in content:
        if name not in kind.model_fields:
            raise ConfigError(_unknown_field(place, str(name), do, model, list(kind.model_fields)))
    try:
        return kind.model_validate(dict(content))
    except ValidationError as error:
        raise ConfigError(sentence(error, lambda _: list(kind.model_fields), place)) from None


def _make_again(content: Mapping[str, Any], place: Place) -> Step:
    made = make_step(content, "the step")
    made.put_at(place)
    return made


def _type_of(do: str, model: Any) -> type[Step]:
    if do == "train":
        return train_step(str(model))
    types: dict[str, type[Step]] = {
        "count": CountStep,
        "align": AlignStep,
        "pu": PuStep,
        "complete": CompleteStep,
        "evaluate": EvaluateStep,
    }
    return types[do]


def _unknown_field(place: str, name: str, do: str, model: str | None, known: Sequence[str]) -> str:
    owners = [other for other in models() if do == "train" and name in fields_of(do, other)]
    if owners:
        return (
            f"{place}: {name} belongs to model = {' or '.join(map(repr, owners))}. Got model = "
            f"{model!r} instead."
        )
    return f"{place}: {name} is not a known field{nearest_or_all(name, known)}"
