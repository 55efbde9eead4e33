"""Vertical federated semi-supervised learning."""

__version__ = "0.1.0"

from vfsl import estimators, report
from vfsl.federation import Federation, simulate

__all__ = ["Federation", "__version__", "estimators", "report", "simulate"]
