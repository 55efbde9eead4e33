"""Names of the papers' experiments, what can be set in each, and how they are started."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from importlib import import_module
from typing import Any, get_args, get_origin, get_type_hints

from benchmarks import cells
from benchmarks.paper.sizes import FULL, QUICK
from benchmarks.table import Outcome
from vfsl.errors import ConfigError

# Import paths, so that listing them loads no torch. Each: run(name, sizes, say, keep) -> Outcome.
PAPERS = {
    "vfpu-bases": ("benchmarks.paper.vfpu", "VFPU over five bases, and curves over M and T"),
    "fedpsg": (
        "benchmarks.paper.fedpsg",
        "FedPSG-PUM end to end: τ routing, VFPU-M, nine methods and five ensembles below τ",
    ),
    "fedpsg-sweeps": ("benchmarks.paper.fedpsg", "FedPSG-PUM by τ, α, k, T, overlap, missing rate"),
    "generators": (
        "benchmarks.paper.generators",
        "the nine generators and imputers; 'TabDDPM and VF-GAIN are best' judged",
    ),
    "risa-table1": ("benchmarks.paper.risa", "RISA's table I: CIFAR-10 at six overlaps"),
    "risa-table2": ("benchmarks.paper.risa", "RISA's table II: Criteo at six overlaps"),
    "risa-table3": ("benchmarks.paper.risa", "RISA's table III: the ablation"),
    "risa-sweeps": (
        "benchmarks.paper.risa_sweeps",
        "RISA by τ_p, τ_0, E and rule of fusion; removal under label noise",
    ),
}
Say = Callable[[str], None]


def run_paper(
    name: str,
    *,
    quick: bool = False,
    changes: Sequence[str] = (),
    seeds: int | None = None,
    workers: int = 1,
    say: Say = lambda text: None,
) -> Outcome:
    """Run one experiment.

    Parameters
    ----------
    name : str
        One of ``PAPERS``.
    quick : bool
        A small form that takes less than two minutes, on data that come with the package.
    changes : sequence of str
        ``NAME=VALUE`` for the sizes of the experiment.
    seeds : int, optional
        How many seeds are averaged.
    workers : int
        How many cells are computed at the same time.
    say : callable
        Hears how far it is.
    """
    module = import_module(PAPERS[_known(name)][0])
    sizes = (QUICK if quick else FULL)[name]
    for change in changes:
        sizes = change_sizes(name, sizes, change)
    if seeds is not None:
        sizes = replace(sizes, seeds=tuple(range(seeds)))
    with cells.workers(workers):
        outcome: Outcome = module.run(name, sizes, say, keep=not quick)
    said = describe_sizes(sizes) + (" (quick form)" if quick else "")
    return replace(outcome, notes=[*outcome.notes, f"Sizes: {said}."])


def describe_settings(name: str) -> str:
    """What can be set in an experiment, and what it is in the full form."""
    return describe_sizes(FULL[_known(name)])


def describe_sizes(sizes: Any) -> str:
    """All sizes as ``--set`` takes them."""
    return ", ".join(f"{f.name}={_said(getattr(sizes, f.name))}" for f in fields(sizes))


def change_sizes(name: str, sizes: Any, change: str) -> Any:
    """Sizes with one field changed, by ``NAME=VALUE``."""
    key, mark, text = change.partition("=")
    known = [field.name for field in fields(sizes)]
    if not mark or key not in known:
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(
            f"The --set option of {name} must be NAME=VALUE with a name of {', '.join(known)}. "
            f"Got {change!r} instead{hint}"
        )
    kind = get_type_hints(type(sizes))[key]
    try:
        return replace(sizes, **{key: _read(kind, text)})
    except ValueError:
        raise ConfigError(
            f"The --set option of {name} must give {key} {_wanted(kind)}. Got {text!r} instead."
        ) from None


def _read(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple:
        (inner, *_) = get_args(kind)
        return tuple(_read(inner, part.strip()) for part in text.split(",") if part.strip())
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    return kind(text)


def _wanted(kind: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false"}
    if get_origin(kind) is tuple:
        return f"values separated by commas, each {words.get(get_args(kind)[0], 'text')}"
    return words.get(kind, "text")


def _said(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _known(name: str) -> str:
    if name not in PAPERS:
        near = difflib.get_close_matches(name, PAPERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(f"There is no experiment {name!r}{hint} Known are {', '.join(PAPERS)}.")
    return name
