"""Completion methods by name: one explicit list, and an entry-point group for outsiders."""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from vfsl.errors import ConfigError

GROUP = "vfsl.completers"


class Method(NamedTuple):
    """Where a method is, and what it is."""

    path: str  # module:class
    kind: str  # "completer", "generator" (completes through GeneratorCompleter) or "protocol"


METHODS: dict[str, Method] = {
    "mean": Method("vfsl.completion.simple:MeanMode", "completer"),
    "hot-deck": Method("vfsl.completion.simple:HotDeck", "completer"),
    "ctgan": Method("vfsl.completion.generators.ctgan:CTGAN", "generator"),
    "tablegan": Method("vfsl.completion.generators.tablegan:TableGAN", "generator"),
    "ctabgan": Method("vfsl.completion.generators.ctabgan:CTABGAN", "generator"),
    "vae": Method("vfsl.completion.generators.vae:VAE", "generator"),
    "tvae": Method("vfsl.completion.generators.tvae:TVAE", "generator"),
    "tabddpm": Method("vfsl.completion.generators.tabddpm:TabDDPM", "generator"),
    "gain": Method("vfsl.completion.imputers.gain:GAIN", "completer"),
    "vgain": Method("vfsl.completion.imputers.vgain:VGAIN", "completer"),
    "vfgain": Method("vfsl.completion.imputers.vfgain:VFGAIN", "protocol"),
}


def available(kind: str | None = None) -> list[str]:
    """Names of methods, those of other packages last; nothing is imported.

    Parameters
    ----------
    kind : {"completer", "generator", "protocol"}, optional
        Only methods of that kind. Those of other packages are completers.
    """
    if kind not in (None, "completer", "generator", "protocol"):
        raise ConfigError(
            "The kind parameter of available must be 'completer', 'generator' or 'protocol'. "
            f"Got {kind!r} instead."
        )
    ours = [name for name, method in METHODS.items() if kind in (None, method.kind)]
    others = sorted(entry.name for entry in entry_points(group=GROUP))
    return ours + [name for name in others if name not in METHODS and kind in (None, "completer")]


def find(name: str) -> Any:
    """The class of a method.

    Raises
    ------
    ConfigError
        An unknown name, or one that needs an extra which is not installed.
    """
    if name in METHODS:
        module, _, attribute = METHODS[name].path.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "torch":
                raise
            raise ConfigError(
                f"Method {name!r} needs PyTorch, which is not installed; install it with "
                "pip install 'vfsl[deep]'."
            ) from None
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return entry.load()
    known = available()
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ConfigError(f"There is no completion method {name!r}{hint} Known are {', '.join(known)}.")


def completer(name: str, **settings: Any) -> Any:
    """A completer by name; a generator is wrapped in :class:`GeneratorCompleter`.

    Parameters
    ----------
    name : str
        One of :func:`available`, except protocols, which run between parties.
    **settings
        Parameters of the method; ``draws`` and ``pool`` go to the wrapper of a generator.
    """
    from vfsl.completion.adapter import GeneratorCompleter

    method = METHODS.get(name)
    if method is not None and method.kind == "protocol":
        raise ConfigError(
            f"Method {name!r} runs between parties over a channel; it is not a local completer."
        )
    outer = {key: settings.pop(key) for key in ("draws",) if key in settings}
    made = find(name)
    try:
        if method is not None and method.kind == "generator":
            return GeneratorCompleter(made(**settings), **outer)
        return made(**settings, **outer)
    except TypeError as error:
        raise ConfigError(f"Method {name!r} cannot be made with these settings: {error}.") from None
