"""Vertical federated semi-supervised learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vfsl import completion, datasets, estimators, evidence, model_selection, pu, report
    from vfsl.completion.fedpsg import FedPSG
    from vfsl.evidence import RISA
    from vfsl.federation import Federation, simulate
    from vfsl.pu import VFPU

# Loaded on first use, so that worker processes, which need none of it, start fast and small.
_MODULES = ("completion", "datasets", "estimators", "evidence", "model_selection", "pu", "report")
_NAMES = {
    "Federation": "vfsl.federation",
    "FedPSG": "vfsl.completion.fedpsg",
    "RISA": "vfsl.evidence",
    "VFPU": "vfsl.pu",
    "simulate": "vfsl.federation",
}

__all__ = [
    "RISA",
    "VFPU",
    "FedPSG",
    "Federation",
    "__version__",
    "completion",
    "datasets",
    "estimators",
    "evidence",
    "model_selection",
    "pu",
    "report",
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
