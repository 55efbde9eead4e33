"""Federated estimators: each party trains and keeps only its own share."""

from vfsl.estimators.association import Association
from vfsl.estimators.base import Estimator
from vfsl.estimators.linear import LinearRegression, LogisticRegression
from vfsl.estimators.saved import load_model, save_model
from vfsl.estimators.trees import GBDT, LGB, XGB, RandomForest
from vfsl.federation import Federation as Federated
from vfsl.parts import ModelShare, Part, Roles

__all__ = [
    "GBDT",
    "LGB",
    "XGB",
    "Association",
    "Estimator",
    "Federated",
    "LinearRegression",
    "LogisticRegression",
    "ModelShare",
    "Part",
    "RandomForest",
    "Roles",
    "load_model",
    "save_model",
]
