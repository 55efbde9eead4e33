"""Parameters of methods, declared once: type, default, bounds and help stand beside each field.

A method is a dataclass whose fields are made by :func:`param`. Checks, the fields of job steps, the
options of commands, the tables of the documentation and the run record all follow from them.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from vfsl.errors import ConfigError

_KEY = "vfsl parameter"
Method = TypeVar("Method", bound=type)


@dataclass(frozen=True)
class Param:
    """One declared parameter.

    Attributes
    ----------
    name : str
    type : type
    default : object
    help : str
        One or two sentences for docstrings, pages and ``--help``.
    ge, gt, le, lt : float or None
        Bounds: at least, above, at most, below.
    option : bool
        Whether job files and commands have it; parameters that take Python objects do not.
    names : callable or None
        Gives the texts that are allowed, where a registry knows them.
    formerly : mapping of str to str, or None
        Values of earlier versions that still do, and what they are called now.
    """

    name: str
    type: Any
    default: Any
    help: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    option: bool = True
    names: Callable[[], Sequence[str]] | None = None
    formerly: Mapping[str, str] | None = None

    @property
    def choices(self) -> tuple[Any, ...]:
        """The allowed values, where the type or a registry lists them."""
        if self.names is not None:
            return tuple(self.names())
        return tuple(
            value
            for part in members(self.type)
            if get_origin(part) is Literal
            for value in get_args(part)
        )

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds by name, as pydantic's ``Field`` takes them."""
        named = {"ge": self.ge, "gt": self.gt, "le": self.le, "lt": self.lt}
        return {name: value for name, value in named.items() if value is not None}


def param(
    default: Any,
    help: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    option: bool = True,
    names: Callable[[], Sequence[str]] | None = None,
    formerly: Mapping[str, str] | None = None,
) -> Any:
    """A field of a method's dataclass; see :class:`Param` for what the arguments mean."""
    facts: dict[str, Any] = {"help": help, "ge": ge, "gt": gt, "le": le, "lt": lt}
    facts |= {"option": option, "names": names, "formerly": formerly}
    return dataclasses.field(default=default, metadata={_KEY: facts})


def params_of(method: type) -> dict[str, Param]:
    """The declared parameters of a class, by name.

    A subclass that gives a parameter another default inherits the rest of its declaration.
    """
    hints = get_type_hints(method)
    declared: dict[str, Any] = {}
    for kind in reversed(method.__mro__):
        for field in kind.__dict__.get("__dataclass_fields__", {}).values():
            if _KEY in field.metadata:
                declared[field.name] = field.metadata[_KEY]
    return {
        field.name: Param(field.name, hints[field.name], field.default, **declared[field.name])
        for field in dataclasses.fields(method)
        if field.name in declared
    }


def settings_of(method: Any) -> dict[str, Any]:
    """The values of an instance's declared parameters that job files have: for the run record.

    A value of an earlier version gets the name that it has now.
    """
    return {
        name: value_now(declared, getattr(method, name))
        for name, declared in params_of(type(method)).items()
        if declared.option
    }


def value_now(one: Param, value: Any) -> Any:
    """A parameter's value by the name that it has now."""
    return (one.formerly or {}).get(value, value) if isinstance(value, str) else value


class Settable:
    """What is made of named settings, as scikit-learn's `clone` and searches expect it."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the constructor was given, by name; ``base__l2`` is ``l2`` of ``base``.

        Parameters
        ----------
        deep : bool
            Whether the settings of settings are there as well.
        """
        found: dict[str, Any] = {}
        for one in dataclasses.fields(self):  # type: ignore[arg-type]
            if one.init:
                found[one.name] = value = getattr(self, one.name)
                if deep and isinstance(value, Settable):
                    found |= {f"{one.name}__{name}": v for name, v in value.get_params().items()}
        return found

    def set_params(self, **settings: Any) -> Self:
        """Change settings by name, those of settings as ``base__l2``; returns itself.

        The next fit goes by them. Settings are checked there.
        """
        nested: dict[str, dict[str, Any]] = {}
        known = self.get_params(deep=False)
        for name, value in settings.items():
            first, _, rest = name.partition("__")
            if first not in known or (rest and not isinstance(known[first], Settable)):
                close = difflib.get_close_matches(name, known, n=1)
                raise ConfigError(
                    f"{type(self).__name__} has no parameter {name!r}"
                    + (
                        f"; did you mean {close[0]!r}?"
                        if close
                        else f"; it has {', '.join(known)}."
                    )
                )
            if rest:
                nested.setdefault(first, {})[rest] = value
            else:
                setattr(self, first, value)
        for name, inner in nested.items():
            getattr(self, name).set_params(**inner)
        return self


def documented(method: Method) -> Method:
    """Add the declared parameters to the docstring of a dataclass, before its other sections."""
    lines = ["Parameters", "----------"]
    for one in params_of(method).values():
        lines += [f"{one.name} : {describe_type(one)}, default {one.default!r}", f"    {one.help}"]
    text = inspect.cleandoc(method.__doc__ or "")
    head, mark, tail = text.partition("\nAttributes\n")
    method.__doc__ = "\n".join([head.rstrip(), "", *lines, ""]) + (mark + tail if mark else "")
    return method


def describe_type(one: Param) -> str:
    """The type and bounds of a parameter as people write them: 'int from 1 to 30'."""
    if one.choices:
        others = [_type_name(part) for part in members(one.type) if get_origin(part) is not Literal]
        named = [repr(value) for value in one.choices]
        return " or ".join([", ".join(named), *(name for name in others if name != "None")])
    names = [_type_name(part) for part in members(one.type) if part is not type(None)]
    range_ = describe_bounds(one)
    return " or ".join(dict.fromkeys(names)) + (f" {range_}" if range_ else "")


def describe_bounds(one: Param) -> str:
    """'from 1 to 30', 'of at least 1', 'above 0 and at most 1'; empty without bounds."""
    if one.ge is not None and one.le is not None:
        return f"from {one.ge:g} to {one.le:g}"
    low = [f"of at least {one.ge:g}"] if one.ge is not None else []
    low += [f"above {one.gt:g}"] if one.gt is not None else []
    high = [f"at most {one.le:g}"] if one.le is not None else []
    high += [f"below {one.lt:g}"] if one.lt is not None else []
    return " and ".join([*low, *high])


def check_params(method: Any, *, where: str = "") -> None:
    """Refuse values of the wrong kind or outside their bounds, with one sentence.

    Parameters
    ----------
    method : object
        An instance of a dataclass with declared parameters.
    where : str
        What the sentence calls it; the name of its class by default.
    """
    where = where or type(method).__name__
    for name, declared in params_of(type(method)).items():
        value = getattr(method, name)
        wanted = find_mistake(declared, value)
        if wanted is not None:
            texts = [choice for choice in declared.choices if isinstance(choice, str)]
            close = difflib.get_close_matches(str(value), texts, n=1)
            end = f"; did you mean {close[0]!r}?" if close else "."
            raise ConfigError(
                f"The {name} parameter of {where} must be {wanted}. Got {value!r} instead{end}"
            )


def find_mistake(one: Param, value: Any) -> str | None:
    """What a parameter must be, if the value is not that: the middle of a sentence."""
    parts, value = list(members(one.type)), value_now(one, value)
    if any(_fits(one, value, part) for part in parts):
        return None
    plain = [part for part in parts if get_origin(part) is not Literal]
    wanted = [_wanted(one, part) for part in plain if part in (int, float) or not one.choices]
    named = ", ".join(repr(choice) for choice in one.choices)
    if named:
        wanted.append(named if len(one.choices) == 1 else f"one of {named}")
    return " or ".join(text for text in dict.fromkeys(wanted) if text)


def _wanted(one: Param, kind: Any) -> str:
    """How a sentence names a type: 'a whole number from 1 to 30', 'a list of text'."""
    named = {bool: "True or False", str: "text"}
    if kind in (int, float):
        noun = "a number" if kind is float else "a whole number"
        return f"{noun} {describe_bounds(one)}".rstrip()
    if kind is type(None):
        return ""
    if kind in named:
        return named[kind]
    origin = get_origin(kind)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a table of settings"
    if isinstance(origin, type) and issubclass(origin, Sequence):
        inner = [_wanted(replace(one, type=part), part) for part in _items(kind)]
        return f"a list, each item {' or '.join(dict.fromkeys(inner))}"
    return _type_name(kind)


def _fits(one: Param, value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if kind is Any:
        return True
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(kind))
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool) and _inside(one, value)
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool) and _inside(one, value)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return listed and all(
            any(_fits(one, item, part) for part in _items(kind)) for item in value
        )
    if origin is not None:
        return isinstance(value, origin) if isinstance(origin, type) else callable(value)
    if kind is str and one.names is not None:
        return value in one.names()
    return isinstance(value, kind) if isinstance(kind, type) else True


def _items(kind: Any) -> list[Any]:
    """The types that the items of a list or tuple may have."""
    return [part for each in get_args(kind) if each is not Ellipsis for part in members(each)]


def _inside(one: Param, number: Any) -> bool:
    value = float(number)
    return (
        (one.ge is None or value >= one.ge)
        and (one.gt is None or value > one.gt)
        and (one.le is None or value <= one.le)
        and (one.lt is None or value < one.lt)
    )


def members(kind: Any) -> Iterator[Any]:
    """The members of a union; another type is its only member."""
    if get_origin(kind) in (Union, types.UnionType):
        for part in get_args(kind):
            yield from members(part)
    else:
        yield kind


def _type_name(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is None:
        return getattr(kind, "__name__", str(kind)).replace("NoneType", "None")
    inner = [_type_name(part) for part in get_args(kind) if part is not Ellipsis]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "dict"
    return f"{getattr(origin, '__name__', str(origin)).lower()} of {' or '.join(inner)}"
