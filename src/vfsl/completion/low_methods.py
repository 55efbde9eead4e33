"""A method for low columns as people ask for it: a name, a table of settings, or several together.

In Python, in a job and on the command line: ``"tabddpm"``, ``{"method": "ctabgan", "epochs": 20}``,
``{"ensemble": ["tabddpm", {"method": "vfgain", "epochs": 50}], "how": "stacking"}``.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from vfsl.completion.base import Completer
from vfsl.completion.ensembles import Ensemble, make_method, method_name
from vfsl.completion.registry import available, completer, facts_of, find
from vfsl.completion.simple import GeneratorCompleter
from vfsl.errors import ConfigError
from vfsl.params import find_mistake, params_of, value_now

# What people write.
Low = str | Callable[[], Completer] | Mapping[str, Any]

# No methods: mean and mode or what is better out of fold; federated models of single columns.
AUTO, DIRECT = "auto", "direct"
_WHERE = "The low parameter of FedPSG"
# Settings that the low route makes itself.
_NOT_ASKED = ("known", "hide", "blocks")


@dataclass(frozen=True, eq=False)
class Chosen:
    """A method with its settings, or several of them as an ensemble; calling it makes a completer.

    Attributes
    ----------
    method : str or callable
        A name, or the user's own function; empty for an ensemble.
    settings : mapping
    members : tuple of Chosen
    how : str
        How the members of an ensemble are combined.
    hidden : tuple of str
        Columns that will be missing together; methods that hide cells in training hide these.
    between : callable, optional
        Makes the completer of a method that runs between the parties.
    place : int
        Of such a method, its number among those of an ensemble.
    """

    method: str | Callable[[], Completer] = ""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    members: tuple[Chosen, ...] = ()
    how: str = ""
    hidden: tuple[str, ...] = ()
    between: Callable[[Chosen], Completer] | None = None
    place: int = 0

    @property
    def joint(self) -> bool:
        """Whether it, or a member, runs between the parties."""
        return bool(self.protocols)

    @property
    def protocols(self) -> list[Chosen]:
        """Its parts that run between the parties."""
        if self.members:
            return [one for member in self.members for one in member.protocols]
        named = isinstance(self.method, str) and facts_of(self.method).kind == "protocol"
        return [self] if named else []

    @property
    def label(self) -> str:
        """What results call it."""
        if self.members:
            return f"{' + '.join(member.label for member in self.members)} by {self.how}"
        return method_name(self.method)

    def describe(self) -> Any:
        """As plain values, for the record."""
        if self.members:
            return {"ensemble": [one.describe() for one in self.members], "how": self.how}
        return {"method": self.label, **self.settings} if self.settings else self.label

    def told(
        self, hidden: Sequence[str], between: Callable[[Chosen], Completer] | None = None
    ) -> Chosen:
        """The same, knowing what will be missing, and how to reach the other party."""
        joint = [member for member in self.members if member.joint]
        members = tuple(
            replace(member.told(hidden, between), place=joint.index(member) if member.joint else 0)
            for member in self.members
        )
        return replace(self, members=members, hidden=tuple(hidden), between=between)

    def __call__(self) -> Completer:
        if self.members:
            return Ensemble(self.members, how=self.how)  # type: ignore[arg-type]
        if self.protocols:
            if self.between is None:
                raise ConfigError(f"Method {self.label!r} runs between parties over a channel.")
            return self.between(self)
        if isinstance(self.method, str):
            return make_method(lambda: completer(str(self.method), **self.settings), self.hidden)
        return make_method(self.method, self.hidden)


def read_low(low: Low) -> Chosen:
    """What people wrote, checked; ConfigError with one sentence for a mistake."""
    if not isinstance(low, Mapping):
        return Chosen(low)
    if "ensemble" in low:
        return _read_ensemble(low)
    settings = {str(key): value for key, value in low.items() if key != "method"}
    name = low.get("method")
    if not isinstance(name, str) or name not in available():
        raise ConfigError(
            f"{_WHERE} must be a table with a method, one of {', '.join(map(repr, available()))}, "
            f"or with an ensemble of them. Got {name or dict(low)!r:.80} instead"
            f"{_nearest(name, available())}"
        )
    _check_settings(name, settings)
    return Chosen(name, settings)


def _read_ensemble(low: Mapping[str, Any]) -> Chosen:
    listed, how = low["ensemble"], params_of(Ensemble)["how"]
    if isinstance(listed, str) or not isinstance(listed, Sequence) or not listed:
        raise ConfigError(
            f"{_WHERE} must have a list of methods as its ensemble. Got {listed!r} instead."
        )
    more = [key for key in low if key not in ("ensemble", "how")]
    if more:
        raise ConfigError(
            f"{_WHERE} must have nothing but ensemble and how where it has an ensemble; settings "
            f"belong to its methods, as in {{method = 'gain', epochs = 20}}. Got {more[0]!r}."
        )
    named = value_now(how, low.get("how", how.default))
    wanted = find_mistake(how, named)
    if wanted is not None:
        end = _nearest(named, [str(one) for one in how.choices])
        raise ConfigError(f"{_WHERE} must combine an ensemble by {wanted}. Got {named!r}{end}")
    members = []
    for one in listed:
        if isinstance(one, Mapping) and "ensemble" in one:
            raise ConfigError(f"{_WHERE} must have no ensemble within an ensemble.")
        if not callable(one):
            one = read_low({"method": one} if not isinstance(one, Mapping) else one)
        members.append(one if isinstance(one, Chosen) else Chosen(one))
    return Chosen(members=tuple(members), how=str(named))


def _check_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse what the method does not declare; where PyTorch is missing, who runs it does."""
    if not settings or (facts_of(name).needs_torch and find_spec("torch") is None):
        return
    kind: Any = find(name)
    if not hasattr(kind, "__dataclass_fields__"):
        return
    declared = {one.name: one for one in params_of(kind).values() if one.option}
    if facts_of(name).kind == "generator":
        declared["draws"] = params_of(GeneratorCompleter)["draws"]
    for own in _NOT_ASKED:
        declared.pop(own, None)
    for key, value in settings.items():
        if key not in declared:
            raise ConfigError(
                f"{_WHERE} gives {name!r} a setting {key!r}, which it does not have"
                f"{_nearest(key, list(declared))}"
            )
        wanted = find_mistake(declared[key], value)
        if wanted is not None:
            raise ConfigError(
                f"{_WHERE} must give {name!r} as {key} {wanted}. Got {value!r} instead."
            )


def _nearest(name: Any, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else "."
