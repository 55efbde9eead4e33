"""Public data sets by name: sklearn's own, files behind VFSL_DATA, and downloads from OpenML."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from vfsl.data import sources
from vfsl.data.dataset import Dataset, kinds_of
from vfsl.errors import ConfigError, DataError

_BUILT_IN = {
    "breast_cancer": ("load_breast_cancer", "binary"),
    "diabetes": ("load_diabetes", "regression"),
    "wine": ("load_wine", "multiclass"),
    "iris": ("load_iris", "multiclass"),
    "digits": ("load_digits", "multiclass"),
}


@dataclass(frozen=True)
class _Source:
    """How a set is read from the data folder, and from OpenML where it is there."""

    files: tuple[str, ...]
    read: Callable[[Path, bool], Dataset]
    fetch: Callable[[bool], Dataset] | None = None


_SOURCES: dict[str, _Source] = {
    "census": _Source(
        ("census/adult.data", "census/adult.test"), sources.read_census, sources.fetch_census
    ),
    "bank": _Source(("bank/bank-additional-full.csv",), sources.read_bank, sources.fetch_bank),
    "credit": _Source(("credit/UCI_Credit_Card.csv",), sources.read_credit, sources.fetch_credit),
    **{
        f"fate-{name}": _Source(
            tuple(f"fate/{stem}_hetero_{side}.csv" for side in ("guest", "host")),
            partial(sources.read_fate, name),
        )
        for name, (stem, _, _, _) in sources.FATE.items()
    },
    "criteo": _Source(
        tuple(f"criteo/{part}.csv" for part in ("train", "dev", "test")), sources.read_criteo
    ),
    "mnist": _Source(("mnist/mnist.npz",), sources.read_mnist),
    "cifar10": _Source(("cifar10/cifar10_original_jpeg_bytes.npz",), sources.read_cifar10),
}


def available(*, network: bool = False) -> list[str]:
    """The names that :func:`load` can load here; with ``network`` also those to be downloaded."""
    folder = data_folder()
    found = list(_BUILT_IN)
    for name, source in _SOURCES.items():
        if _has_files(folder, source) or (network and source.fetch is not None):
            found.append(name)
    return found


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
    if name in _BUILT_IN:
        return _built_in(name)
    if name not in _SOURCES:
        known = ", ".join([*_BUILT_IN, *_SOURCES])
        raise ConfigError(f"There is no data set {name!r}; the names are {known}.")
    source = _SOURCES[name]
    folder = data_folder()
    if folder is not None and _has_files(folder, source):
        return source.read(folder, raw)
    if source.fetch is not None:
        return source.fetch(raw)
    raise DataError(
        f"Data set {name!r} needs {' and '.join(source.files)} in the data folder, which is "
        f"{folder or 'not there'}; set VFSL_DATA to a folder that has them."
    )


def data_folder() -> Path | None:
    """The folder with the public data sets: ``VFSL_DATA``, else the nearest shared/data."""
    asked = os.environ.get("VFSL_DATA")
    if asked:
        folder = Path(asked).expanduser()
        if not folder.is_dir():
            raise DataError(f"VFSL_DATA must name a folder. Got {asked!r} instead.")
        return folder
    here = Path.cwd()
    package = Path(__file__).resolve().parent
    for start in (here, package):
        for parent in (start, *start.parents):
            folder = parent / "shared" / "data"
            if any(_has_files(folder, source) for source in _SOURCES.values()):
                return folder
    return None


def _has_files(folder: Path | None, source: _Source) -> bool:
    return folder is not None and all((folder / file).is_file() for file in source.files)


def _built_in(name: str) -> Dataset:
    # Imported here: it takes a second, and most runs read their own tables.
    import sklearn.datasets

    loader, task = _BUILT_IN[name]
    bunch = getattr(sklearn.datasets, loader)(as_frame=True)
    frame: pd.DataFrame = bunch.frame.copy()
    notes: tuple[str, ...] = ()
    if task != "regression":
        classes = ", ".join(f"{code} = {text}" for code, text in enumerate(bunch.target_names))
        frame["target"] = frame["target"].astype(np.int64)
        notes = (f"Classes: {classes}.",)
    return Dataset(name, frame, "target", task, kinds_of(frame, "target"), "scikit-learn", notes)
