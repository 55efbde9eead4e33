"""The rivals by name; each is one file with ``fit(problem, rng) -> Fitted``. Adding one is one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from vfsl.data.checks import check_choice

if TYPE_CHECKING:
    from vfsl.evidence.harness import Fit

# Import paths, so that listing them loads no torch.
RIVALS = {
    "Local": "vfsl.evidence.rivals.local",
    "VFL": "vfsl.evidence.rivals.vfl",
    "Local+VFL": "vfsl.evidence.rivals.local_vfl",
    "Random Match": "vfsl.evidence.rivals.random_match",
    "SSL+VFL": "vfsl.evidence.rivals.ssl_vfl",
    "SFHTL-style": "vfsl.evidence.rivals.sfhtl",
    "FedCVT": "vfsl.evidence.rivals.fedcvt",
    "Few-shot VFL": "vfsl.evidence.rivals.fewshot",
}


def rival(name: str) -> Fit:
    """How that rival is trained."""
    check_choice("rival", "name", name, tuple(RIVALS))
    fit: Fit = import_module(RIVALS[name]).fit
    return fit
