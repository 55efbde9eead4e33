"""Public data sets by name, where they come from, and how to cut one into the tables of parties.

Nothing is shipped: some sets come with scikit-learn, three are downloaded from OpenML where there
is a network, the others are read from the folder that the variable ``VFSL_DATA`` names.
"""

from vfsl.data import make_parties
from vfsl.datasets.catalog import Card, available, card, cards, load
from vfsl.datasets.cut import Parties, parties
from vfsl.datasets.sources import Dataset, Images

__all__ = [
    "Card",
    "Dataset",
    "Images",
    "Parties",
    "available",
    "card",
    "cards",
    "load",
    "make_parties",
    "parties",
]
