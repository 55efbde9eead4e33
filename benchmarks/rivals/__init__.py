"""Methods that RISA is compared with, by name; each is one file with ``fit(problem, rng)``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from vfsl.data.checks import check_choice

if TYPE_CHECKING:
    from benchmarks.rivals.harness import Fit

# Import paths, so that listing them loads no torch.
RIVALS = {
    "Local": "benchmarks.rivals.local",
    "VFL": "benchmarks.rivals.vfl",
    "Local+VFL": "benchmarks.rivals.local_vfl",
    "Random Match": "benchmarks.rivals.random_match",
    "SSL+VFL": "benchmarks.rivals.ssl_vfl",
    "SFHTL-style": "benchmarks.rivals.sfhtl",
    "FedCVT": "benchmarks.rivals.fedcvt",
    "Few-shot VFL": "benchmarks.rivals.fewshot",
}


def rival(name: str) -> Fit:
    """The training function of that rival."""
    check_choice("rival", "name", name, tuple(RIVALS))
    fit: Fit = import_module(RIVALS[name]).fit
    return fit
