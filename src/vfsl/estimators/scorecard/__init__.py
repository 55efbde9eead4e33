"""Scorecards: columns in bins, weights of evidence, points."""

from vfsl.estimators.scorecard.bins import find_stability
from vfsl.estimators.scorecard.model import Scorecard

__all__ = ["Scorecard", "find_stability"]
