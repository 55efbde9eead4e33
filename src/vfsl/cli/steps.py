"""The commands train, pu and complete: align files and do one step on them.

Their options are the fields of the job's steps, which follow from what the methods declare; they
are put together when a command is called, so that ``vfsl --help`` loads no method.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from vfsl.cli.options import (
    Ids,
    Labels,
    NoLabels,
    Out,
    Parties,
    Protocol,
    Quiet,
    Results,
    Scheme,
    Shown,
    files_of,
    id_columns,
    interrupted,
    labels_of,
    pairs,
    progress,
)
from vfsl.cli.progress import Form
from vfsl.cli.screen import print_summary
from vfsl.cli.tables import collect
from vfsl.cli.tables import parameters as parameters_of_tables
from vfsl.errors import ConfigError

if TYPE_CHECKING:
    from vfsl.params import Param

COMMANDS = {
    "train": "Align tables and train a model on the rows in common; RISA on all rows.",
    "pu": "Find reliable positives where only positives and unlabelled rows are known.",
    "complete": "Complete one party's columns for rows that only another one has, and judge them.",
}
Advise = Annotated[
    bool, typer.Option("--advise", help="Give advice on training the given party's --label.")
]

Test = Annotated[
    float,
    typer.Option(help="Hold out this fraction of the common rows to judge the model; 0: none."),
]


LOW_SETTINGS = "low_settings"
_LOW_HELP = (
    "Settings of the --low method as TOML, 'epochs = 20, self_attention = true', or an ensemble: "
    '\'ensemble = ["tabddpm", "vfgain"], how = "stacking"\'.'
)


class StepCommands(TyperGroup):
    """A group that also has the commands of steps, each made when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            return _Later(name=cmd_name, help=COMMANDS[cmd_name])
        return super().get_command(ctx, cmd_name)


class _Later(TyperCommand):
    """A command whose options are not known before it is called."""

    def make_context(self, *args: Any, **facts: Any) -> Any:
        app = typer.Typer(add_completion=False)
        app.command(self.name, help=self.help)(_command(str(self.name)))
        return get_command(app).make_context(*args, **facts)

    def invoke(self, ctx: Any) -> Any:
        return ctx.command.invoke(ctx)


@dataclass(frozen=True)
class _Field:
    """A field of a step as an option."""

    name: str
    help: str
    type: Any
    required: bool = False
    or_number: bool = False  # text that may also be a number, such as "auto" or 0.5


def _command(name: str) -> Callable[..., None]:
    """The function behind a command, with a parameter per option."""
    fields = _fields(name)
    shared: dict[str, tuple[Any, Any]] = {
        "party": (Parties, inspect.Parameter.empty),
        "id": (Ids, inspect.Parameter.empty),
        "to": (Out, inspect.Parameter.empty),
        "label": (Labels, None),
        "no_label": (NoLabels, None),
        "protocol": (Protocol, "ecdh"),
        "scheme": (Scheme, "auto"),
        "seed": (Annotated[int, typer.Option(help="Repeats the run exactly.")], 0),
        "results": (Results, None),
        "quiet": (Quiet, False),
        "shown": (Shown, Form.BAR),
    }
    if name == "complete":
        shared["advise"] = (Advise, False)
    if name == "train":
        shared["test"] = (Test, 0.2)
    options_of_tables = parameters_of_tables()

    # --protocol is that of the alignment; a step's own is --train-protocol.
    options = {
        one.name: f"{name}_{one.name}"
        if one.name in shared or one.name in options_of_tables
        else _option_name(one)
        for one in fields
    }

    def command(**given: Any) -> None:
        common = {key: given.pop(key) for key in shared}
        common["options"] = collect(given)
        step = {one.name: _read(one, given[options[one.name]]) for one in fields}
        chosen = {key: value for key, value in step.items() if value is not None}
        if "threshold" in chosen:
            chosen["threshold"] = _read_threshold(chosen["threshold"])
        if LOW_SETTINGS in chosen:
            chosen["low"] = _low_table(chosen.get("low"), chosen.pop(LOW_SETTINGS))
        _run(name, chosen, common)

    parameters = {key: (kind, default) for key, (kind, default) in shared.items()}
    for one in fields:
        option = typer.Option(help=one.help)
        if one.required:
            parameters[options[one.name]] = (Annotated[one.type, option], inspect.Parameter.empty)
        else:
            parameters[options[one.name]] = (Annotated[one.type | None, option], None)
    parameters |= options_of_tables
    command.__annotations__ = {key: kind for key, (kind, _) in parameters.items()}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for key, (kind, default) in parameters.items()
        ]
    )
    return command


def _fields(name: str) -> list[_Field]:
    """The fields of a kind of step that a command has options for."""
    from vfsl.completion.fedpsg import FedPSG
    from vfsl.params import params_of
    from vfsl.pu import VFPU

    if name == "pu":
        own = [
            _Field("all_rows", "Score rows that only the label holder has, too.", bool),
            _Field("positives", "The party whose ids are known positives.", str, True),
            _Field("label_holder", "The party that receives marks and scores.", str, True),
            _Field("consent", "A party that agrees to send the result on, once each.", list[str]),
        ]
        return own + [_field(one, one.help) for one in params_of(VFPU).values() if one.option]
    if name == "complete":
        own = [
            _Field("given", "The party whose remaining rows are completed.", str, True),
            _Field("missing", "The party whose columns they lack.", str, True),
            _Field("advice_trees", "Number of trees behind the advice.", int),
            _Field(LOW_SETTINGS, _LOW_HELP, str),
        ]
        return own + [_field(one, one.help) for one in params_of(FedPSG).values() if one.option]
    return _fields_of_models()


def _fields_of_models() -> list[_Field]:
    """The parameters of all models, each saying whose it is."""
    from vfsl.job.steps import models, train_step
    from vfsl.params import params_of

    by_name: dict[str, tuple[Param, list[str]]] = {}
    for model in models():
        for one in params_of(train_step(model).estimator_type).values():
            if one.option and _option_type(one) is not None:
                by_name.setdefault(one.name, (one, []))[1].append(model)
    own = [
        _Field("model", f"The model: {', '.join(models())}.", str, True),
        _Field("all_rows", "Predict rows that only the label holder has, too.", bool),
        _Field(
            "threshold",
            "Predict the second class from this probability on, or by a rule: cost=5, "
            "precision=0.8 or top=0.1.",
            str,
        ),
        _Field("accept", "risa: label-disclosure; other parties learn training labels.", list[str]),
    ]
    for one, names in by_name.values():
        own.append(_field(one, f"{', '.join(names)}: {one.help}"))
    return own


def _field(one: Param, help: str) -> _Field:
    kind = _option_type(one)
    return _Field(one.name, help, kind, or_number=kind is str and float in _members(one.type))


def _option_type(one: Param) -> Any:
    """What an option takes for a parameter's type; None: job files only."""
    kinds = [part for part in _members(one.type) if part is not type(None)]
    origins = [get_origin(kind) for kind in kinds]
    if any(isinstance(each, type) and issubclass(each, Mapping) for each in origins):
        return str if str in kinds else None
    for kind, origin in zip(kinds, origins, strict=True):
        if isinstance(origin, type) and issubclass(origin, Sequence):
            inner = [part for part in _members(get_args(kind)[0]) if part in (int, float, str)]
            return list[inner[0] if inner else str]  # type: ignore[misc]
    plain = [kind for kind in kinds if kind in (bool, int, float)]
    return plain[0] if plain and len(plain) == len(kinds) else str


def _members(kind: Any) -> tuple[Any, ...]:
    from vfsl.params import members

    return tuple(members(kind))


def _option_name(one: _Field) -> str:
    """Options that may be given more than once are named in the singular: --method."""
    return one.name.removesuffix("s") if one.name == "methods" else one.name


def _read(one: _Field, value: Any) -> Any:
    """An option's value as a field of a step."""
    if isinstance(value, list | tuple):
        listed = list(value)
        if not listed:
            return None
        return listed[0] if one.name == "base" and len(listed) == 1 else listed
    if one.or_number and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _read_threshold(text: str) -> Any:
    """A number, or one setting of a rule: cost=5."""
    name, equals, value = text.partition("=")
    try:
        return {name.strip(): float(value)} if equals else float(text)
    except ValueError:
        raise ConfigError(
            "--threshold must be a number, or cost=NUMBER, precision=NUMBER or top=NUMBER. Got "
            f"{text!r:.80} instead."
        ) from None


def _low_table(method: str | None, text: str) -> dict[str, Any]:
    """What --low and --low-settings say together, as in a job file."""
    try:
        table: dict[str, Any] = tomllib.loads(f"low = {{ {text} }}")["low"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"--low-settings must be settings as in TOML, such as 'epochs = 20'. Got {text!r:.80} "
            f"instead: {error}."
        ) from None
    if method is None:
        return table
    if "method" in table or "ensemble" in table:
        raise ConfigError(
            f"--low-settings must have settings only where --low names the method. Got --low "
            f"{method} and {'an ensemble' if 'ensemble' in table else 'a method'}."
        )
    return {"method": method, **table}


def _run(name: str, step: Mapping[str, Any], common: Mapping[str, Any]) -> None:
    """Align and do one step; options that were not given are left to the step."""
    from vfsl.job import step_files, unfinished

    content: dict[str, Any] = {"do": name, **step}
    label, to = common["label"] or [], common["to"]
    if name == "train":
        content |= _label_to_predict(content, label)
    if name == "pu":
        content["protocol"] = common["protocol"]
    if name == "complete" and common["advise"]:
        content["label"] = _advised(label, str(step["given"]))
    files = files_of(common["party"])
    try:
        with progress(common["quiet"], common["shown"]) as bar:
            fed = step_files(
                files,
                id_columns(common["id"], list(files)),
                content,
                to,
                labels=labels_of(label, common["no_label"], files),
                sections=common["options"].sections(files),
                id_section=common["options"].id_section(),
                test=common.get("test", 0.0),
                protocol=common["protocol"],
                scheme=common["scheme"],
                seed=common["seed"],
                results=common["results"],
                on_event=bar.event,
            )
    except KeyboardInterrupt:
        interrupted(unfinished(to))
    print_summary(fed, to)


def _label_to_predict(step: Mapping[str, Any], label: list[str]) -> dict[str, Any]:
    named = pairs("--label", label)
    if not named:
        raise ConfigError("--label must say what to predict: --label PARTY=COLUMN.")
    return {"label": list(next(iter(named.items())))}


def _advised(label: list[str], given: str) -> str:
    """The label that advice is on."""
    found = pairs("--label", label).get(given)
    if found is None:
        raise ConfigError(f"--advise needs the label of the given party: --label {given}=COLUMN.")
    return found
