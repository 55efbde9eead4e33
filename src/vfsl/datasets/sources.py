"""What loading a public data set gives, and one reader for each set, with that set's own traps."""

from __future__ import annotations

import http.client
import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from vfsl.data import Kind, PartyTable
from vfsl.errors import DataError
from vfsl.store import read_arrays
from vfsl.values import Array

# Always the same order, so that a row number means the same row everywhere.
_SHUFFLE_SEED = 20081114

_CENSUS_NAMES = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country label"
)
_CENSUS = _CENSUS_NAMES.split()
# The names of OpenML's bank-marketing, which calls them V1 to V16.
_BANK_NAMES = (
    "age job marital education default balance housing loan contact day month duration campaign "
    "pdays previous poutcome"
)
_BANK_OPENML = _BANK_NAMES.split()
_CREDIT_LABEL = "default.payment.next.month"
_CREDIT_CODES = ("SEX", "EDUCATION", "MARRIAGE")
_CREDIT = [
    "LIMIT_BAL",
    *_CREDIT_CODES,
    "AGE",
    *(f"PAY_{month}" for month in (0, 2, 3, 4, 5, 6)),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A public data set, ready to split between parties.

    Attributes
    ----------
    name : str
    frame : pandas.DataFrame
        All rows and columns, pooled, without an id. Only the label when there are ``images``.
    label : str
        The target's column.
    task : {"binary", "multiclass", "regression", "count"}
    kinds : dict of str to Kind
    source : str
        Where it came from.
    notes : tuple of str
        What was done to it, and what to beware of.
    part : array of str, optional
        The publisher's own division, such as ``"train"`` and ``"test"``, by row.
    tables : dict of str to PartyTable
        Ready vertical tables, for sets that were published divided.
    images : Images, optional
        Pictures in the row order of ``frame``.
    """

    name: str
    frame: pd.DataFrame
    label: str
    task: str
    kinds: dict[str, Kind]
    source: str
    notes: tuple[str, ...] = ()
    part: Array | None = None
    tables: dict[str, PartyTable] = field(default_factory=dict)
    images: Images | None = None


class Images:
    """Pictures of a data set, row by row; nothing is read or decoded before the first use.

    Attributes
    ----------
    shape : tuple of int
        Rows, height, width, and 3 for colour.
    """

    def __init__(
        self, shape: tuple[int, ...], open: Callable[[], Callable[[Array], Array]]
    ) -> None:
        self.shape = shape
        self._open = open
        self._take: Callable[[Array], Array] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        """The pictures of these rows (a number, a slice or row numbers) as uint8."""
        if self._take is None:
            self._take = self._open()
        chosen = np.arange(len(self))[rows]
        taken = self._take(np.atleast_1d(chosen))
        return taken if np.ndim(chosen) else taken[0]


def find_kinds(
    frame: pd.DataFrame, label: str, categorical: tuple[str, ...] = ()
) -> dict[str, Kind]:
    """Kinds by type; codes that only look like numbers are listed in ``categorical``."""
    kinds = {}
    for name, values in frame.items():
        number = pd.api.types.is_numeric_dtype(values.dtype) and values.dtype != bool
        kinds[str(name)] = Kind.NUMERIC if number and name not in categorical else Kind.CATEGORICAL
    kinds[label] = Kind.LABEL
    return kinds


# ---- tables -----------------------------------------------------------------------------------


def read_sklearn(name: str, task: str) -> Dataset:
    """A set that comes with scikit-learn; its classes are numbered."""
    # Imported here: it takes a second, and most runs read their own tables.
    import sklearn.datasets

    bunch = getattr(sklearn.datasets, f"load_{name}")(as_frame=True)
    frame: pd.DataFrame = bunch.frame.copy()
    notes: tuple[str, ...] = ()
    if task != "regression":
        classes = ", ".join(f"{code} = {text}" for code, text in enumerate(bunch.target_names))
        frame["target"] = frame["target"].astype(np.int64)
        notes = (f"Classes: {classes}.",)
    return Dataset(name, frame, "target", task, find_kinds(frame, "target"), "scikit-learn", notes)


def read_census(folder: Path, raw: bool) -> Dataset:
    parts = {}
    # The test file opens with a comment line.
    for name, file, skipped in (("train", "adult.data", 0), ("test", "adult.test", 1)):
        parts[name] = pd.read_csv(
            folder / "census" / file,
            header=None,
            names=_CENSUS,
            skiprows=skipped,
            skipinitialspace=True,
            na_values=[] if raw else ["?"],
            keep_default_na=False,
        )
    frame = pd.concat(parts.values(), ignore_index=True)
    part = np.repeat(list(parts), [len(rows) for rows in parts.values()])
    return _census(frame, "UCI adult", part)


def fetch_census(raw: bool) -> Dataset:
    frame, target = _fetch("census", "adult", 2, _CENSUS[:-1])
    if raw:
        texts = [
            name for name in _CENSUS[:-1] if not pd.api.types.is_numeric_dtype(frame[name].dtype)
        ]
        frame[texts] = frame[texts].fillna("?")
    return _census(frame.assign(label=target), "OpenML adult, version 2", None)


def _census(frame: pd.DataFrame, source: str, part: Array | None) -> Dataset:
    # The test file ends its labels with a dot, which would make four classes of two.
    frame["label"] = frame["label"].str.rstrip(".")
    notes = ("Rows are those of adult.data, then of adult.test.",) if part is not None else ()
    return Dataset(
        "census", frame, "label", "binary", find_kinds(frame, "label"), source, notes, part
    )


def read_bank(folder: Path, raw: bool) -> Dataset:
    path = folder / "bank" / "bank-additional-full.csv"
    frame = pd.read_csv(path, sep=";", keep_default_na=False)
    return _bank(frame, "UCI bank marketing, bank-additional-full", 999, raw, ())


def fetch_bank(raw: bool) -> Dataset:
    frame, target = _fetch("bank", "bank-marketing", 1, _BANK_OPENML)
    frame = frame.assign(y=target.map({"1": "no", "2": "yes"}))
    note = "This is the older bank-full, not bank-additional-full: no economic indicators."
    return _bank(frame, "OpenML bank-marketing, version 1", -1, raw, (note,))


def _bank(
    frame: pd.DataFrame, source: str, never: int, raw: bool, notes: tuple[str, ...]
) -> Dataset:
    if raw:
        notes += (
            "Rows are in order of time: shuffle before splitting.",
            "duration is known only after the call: drop it for honest prediction.",
            f"pdays {never} means never contacted.",
        )
    else:
        order = np.random.default_rng(_SHUFFLE_SEED).permutation(len(frame))
        frame = frame.iloc[order].reset_index(drop=True).drop(columns="duration")
        frame["pdays"] = frame["pdays"].astype("Int64").mask(frame["pdays"] == never)
        notes += (
            "Rows are shuffled: the file is in order of time.",
            "duration is left out: it is known only after the call.",
            f"pdays is missing where the file has {never}, never contacted.",
        )
    notes += ("'unknown' is left as a category of its own.",)
    return Dataset("bank", frame, "y", "binary", find_kinds(frame, "y"), source, notes)


def read_credit(folder: Path, raw: bool) -> Dataset:
    frame = pd.read_csv(folder / "credit" / "UCI_Credit_Card.csv")
    # The ID is the row number of the file.
    frame = frame if raw else frame.drop(columns="ID")
    return _credit(frame, "UCI default of credit card clients")


def fetch_credit(raw: bool) -> Dataset:
    frame, target = _fetch("credit", "default-of-credit-card-clients", 1, _CREDIT)
    frame[list(_CREDIT_CODES)] = frame[list(_CREDIT_CODES)].astype(np.int64)
    frame[_CREDIT_LABEL] = target.astype(np.int64)
    return _credit(frame, "OpenML default-of-credit-card-clients, version 1")


def _credit(frame: pd.DataFrame, source: str) -> Dataset:
    kinds = find_kinds(frame, _CREDIT_LABEL, categorical=_CREDIT_CODES)
    notes = ("SEX, EDUCATION and MARRIAGE are codes, hence categorical.",)
    return Dataset("credit", frame, _CREDIT_LABEL, "binary", kinds, source, notes)


def read_fate(
    name: str, stem: str, key: str, label: str, task: str, folder: Path, raw: bool
) -> Dataset:
    """FATE's ready split: guest holds the label, host features; joined on the id as ``frame``."""
    tables: dict[str, PartyTable] = {}
    notes: list[str] = []
    for side in ("guest", "host"):
        content = pd.read_csv(folder / "fate" / f"{stem}_hetero_{side}.csv", dtype={key: str})
        empty = [column for column in content if content[column].isna().all()]
        notes += [f"Column {column!r} of {side} is empty and left out." for column in empty]
        tables[side] = PartyTable.from_frame(
            content.drop(columns=empty),
            party=side,
            id=key,
            label=label if side == "guest" else False,
        )
    frame = _join(tables, label)
    source = f"FATE examples, {stem}_hetero"
    kinds = find_kinds(frame, label)
    return Dataset(name, frame, label, task, kinds, source, tuple(notes), None, tables)


def _join(tables: dict[str, PartyTable], label: str) -> pd.DataFrame:
    """Both sides' columns by id, in guest order; the label last, shared names prefixed by side."""
    guest, host = tables["guest"], tables["host"]
    both = set(guest.columns) & set(host.columns)
    sides = [
        table.frame.set_axis(pd.Index(table.ids), axis=0).rename(
            columns={column: f"{side}_{column}" for column in both}
        )
        for side, table in tables.items()
    ]
    frame = sides[0].join(sides[1], how="inner").reset_index(drop=True)
    return frame[[*(column for column in frame if column != label), label]]


def read_criteo(folder: Path, raw: bool) -> Dataset:
    numbers = [f"I{place}" for place in range(1, 14)]
    codes = [f"C{place}" for place in range(1, 27)]
    parts = {
        part: pd.read_csv(
            folder / "criteo" / f"{part}.csv",
            sep="\t",
            header=None,
            names=["label", *numbers, *codes],
            dtype={**dict.fromkeys(numbers, "Int64"), **dict.fromkeys(codes, "str")},
            na_values=[""],
            keep_default_na=False,
        )
        for part in ("train", "dev", "test")
    }
    frame = pd.concat(parts.values(), ignore_index=True)
    frame = frame[[*numbers, *codes, "label"]]
    part = np.repeat(list(parts), [len(rows) for rows in parts.values()])
    notes = ("A sample of 8,000 rows; many categories occur once.",)
    kinds = find_kinds(frame, "label")
    return Dataset("criteo", frame, "label", "binary", kinds, "Criteo display ads", notes, part)


def _fetch(
    name: str, openml: str, version: int, columns: list[str]
) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Features under our names, and the target as text, from OpenML."""
    # Imported here: it takes a second, and most runs read their own tables.
    import sklearn.datasets

    try:
        bunch = sklearn.datasets.fetch_openml(openml, version=version, as_frame=True)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DataError(
            f"Data set {name!r} is not in a data folder and could not be downloaded from OpenML "
            f"({type(error).__name__}); set VFSL_DATA to a folder that has it, or connect to the "
            "network."
        ) from None
    features: pd.DataFrame = bunch.data
    if features.shape[1] != len(columns):
        raise DataError(
            f"Data set {name!r} from OpenML must have {len(columns)} features. "
            f"Got {features.shape[1]} instead; OpenML has changed it."
        )
    features = features.set_axis(columns, axis=1).reset_index(drop=True)
    for column in columns:
        if isinstance(features[column].dtype, pd.CategoricalDtype):
            features[column] = features[column].astype(object)
            features[column] = pd.Series(features[column].tolist())
    return features, bunch.target.astype(str).reset_index(drop=True)


# ---- pictures ---------------------------------------------------------------------------------


def read_mnist(folder: Path, raw: bool) -> Dataset:
    path = folder / "mnist" / "mnist.npz"
    frame, part = _image_labels(path)
    kinds, images = find_kinds(frame, "label"), open_mnist(path, len(frame))
    return Dataset("mnist", frame, "label", "multiclass", kinds, "MNIST", part=part, images=images)


def read_cifar10(folder: Path, raw: bool) -> Dataset:
    path = folder / "cifar10" / "cifar10_original_jpeg_bytes.npz"
    frame, part = _image_labels(path)
    kinds, images = find_kinds(frame, "label"), open_cifar10(path, len(frame))
    notes = ("Decoded JPEG: about 8 grey levels RMSE from the lossless originals.",)
    return Dataset(
        "cifar10", frame, "label", "multiclass", kinds, "CIFAR-10", notes, part, images=images
    )


def _image_labels(path: Path) -> tuple[pd.DataFrame, Array]:
    try:
        # Members are read one by one, so the pictures stay on disk.
        with np.load(path, allow_pickle=False) as content:
            labels = {part: content[f"y_{part}"] for part in ("train", "test")}
    except (ValueError, OSError, EOFError, KeyError, BadZipFile) as error:
        raise DataError(f"The file {path} is damaged: {type(error).__name__}.") from None
    frame = pd.DataFrame({"label": np.concatenate(list(labels.values())).astype(np.int64)})
    return frame, np.repeat(list(labels), [len(values) for values in labels.values()])


def open_mnist(path: Path, count: int) -> Images:
    def open_file() -> Callable[[Array], Array]:
        arrays = read_arrays(path)
        pixels = np.concatenate([arrays["x_train"], arrays["x_test"]])
        return lambda rows: pixels[rows]

    return Images((count, 28, 28), open_file)


def open_cifar10(path: Path, count: int) -> Images:
    def open_file() -> Callable[[Array], Array]:
        picture = _import_pillow()
        arrays = read_arrays(path)
        places = [
            (arrays[f"jpg_{part}"], start, stop)
            for part in ("train", "test")
            for start, stop in zip(arrays[f"off_{part}"], arrays[f"off_{part}"][1:], strict=False)
        ]

        def decode(row: int) -> Array:
            content, start, stop = places[row]
            image = picture.open(io.BytesIO(content[start:stop].tobytes()))
            return np.asarray(image.convert("RGB"), dtype=np.uint8)

        def take(rows: Array) -> Array:
            if not len(rows):
                return np.empty((0, 32, 32, 3), dtype=np.uint8)
            return np.stack([decode(int(row)) for row in rows])

        return take

    return Images((count, 32, 32, 3), open_file)


def _import_pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        raise DataError(
            "The pictures of data set 'cifar10' are JPEG and need Pillow to decode; "
            "install it with pip install 'vfsl[deep]'."
        ) from None
