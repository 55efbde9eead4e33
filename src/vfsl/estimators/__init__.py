"""Federated estimators: each party trains and keeps only its own share."""

from vfsl.estimators.base import Federated, Part, Roles, Share
from vfsl.estimators.linear import LinearRegression, LogisticRegression

__all__ = ["Federated", "LinearRegression", "LogisticRegression", "Part", "Roles", "Share"]
