"""RISA and its opinions. Without torch everything imports; training then says so."""

from vfsl.evidence.encoders import CNN, MLP
from vfsl.evidence.opinion import Opinion, evidence_of, fuse, opinion_of, probability
from vfsl.evidence.risa import RISA
from vfsl.evidence.switches import PAPER, PLUS, PLUS_TABLES, Switches

__all__ = [
    "CNN",
    "MLP",
    "PAPER",
    "PLUS",
    "PLUS_TABLES",
    "RISA",
    "Opinion",
    "Switches",
    "evidence_of",
    "fuse",
    "opinion_of",
    "probability",
]
