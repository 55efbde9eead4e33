"""Experiments and timings by name; every figure in the docs is printed by one of them."""

from vfsl.benchmark.registry import EXPERIMENTS, run_experiment
from vfsl.benchmark.table import Outcome

__all__ = ["EXPERIMENTS", "Outcome", "run_experiment"]
