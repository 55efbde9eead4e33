"""Federated trees: one histogram grower, four strategies."""

from vfsl.estimators.trees.forest import RandomForest
from vfsl.estimators.trees.gbdt import GBDT
from vfsl.estimators.trees.lgb import LGB
from vfsl.estimators.trees.model import TreeModel
from vfsl.estimators.trees.xgb import XGB

__all__ = ["GBDT", "LGB", "XGB", "RandomForest", "TreeModel"]
