"""Vertical federated semi-supervised learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vfsl import estimators, report
    from vfsl.federation import Federation, simulate

# Loaded on first use, so that worker processes, which need none of it, start fast and small.
_MODULES = ("estimators", "report")
_NAMES = {"Federation": "vfsl.federation", "simulate": "vfsl.federation"}

__all__ = ["Federation", "__version__", "estimators", "report", "simulate"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"vfsl.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'vfsl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
