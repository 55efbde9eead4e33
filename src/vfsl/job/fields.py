"""The steps of a job: which fields each has, and the object that its settings make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from vfsl.completion.fedpsg import FedPSG
from vfsl.completion.registry import local_methods
from vfsl.errors import ConfigError
from vfsl.estimators.base import Estimator
from vfsl.estimators.saved import ESTIMATORS
from vfsl.evidence import MLP, RISA
from vfsl.evidence.switches import Switches, switches_of
from vfsl.job.mistakes import nearest_or_all, wrong
from vfsl.pu import VFPU

TRAINABLE: dict[str, Callable[..., Any]] = {
    **{name: ESTIMATORS.find(name) for name in ("linear", "logistic", "rf", "gbdt", "xgb", "lgb")},
    "risa": RISA,
}
BASES = ("linear", "rf", "gbdt", "xgb", "lgb")


class Strict(BaseModel):
    """No unknown fields, no silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _label(value: object) -> str | bool | None:
    if value is not None and value is not False and not isinstance(value, str):
        raise wrong("a column, or false where no column is a label", value)
    return value


# A party's label, which is never a feature; false says that no column is one.
LabelColumn = Annotated[str | Literal[False] | None, PlainValidator(_label)]


def _tau(value: object) -> float | str:
    if value == "auto":
        return "auto"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= float(value) <= 1:  # type: ignore[arg-type]
        raise wrong("a number from 0 to 1 or 'auto'", value)
    return float(value)  # type: ignore[arg-type]


def _one_of(*special: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        known = [*special, *local_methods()]
        if value not in known:
            raise wrong(f"one of {', '.join(map(repr, known))}", value, known)
        return str(value)

    return check


def _methods(value: object) -> list[str]:
    known = local_methods()
    if not isinstance(value, list):
        raise wrong(f"a list of some of {', '.join(map(repr, known))}", value)
    for name in value:
        if name not in known:
            raise wrong(f"a list of some of {', '.join(map(repr, known))}", name, known)
    return list(value)


def _base(value: object) -> str | list[str]:
    names = value if isinstance(value, list) else [value]
    for name in names:
        if name not in BASES:
            listed = ", ".join(map(repr, BASES))
            raise wrong(f"one of {listed}, or a list of them", name, BASES)
    if not names:
        raise wrong(f"one of {', '.join(map(repr, BASES))}, or a list of them", value)
    return value  # type: ignore[return-value]


class AlignStep(Strict):
    """Find the common rows."""

    do: Literal["align"]
    parties: list[str] | None = None
    protocol: Literal["blind-rsa", "ecdh"] = "blind-rsa"


class PuStep(Strict):
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
    spy_share: float | None = Field(default=None, gt=0, lt=1)
    spy_threshold: float | None = Field(default=None, ge=0, lt=1)
    folds: int | None = Field(default=None, ge=2)
    rare_rows_per_column: float | None = Field(default=None, ge=0)
    protocol: Literal["blind-rsa", "ecdh"] = "blind-rsa"
    consent: list[str] = []

    def method(self) -> VFPU:
        """VFPU with the settings that were given."""
        mine = {"do", "positives", "label_holder", "protocol", "consent"}
        return VFPU(**self.model_dump(exclude=mine, exclude_none=True))


class CompleteStep(Strict):
    """Complete one party's columns for the rows that only the other one has."""

    do: Literal["complete"]
    given: str
    missing: str
    label: str | None = None  # a column of the given party, for advice on training
    advice_trees: int | None = Field(default=None, ge=1)  # of the models behind the advice
    tau: Annotated[float | str, PlainValidator(_tau)] | None = None
    low: Annotated[str, PlainValidator(_one_of("auto", "direct", "vfgain"))] = "auto"
    methods: Annotated[list[str], PlainValidator(_methods)] = []
    base: Annotated[str | list[str], PlainValidator(_base)] = "linear"
    alpha: float | None = Field(default=None, ge=0, le=1)
    k: float | None = Field(default=None, gt=0, le=1)
    rounds: int | None = Field(default=None, ge=1)
    confidence: Literal["seed", "spread"] | None = None
    context: Literal["none", "preliminary"] | None = None
    remainder: Annotated[str, PlainValidator(_one_of("predict", "leave"))] = "predict"
    aggregate: Literal["mean", "max", "top-k"] | None = None
    shrink: bool | None = None
    folds: int | None = Field(default=None, ge=2)
    miss: float | None = Field(default=None, gt=0, lt=1)
    shift: Literal["auto", "none"] | None = None
    preset: Literal["default", "seed"] = "default"

    def method(self) -> FedPSG:
        """FedPSG with the settings that were given."""
        mine = {"do", "given", "missing", "label", "advice_trees"}
        return FedPSG(**self.model_dump(exclude=mine, exclude_none=True))


class TrainStep(Strict):
    """Train a federated model and predict the aligned rows."""

    do: Literal["train"]
    model: Literal["linear", "logistic", "rf", "gbdt", "xgb", "lgb", "risa"]
    label: tuple[str, str] = Field(strict=False)
    rows: Literal["common", "completed"] = "common"
    accept: list[Literal["label-disclosure"]] = []  # what RISA tells the other parties
    # linear models
    l2: float | None = Field(default=None, ge=0)
    max_rounds: int | None = Field(default=None, ge=1)
    rare_rows_per_column: float | None = Field(default=None, ge=0)
    refine: int | None = Field(default=None, ge=0)
    look_noise: float | None = Field(default=None, ge=0)
    label_noise: float | None = Field(default=None, ge=0)
    class_weight: Literal["balanced"] | None = None
    solver: Literal["rounds", "one-shot"] | None = None
    # trees
    task: Literal["classes", "regression"] | None = None
    n_estimators: int | None = Field(default=None, ge=1)
    max_depth: int | None = Field(default=None, ge=0, le=30)
    max_leaves: int | None = Field(default=None, ge=2)
    max_bins: int | None = Field(default=None, ge=2, le=255)
    min_rows: int | None = Field(default=None, ge=10)
    gamma: float | None = Field(default=None, ge=0)
    min_child_weight: float | None = Field(default=None, ge=0)
    subsample: float | None = Field(default=None, gt=0, le=1)
    colsample: float | None = Field(default=None, gt=0, le=1)
    validation: float | None = Field(default=None, ge=0, le=0.9)
    patience: int | None = Field(default=None, ge=1)
    categories: Literal["one-vs-rest", "sorted"] | None = None
    keys: Literal["key-holder", "label-holder"] | None = None
    learning_rate: float | None = Field(default=None, gt=0, le=1)  # boosted trees and RISA
    # RISA
    variant: Literal["plus", "paper"] | None = None
    switches: dict[str, Any] | None = None
    hidden: list[Annotated[int, Field(ge=1)]] | None = Field(default=None, min_length=1)
    embedding: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    weight_decay: float | None = Field(default=None, ge=0)
    evidence: Literal["exp", "softplus", "relu"] | None = None
    tau_p: float | None = Field(default=None, ge=0, le=1)
    tau_0: float | None = Field(default=None, gt=0, le=1)
    every: int | None = Field(default=None, ge=1)
    self_steps: int | None = Field(default=None, ge=1)
    held_out: float | None = Field(default=None, ge=0, le=1)
    own_labels: bool | None = None
    device: str | None = None

    @model_validator(mode="after")
    def _fields_fit_the_model(self) -> TrainStep:
        known = settings_of(self.model)
        for name in self._given():
            if name not in known:
                owners = [model for model in TRAINABLE if name in settings_of(model)]
                raise ValueError(
                    f".{name} belongs to model = {' or '.join(map(repr, owners))}. Got model = "
                    f"{self.model!r} instead"
                )
        if self.switches is not None:
            _check_switches(self.variant or "plus", self.switches)
        if self.model == "risa" and self.rows != "common":
            raise ValueError(
                f".rows must be 'common' with model = 'risa', which uses every row already. Got "
                f"{self.rows!r} instead"
            )
        if (self.model == "risa") != ("label-disclosure" in self.accept):
            raise ValueError(
                ".accept must be ['label-disclosure'] with model = 'risa', which tells the other "
                "parties the labels of the rows that they train on, and with no other model. Got "
                f"model = {self.model!r} with {list(self.accept)} instead"
            )
        return self

    def estimator(self) -> Estimator | RISA:
        """The model with the settings that were given."""
        given = self._given()
        if self.model == "risa":
            network = {name: given.pop(name) for name in ("hidden", "embedding") if name in given}
            if "hidden" in network:
                network["hidden"] = tuple(network["hidden"])
            if network:
                given["encoder"] = MLP(**network)
        made: Estimator | RISA = TRAINABLE[self.model](**given)
        return made

    def _given(self) -> dict[str, Any]:
        mine = {"do", "model", "label", "rows", "accept"}
        return self.model_dump(exclude=mine, exclude_none=True)


def _check_switches(variant: str, switches: dict[str, Any]) -> None:
    known = [field.name for field in fields(Switches)]
    for name in switches:
        if name not in known:
            raise ValueError(f".switches.{name} is not a known field{nearest_or_all(name, known)}")
    try:
        switches_of(variant, switches)
    except ConfigError as error:
        raise ValueError(f".switches: {error}") from None


class EvaluateStep(Strict):
    """Judge trained models on the rows that the job holds out."""

    do: Literal["evaluate"]
    models: list[int] | None = Field(default=None, min_length=1)  # numbers of train steps
    bootstrap: int = Field(default=1000, ge=100)
    level: float = Field(default=0.95, gt=0.5, lt=1)


STEP_FIELDS: dict[str, type[Strict]] = {
    "align": AlignStep,
    "pu": PuStep,
    "complete": CompleteStep,
    "train": TrainStep,
    "evaluate": EvaluateStep,
}
STEPS = tuple(STEP_FIELDS)
AnyStep = AlignStep | PuStep | CompleteStep | TrainStep | EvaluateStep
Step = Annotated[AnyStep, Field(discriminator="do")]


def settings_of(model: str) -> set[str]:
    """The fields of a train step that make sense for a model."""
    names = {field.name for field in fields(TRAINABLE[model])}  # type: ignore[arg-type]
    if model == "risa":
        names = (names - {"encoder", "on_event", "checkpoints"}) | {"hidden", "embedding"}
    return names & set(TrainStep.model_fields)
