"""Federated trees: one histogram grower, four strategies."""

from vfsl.estimators.trees.boosting import GBDT, LGB, XGB
from vfsl.estimators.trees.forest import RandomForest
from vfsl.estimators.trees.model import TreeModel

__all__ = ["GBDT", "LGB", "XGB", "RandomForest", "TreeModel"]
