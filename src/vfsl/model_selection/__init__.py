"""Choosing a model: thresholds, cross-validation and search over settings."""

from vfsl.model_selection.thresholds import Rule, choose_threshold

__all__ = ["Rule", "choose_threshold"]
