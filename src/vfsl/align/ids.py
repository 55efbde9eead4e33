"""Ids of a party: made comparable, counted, and reduced to digests of 32 bytes a row.

From here on no other file sees an id. The digest is not a protection (anybody can hash a guess): it
never leaves its party and is never written to a file. Errors count ids, they never quote one.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from vfsl.align.byterows import ByteRows, RowNumbers, first_of_each, rows_of
from vfsl.errors import ConfigError, DataError

DIGEST_BYTES = 32
_DOMAIN = b"vfsl-id-v1"
_CHUNK = 65_536
_CHOICES = {
    "case": ("keep", "lower", "fold"),
    "unicode": ("NFC", "NFKC", "none"),
    "numbers": ("text", "integer"),
    "duplicates": ("error", "first"),
    "empty": ("error", "drop"),
}
_MISSING_TYPES = ("NoneType", "NAType", "NaTType")


@dataclass(frozen=True)
class Normalise:
    """How ids are made comparable; all parties of an alignment must use the same.

    Parameters
    ----------
    strip : bool
        Remove white space at both ends.
    case : {"keep", "lower", "fold"}
        Compare letters as they are, in lower case, or case-folded ("ß" = "SS").
    unicode : {"NFC", "NFKC", "none"}
        Unicode form; NFKC also unites full-width digits, ligatures and the like.
    numbers : {"text", "integer"}
        ``"text"``: "007" and "7" differ. ``"integer"``: ids of digits alone lose leading zeros and
        a plus sign, and whole numbers stored as floats are accepted.
    remove : str
        Characters to leave out wherever they stand, such as ``"-. "``.
    """

    strip: bool = True
    case: Literal["keep", "lower", "fold"] = "keep"
    unicode: Literal["NFC", "NFKC", "none"] = "NFC"
    numbers: Literal["text", "integer"] = "text"
    remove: str = ""

    def __post_init__(self) -> None:
        for name in ("case", "unicode", "numbers"):
            _check_choice("Normalise", name, getattr(self, name))
        if not isinstance(self.strip, bool) or not isinstance(self.remove, str):
            raise ConfigError(
                "The strip parameter of Normalise must be a bool and remove a str. "
                f"Got {self.strip!r} and {self.remove!r} instead."
            )

    def describe(self) -> str:
        """The options in one line, for comparison between parties."""
        return " ".join(f"{name}={value!r}" for name, value in asdict(self).items())


@dataclass(frozen=True, eq=False)
class IdList:
    """The ids of one party, ready for alignment.

    Attributes
    ----------
    digests : array of uint8, (ids, 32)
        One row per id that takes part, no repeats.
    rows : array of int64
        The row of the party's table that each id stands in.
    total, duplicates, empty : int
        Rows of the table, and how many were left out for each reason.
    """

    party: str
    digests: ByteRows
    rows: RowNumbers
    total: int
    duplicates: int
    empty: int
    normalise: Normalise

    def __len__(self) -> int:
        return len(self.digests)

    def take(self, numbers: RowNumbers) -> IdList:
        """The ids with these numbers, in this order."""
        return replace(self, digests=self.digests[numbers], rows=self.rows[numbers])

    def of_rows(self, rows: RowNumbers) -> IdList:
        """The ids that stand in these rows of the table, in this order."""
        numbers = np.full(self.total, -1, dtype=np.int64)
        numbers[self.rows] = np.arange(len(self.rows))
        chosen = numbers[rows]
        if len(chosen) and chosen.min() < 0:
            raise DataError(f"Party {self.party!r}: some chosen rows have no id that takes part.")
        return self.take(chosen)

    def fingerprint(self, secret: bytes) -> str:
        """A keyed hash of the whole list in table order; says nothing without ``secret``."""
        mac = hmac.new(secret, self.total.to_bytes(8, "little"), hashlib.sha256)
        mac.update(np.ascontiguousarray(self.rows, dtype="<i8").tobytes())
        for start in range(0, len(self.digests), _CHUNK):
            mac.update(self.digests[start : start + _CHUNK].tobytes())
        return mac.hexdigest()


def prepare_ids(
    party: str,
    *columns: Sequence[Any],
    normalise: Normalise | None = None,
    duplicates: Literal["error", "first"] = "error",
    empty: Literal["error", "drop"] = "error",
) -> IdList:
    """Normalise, count and hash the ids of one party.

    Parameters
    ----------
    party : str
        Whose ids they are, for errors.
    *columns : sequence, pandas Series or array
        One id column, or several that together make the id; text, whole numbers or missing.
    normalise : Normalise, optional
        How ids are made comparable.
    duplicates : {"error", "first"}
        Refuse repeated ids, or keep the first row of each.
    empty : {"error", "drop"}
        Refuse empty and missing ids, or leave their rows out. A composite id with an empty part is
        empty.

    Raises
    ------
    DataError
        With counts, never with an id.
    """
    normalise = Normalise() if normalise is None else normalise
    _check_choice("prepare_ids", "duplicates", duplicates)
    _check_choice("prepare_ids", "empty", empty)
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise DataError(
            f"Party {party!r} must give id columns of one length. "
            f"Got {len(columns)} columns with lengths {sorted(lengths)} instead."
        )
    total = lengths.pop()
    digests, present = _hash_columns(party, columns, total, normalise)
    empties = int(total - np.count_nonzero(present))
    if empties and empty == "error":
        raise DataError(
            f"Party {party!r} has {empties} empty or missing ids among {total}; fill them in or "
            "choose empty='drop'."
        )
    rows = np.flatnonzero(present).astype(np.int64)
    if empties:
        digests = digests[rows]
    first = first_of_each(digests)
    repeats = int(len(first) - np.count_nonzero(first))
    if repeats and duplicates == "error":
        raise DataError(
            f"Party {party!r} has {repeats} ids that repeat an earlier one after normalisation "
            f"({normalise.describe()}); remove them or choose duplicates='first'."
        )
    if repeats:
        digests, rows = digests[first], rows[first]
    return IdList(party, digests, rows, total, repeats, empties, normalise)


def digest_of(*parts: str) -> bytes:
    """The digest of one normalised id; the length before each part makes joining unambiguous."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    content = b"".join(len(part).to_bytes(4, "little") + part for part in encoded)
    return hashlib.sha256(_prefix(len(parts)) + content).digest()


def _prefix(parts: int) -> bytes:
    return _DOMAIN + parts.to_bytes(2, "little")


def _hash_columns(
    party: str, columns: Sequence[Sequence[Any]], total: int, normalise: Normalise
) -> tuple[ByteRows, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Digests of all rows and which rows have an id, in chunks: a million ids need 32 MB."""
    steps = _cleaning(normalise)
    prefix, sha256 = _prefix(len(columns)), hashlib.sha256
    digests = np.empty((total, DIGEST_BYTES), dtype=np.uint8)
    present = np.ones(total, dtype=bool)
    for start in range(0, total, _CHUNK):
        stop = min(start + _CHUNK, total)
        contents: list[bytes] = []
        for column in columns:
            # A Series slices by label when its index holds floats; iloc never does.
            texts = _texts(party, getattr(column, "iloc", column)[start:stop], normalise)
            for step in steps:
                texts = step(texts)
            present[start:stop] &= np.fromiter(map(bool, texts), dtype=bool, count=stop - start)
            encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
            parts = [len(part).to_bytes(4, "little") + part for part in encoded]
            contents = [a + b for a, b in zip(contents, parts, strict=True)] if contents else parts
        hashed = b"".join([sha256(prefix + content).digest() for content in contents])
        digests[start:stop] = rows_of(hashed, DIGEST_BYTES)
    return digests, present


def _texts(party: str, values: Any, normalise: Normalise) -> list[str]:
    """A chunk of a column as text, missing values as the empty text."""
    items: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
    kinds = {type(item) for item in items}
    if kinds <= {str}:
        return items
    return [_text(party, item, normalise) for item in items]


def _text(party: str, item: Any, normalise: Normalise) -> str:
    if isinstance(item, str):
        return str(item)
    if type(item).__name__ in _MISSING_TYPES:
        return ""
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        return str(int(item))
    if isinstance(item, (float, np.floating)):
        if item != item:
            return ""
        if normalise.numbers == "integer" and float(item).is_integer():
            return str(int(item))
        raise DataError(
            f"The id column of party {party!r} holds decimal numbers, whose text form is a matter "
            "of taste; convert it to text, or choose numbers='integer' for whole numbers."
        )
    raise DataError(
        f"The id column of party {party!r} must hold text or whole numbers. "
        f"Got {type(item).__name__} instead."
    )


def _cleaning(normalise: Normalise) -> list[Callable[[list[str]], list[str]]]:
    """The steps that turn texts into comparable ones, each over a whole chunk."""
    steps: list[Callable[[list[str]], list[str]]] = []
    if normalise.unicode != "none":
        steps.append(lambda texts: _unicode_form(texts, normalise.unicode))
    if normalise.case == "lower":
        steps.append(lambda texts: [text.lower() for text in texts])
    if normalise.case == "fold":
        steps.append(lambda texts: [text.casefold() for text in texts])
    if normalise.case != "keep" and normalise.unicode != "none":
        # Changing case can take a text out of its normal form.
        steps.append(lambda texts: _unicode_form(texts, normalise.unicode))
    if normalise.remove:
        gone = str.maketrans("", "", normalise.remove)
        steps.append(lambda texts: [text.translate(gone) for text in texts])
    if normalise.strip:
        steps.append(lambda texts: [text.strip() for text in texts])
    if normalise.numbers == "integer":
        steps.append(lambda texts: [_plain_integer(text) for text in texts])
    return steps


def _unicode_form(texts: list[str], form: str) -> list[str]:
    normalize: Callable[..., str] = unicodedata.normalize
    return [text if text.isascii() else normalize(form, text) for text in texts]


def _plain_integer(text: str) -> str:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return text
    short = digits.lstrip("0") or "0"
    return "-" + short if text[0] == "-" and short != "0" else short


def _check_choice(owner: str, name: str, value: object) -> None:
    if value not in _CHOICES[name]:
        allowed = ", ".join(repr(choice) for choice in _CHOICES[name])
        raise ConfigError(
            f"The {name} parameter of {owner} must be one of {allowed}. Got {value!r} instead."
        )
