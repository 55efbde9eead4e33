"""Vertical federated semi-supervised learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vfsl import (
        completion,
        data,
        datasets,
        estimators,
        evidence,
        model_selection,
        pu,
        report,
    )
    from vfsl.bar import show_progress
    from vfsl.completion.fedpsg import FedPSG
    from vfsl.data import read_table
    from vfsl.evidence import RISA
    from vfsl.federation import Federation, simulate
    from vfsl.pu import VFPU

# Loaded on first use, so that worker processes, which need none of it, start fast and small.
_MODULES = (
    "completion",
    "data",
    "datasets",
    "estimators",
    "evidence",
    "model_selection",
    "pu",
    "report",
)
_NAMES = {
    "Federation": "vfsl.federation",
    "FedPSG": "vfsl.completion.fedpsg",
    "RISA": "vfsl.evidence",
    "VFPU": "vfsl.pu",
    "read_table": "vfsl.data",
    "show_progress": "vfsl.bar",
    "simulate": "vfsl.federation",
}

__all__ = [
    "RISA",
    "VFPU",
    "FedPSG",
    "Federation",
    "__version__",
    "completion",
    "data",
    "datasets",
    "estimators",
    "evidence",
    "model_selection",
    "pu",
    "read_table",
    "report",
    "show_progress",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"vfsl.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'vfsl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
