"""Where each public data set comes from, on which terms, and how to get it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from vfsl.data import available
from vfsl.errors import ConfigError

_UCI = "CC BY 4.0, as the UCI repository states"
_FATE = "Apache-2.0, as the FATE repository states for its examples"


@dataclass(frozen=True)
class Card:
    """Where a set comes from and on which terms.

    Attributes
    ----------
    name : str
    about : str
    terms : str
        The licence as its publisher states it. Read it there before you use the data.
    cite : str
    get : str
        What to do so that :func:`load` finds it.
    """

    name: str
    about: str
    terms: str
    cite: str
    get: str


def _built_in(name: str, about: str, terms: str, cite: str) -> Card:
    return Card(name, about, terms, cite, "Nothing: it comes with scikit-learn.")


def _openml(name: str, about: str, files: str, cite: str) -> Card:
    get = f"Put {files} into the folder VFSL_DATA, or have a network: OpenML has it."
    return Card(name, about, _UCI, cite, get)


def _fate(name: str, about: str, stem: str) -> Card:
    cite = "FederatedAI/FATE, examples/data"
    get = f"Put fate/{stem}_hetero_guest.csv and _host.csv into the folder VFSL_DATA."
    return Card(f"fate-{name}", f"{about}; published in two halves.", _FATE, cite, get)


_CARDS = {
    made.name: made
    for made in (
        _built_in(
            "breast_cancer",
            "569 tumours, 30 measures, benign or malignant.",
            _UCI,
            "Wolberg, Mangasarian, Street, Street (1993): Breast Cancer Wisconsin (Diagnostic)",
        ),
        _built_in(
            "diabetes",
            "442 patients, 10 measures, progress after a year.",
            "no licence stated by the publisher",
            "Efron, Hastie, Johnstone, Tibshirani (2004): Least Angle Regression",
        ),
        _built_in(
            "wine",
            "178 wines, 13 measures, three growers.",
            _UCI,
            "Aeberhard, Forina (1992): Wine",
        ),
        _built_in(
            "iris",
            "150 flowers, 4 measures, three species.",
            _UCI,
            "Fisher (1936): The use of multiple measurements in taxonomic problems",
        ),
        _built_in(
            "digits",
            "1,797 pictures of digits, 8 × 8.",
            _UCI,
            "Alpaydin, Kaynak (1998): Optical Recognition of Handwritten Digits",
        ),
        _openml(
            "census",
            "48,842 people of a US census, income above 50,000 or not.",
            "census/adult.data and census/adult.test",
            "Becker, Kohavi (1996): Adult",
        ),
        _openml(
            "bank",
            "41,188 calls of a Portuguese bank, deposit or not.",
            "bank/bank-additional-full.csv",
            "Moro, Cortez, Rita (2014): A data-driven approach to predict the success of bank "
            "telemarketing",
        ),
        _openml(
            "credit",
            "30,000 credit cards in Taiwan, default next month or not.",
            "credit/UCI_Credit_Card.csv",
            "Yeh, Lien (2009): The comparisons of data mining techniques for the predictive "
            "accuracy of probability of default of credit card clients",
        ),
        _fate("breast", "569 tumours", "breast"),
        _fate("default_credit", "30,000 credit cards", "default_credit"),
        _fate("vehicle", "846 silhouettes of four vehicles", "vehicle_scale"),
        _fate("student", "395 pupils and their grade", "student"),
        _fate("motor", "800 states of a motor and its speed", "motor"),
        _fate("dvisits", "5,190 people and their visits to a doctor", "dvisits"),
        _fate("ionosphere", "351 radar returns", "ionosphere_scale"),
        Card(
            "criteo",
            "8,000 rows of the display advertising challenge, clicked or not.",
            "Criteo's own terms of use, at ailab.criteo.com",
            "Criteo AI Lab (2014): Kaggle Display Advertising Challenge",
            "Put criteo/train.csv, dev.csv and test.csv into the folder VFSL_DATA.",
        ),
        Card(
            "mnist",
            "70,000 pictures of digits, 28 × 28.",
            "no licence in the files",
            "LeCun, Bottou, Bengio, Haffner (1998): Gradient-based learning applied to document "
            "recognition",
            "Put mnist/mnist.npz into the folder VFSL_DATA.",
        ),
        Card(
            "cifar10",
            "60,000 small pictures of ten classes, in colour.",
            "no licence in the files; the authors ask for the citation",
            "Krizhevsky (2009): Learning multiple layers of features from tiny images",
            "Put cifar10/cifar10_original_jpeg_bytes.npz into the folder VFSL_DATA; Pillow "
            "decodes it.",
        ),
    )
}


def card(name: str) -> Card:
    """Where a set comes from, on which terms, and what to do so that it loads."""
    if name not in _CARDS:
        raise ConfigError(f"There is no data set {name!r}; the names are {', '.join(_CARDS)}.")
    return _CARDS[name]


def cards() -> pd.DataFrame:
    """All cards as a table by name, with a column that says whether the set loads here."""
    here = set(available())
    lines = [{**vars(one), "here": one.name in here} for one in _CARDS.values()]
    return pd.DataFrame(lines).set_index("name")
