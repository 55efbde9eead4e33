"""Public data sets by name: where each comes from, on which terms, and how it is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from vfsl.datasets import sources
from vfsl.datasets.sources import Dataset
from vfsl.errors import ConfigError, DataError

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


@dataclass(frozen=True)
class _Entry:
    """A set: its card, the files that it needs, how they are read, and OpenML's copy if any."""

    card: Card
    files: tuple[str, ...]
    read: Callable[[Path, bool], Dataset]
    fetch: Callable[[bool], Dataset] | None = None


def _sklearn(name: str, task: str, about: str, cite: str, terms: str = _UCI) -> _Entry:
    card = Card(name, about, terms, cite, "Nothing: it comes with scikit-learn.")
    return _Entry(card, (), lambda folder, raw: sources.read_sklearn(name, task))


def _openml(
    name: str,
    files: Sequence[str],
    read: Callable[[Path, bool], Dataset],
    fetch: Callable[[bool], Dataset],
    about: str,
    cite: str,
) -> _Entry:
    get = f"Put {' and '.join(files)} into the folder VFSL_DATA, or have a network: OpenML has it."
    return _Entry(Card(name, about, _UCI, cite, get), tuple(files), read, fetch)


def _fate(name: str, stem: str, key: str, label: str, task: str, about: str) -> _Entry:
    files = tuple(f"fate/{stem}_hetero_{side}.csv" for side in ("guest", "host"))
    get = f"Put {' and '.join(files)} into the folder VFSL_DATA."
    about = f"{about}; published in two halves."
    card = Card(f"fate-{name}", about, _FATE, "FederatedAI/FATE, examples/data", get)
    return _Entry(card, files, partial(sources.read_fate, card.name, stem, key, label, task))


_ENTRIES = {
    entry.card.name: entry
    for entry in (
        _sklearn(
            "breast_cancer",
            "binary",
            "569 tumours, 30 measures, benign or malignant.",
            "Wolberg, Mangasarian, Street, Street (1993): Breast Cancer Wisconsin (Diagnostic)",
        ),
        _sklearn(
            "diabetes",
            "regression",
            "442 patients, 10 measures, progress after a year.",
            "Efron, Hastie, Johnstone, Tibshirani (2004): Least Angle Regression",
            "no licence stated by the publisher",
        ),
        _sklearn(
            "wine",
            "multiclass",
            "178 wines, 13 measures, three growers.",
            "Aeberhard, Forina (1992): Wine",
        ),
        _sklearn(
            "iris",
            "multiclass",
            "150 flowers, 4 measures, three species.",
            "Fisher (1936): The use of multiple measurements in taxonomic problems",
        ),
        _sklearn(
            "digits",
            "multiclass",
            "1,797 pictures of digits, 8 × 8.",
            "Alpaydin, Kaynak (1998): Optical Recognition of Handwritten Digits",
        ),
        _openml(
            "census",
            ("census/adult.data", "census/adult.test"),
            sources.read_census,
            sources.fetch_census,
            "48,842 people of a US census, income above 50,000 or not.",
            "Becker, Kohavi (1996): Adult",
        ),
        _openml(
            "bank",
            ("bank/bank-additional-full.csv",),
            sources.read_bank,
            sources.fetch_bank,
            "41,188 calls of a Portuguese bank, deposit or not.",
            "Moro, Cortez, Rita (2014): A data-driven approach to predict the success of bank "
            "telemarketing",
        ),
        _openml(
            "credit",
            ("credit/UCI_Credit_Card.csv",),
            sources.read_credit,
            sources.fetch_credit,
            "30,000 credit cards in Taiwan, default next month or not.",
            "Yeh, Lien (2009): The comparisons of data mining techniques for the predictive "
            "accuracy of probability of default of credit card clients",
        ),
        _fate("breast", "breast", "id", "y", "binary", "569 tumours"),
        _fate("default_credit", "default_credit", "id", "y", "binary", "30,000 credit cards"),
        _fate(
            "vehicle", "vehicle_scale", "id", "y", "multiclass", "846 silhouettes of four vehicles"
        ),
        _fate("student", "student", "id", "y", "regression", "395 pupils and their grade"),
        _fate(
            "motor",
            "motor",
            "idx",
            "motor_speed",
            "regression",
            "800 states of a motor and its speed",
        ),
        _fate(
            "dvisits",
            "dvisits",
            "id",
            "doctorco",
            "count",
            "5,190 people and their visits to a doctor",
        ),
        _fate("ionosphere", "ionosphere_scale", "sid", "label", "binary", "351 radar returns"),
        _Entry(
            Card(
                "criteo",
                "8,000 rows of the display advertising challenge, clicked or not.",
                "Criteo's own terms of use, at ailab.criteo.com",
                "Criteo AI Lab (2014): Kaggle Display Advertising Challenge",
                "Put criteo/train.csv, dev.csv and test.csv into the folder VFSL_DATA.",
            ),
            ("criteo/train.csv", "criteo/dev.csv", "criteo/test.csv"),
            sources.read_criteo,
        ),
        _Entry(
            Card(
                "mnist",
                "70,000 pictures of digits, 28 × 28.",
                "no licence in the files",
                "LeCun, Bottou, Bengio, Haffner (1998): Gradient-based learning applied to "
                "document recognition",
                "Put mnist/mnist.npz into the folder VFSL_DATA.",
            ),
            ("mnist/mnist.npz",),
            sources.read_mnist,
        ),
        _Entry(
            Card(
                "cifar10",
                "60,000 small pictures of ten classes, in colour.",
                "no licence in the files; the authors ask for the citation",
                "Krizhevsky (2009): Learning multiple layers of features from tiny images",
                "Put cifar10/cifar10_original_jpeg_bytes.npz into the folder VFSL_DATA; Pillow "
                "decodes it.",
            ),
            ("cifar10/cifar10_original_jpeg_bytes.npz",),
            sources.read_cifar10,
        ),
    )
}


def card(name: str) -> Card:
    """Where a set comes from, on which terms, and what to do so that it loads."""
    return _find(name).card


def cards() -> pd.DataFrame:
    """All cards as a table by name, with a column that says whether the set loads here."""
    here = set(available())
    lines = [{**vars(one.card), "here": name in here} for name, one in _ENTRIES.items()]
    return pd.DataFrame(lines).set_index("name")


def available(*, network: bool = False) -> list[str]:
    """The names that :func:`load` can load here; with ``network`` also those to be downloaded."""
    folder = find_data_folder()
    return [
        name
        for name, entry in _ENTRIES.items()
        if _has_files(folder, entry) or (network and entry.fetch is not None)
    ]


def load(name: str, *, raw: bool = False) -> Dataset:
    """Load a public data set by name.

    Files are looked for in the folder that the environment variable ``VFSL_DATA`` names, else in
    ``shared/data`` beside the checkout or the current folder, or beside one of their parents.
    ``census``, ``bank`` and ``credit`` are downloaded from OpenML when they are not there.

    Parameters
    ----------
    name : str
        One of sklearn's ``breast_cancer``, ``diabetes``, ``wine``, ``iris``, ``digits``; or
        ``census``, ``bank``, ``credit``, ``fate-breast``, ``fate-default_credit``,
        ``fate-vehicle``, ``fate-student``, ``fate-motor``, ``fate-dvisits``, ``fate-ionosphere``,
        ``criteo``, ``mnist``, ``cifar10``.
    raw : bool
        Keep the publisher's row order, columns and special codes, instead of an honest default:
        ``bank`` is time-ordered (shuffled), its ``duration`` is known only after the call
        (dropped) and ``pdays`` 999 means never (missing); ``census`` writes missing as ``?``.

    Returns
    -------
    Dataset

    Raises
    ------
    ConfigError
        An unknown name.
    DataError
        The files are not here and cannot be downloaded.
    """
    entry = _find(name)
    folder = find_data_folder() if entry.files else Path()
    if folder is not None and _has_files(folder, entry):
        return entry.read(folder, raw)
    if entry.fetch is not None:
        return entry.fetch(raw)
    raise DataError(
        f"Data set {name!r} needs {' and '.join(entry.files)} in the data folder, which is "
        f"{folder or 'not there'}; set VFSL_DATA to a folder that has them."
    )


def find_data_folder() -> Path | None:
    """The folder with the public data sets: ``VFSL_DATA``, else the nearest shared/data."""
    asked = os.environ.get("VFSL_DATA")
    if asked:
        folder = Path(asked).expanduser()
        if not folder.is_dir():
            raise DataError(f"VFSL_DATA must name a folder. Got {asked!r} instead.")
        return folder
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        for parent in (start, *start.parents):
            folder = parent / "shared" / "data"
            if any(entry.files and _has_files(folder, entry) for entry in _ENTRIES.values()):
                return folder
    return None


def _find(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise ConfigError(f"There is no data set {name!r}; the names are {', '.join(_ENTRIES)}.")
    return _ENTRIES[name]


def _has_files(folder: Path | None, entry: _Entry) -> bool:
    """Whether a set can be read here; one without files always can."""
    return not entry.files or (
        folder is not None and all((folder / file).is_file() for file in entry.files)
    )
