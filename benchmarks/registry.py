"""Names of experiments and how they are started."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib import import_module

from benchmarks import cells
from benchmarks.table import Outcome
from vfsl.errors import ConfigError

# Import paths, so that listing them loads nothing. Each: run(quick, say) -> Outcome.
EXPERIMENTS = {
    "schemes": ("benchmarks.schemes", "homomorphic kernels beside phe, fate-utils, sf-heu"),
    "linear": ("benchmarks.linear", "encrypted logistic regression beside the pooled model"),
    "shares": ("benchmarks.shares", "results only: megabytes, rounds, core-seconds, beside SPU"),
    "shares-bfv": ("benchmarks.shares_bfv", "the same work under bfv, slow"),
    "trees": ("benchmarks.trees", "trees on shares and plain, beside xgboost, lightgbm and others"),
    "pu": ("benchmarks.pu", "reliable positives: VFPU beside its baselines"),
    "complete": ("benchmarks.complete", "completed columns: errors, intervals, use for training"),
    "generators": ("benchmarks.generators", "generators and imputers beside ctgan"),
    "ablation": ("benchmarks.ablation", "terms of generators and imputers, switched off and on"),
    "risa": ("benchmarks.risa", "RISA, its ablation and competing methods"),
    "scorecard": ("benchmarks.scorecard", "scorecards on shares beside pooled ones"),
    "risa-protect": ("benchmarks.risa_protect", "RISA's levels of protection: attacks and quality"),
    "deploy": ("benchmarks.deploy", "the overhead of the engine, compared with memory"),
    "psi": ("benchmarks.psi", "private set intersection: speed, bytes, memory, peers"),
}

Say = Callable[[str], None]


def run_experiment(
    name: str, *, quick: bool = False, workers: int = 1, say: Say = lambda text: None
) -> Outcome:
    """Run one experiment.

    Parameters
    ----------
    name : str
        One of ``EXPERIMENTS``.
    quick : bool
        A small form that takes less than two minutes.
    workers : int
        How many cells are computed at the same time, if the experiment has cells.
    say : callable
        Called with what is being measured.
    """
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = ", ".join(EXPERIMENTS)
        raise ConfigError(f"There is no experiment {name!r}{hint} Known are {known}.")
    with cells.workers(workers):
        outcome: Outcome = import_module(EXPERIMENTS[name][0]).run(quick, say)
    return outcome
