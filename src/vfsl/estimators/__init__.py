"""Federated estimators: each party trains and keeps only its own share."""

from vfsl.estimators.answer import Answer
from vfsl.estimators.association import Association
from vfsl.estimators.base import Ask, Estimator
from vfsl.estimators.linear import LinearRegression, LogisticRegression
from vfsl.estimators.saved import (
    ESTIMATORS,
    load_model,
    load_share,
    save_model,
    save_page,
    save_share,
)
from vfsl.estimators.scorecard import Scorecard
from vfsl.estimators.trees import GBDT, LGB, XGB, RandomForest
from vfsl.parts import ModelShare, Part, Roles

__all__ = [
    "ESTIMATORS",
    "GBDT",
    "LGB",
    "XGB",
    "Answer",
    "Ask",
    "Association",
    "Estimator",
    "LinearRegression",
    "LogisticRegression",
    "ModelShare",
    "Part",
    "RandomForest",
    "Roles",
    "Scorecard",
    "load_model",
    "load_share",
    "save_model",
    "save_page",
    "save_share",
]
