"""Experiments and timings by name; every figure in the docs is printed by one of them."""

from benchmarks.registry import EXPERIMENTS, run_experiment
from benchmarks.table import Outcome

__all__ = ["EXPERIMENTS", "Outcome", "run_experiment"]
