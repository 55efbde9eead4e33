"""Choosing a model: thresholds, cross-validation and search over settings."""

from vfsl.model_selection.cross_validation import CrossValidation, cross_validate
from vfsl.model_selection.search import GridSearch
from vfsl.model_selection.thresholds import Rule, choose_threshold

__all__ = ["CrossValidation", "GridSearch", "Rule", "choose_threshold", "cross_validate"]
