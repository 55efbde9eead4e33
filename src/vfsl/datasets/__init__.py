"""Public data sets by name, where they come from, and how to cut one into the tables of parties.

Nothing is shipped: some sets come with scikit-learn, three are downloaded from OpenML where there
is a network, the others are read from the folder that the variable ``VFSL_DATA`` names.
"""

from vfsl.data import Dataset, available, load, make_parties
from vfsl.datasets.cards import Card, card, cards
from vfsl.datasets.cut import Parties, parties

__all__ = [
    "Card",
    "Dataset",
    "Parties",
    "available",
    "card",
    "cards",
    "load",
    "make_parties",
    "parties",
]
