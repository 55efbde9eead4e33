"""Ids of a party: made comparable, counted, and reduced to rows of 32 bytes.

From here on no other file sees an id. The digest is not a protection (anybody can hash a guess): it
never leaves its party and is never written to a file. Errors count ids, they never quote one.

Digests, values, tags and blinded elements are all *byte rows*, arrays of uint8 with one row each;
the functions at the end find, compare and shuffle them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vfsl.align.recipes import Recipe, find_recipe
from vfsl.data.checks import check_choice
from vfsl.errors import ConfigError, DataError
from vfsl.params import check_params, documented, param

ByteRows = npt.NDArray[np.uint8]
RowNumbers = npt.NDArray[np.int64]

DIGEST_BYTES = 32
_DOMAIN = b"vfsl-id-v1"
_CHUNK = 65_536
_MISSING_TYPES = ("NoneType", "NAType", "NaTType")


@documented
@dataclass(frozen=True)
class Normalise:
    """How ids are made comparable; all parties of an alignment must use the same options."""

    strip: bool = param(True, "Remove white space at both ends.")
    case: Literal["keep", "lower", "fold"] = param(
        "keep", 'Compare letters as they are, in lower case, or case-folded ("ß" = "SS").'
    )
    unicode: Literal["NFC", "NFKC", "none"] = param(
        "NFC", "Unicode form; NFKC also unites full-width digits, ligatures and the like."
    )
    numbers: Literal["text", "integer"] = param(
        "text",
        'With "text", "007" and "7" differ. With "integer", ids made of digits lose leading zeros '
        "and a plus sign, and whole numbers stored as floats are accepted.",
    )
    remove: str = param("", 'Characters to leave out wherever they stand, such as "-. ".')
    prefix: str = param("", 'A beginning to leave out where an id has it, such as "CUST-".')
    recipe: Recipe | Sequence[Recipe] = param(
        "none",
        'What ids are: "digits" keeps nothing else; "date" and, month first, "us-date" read days; '
        '"phone" reads telephone numbers. A list has one for each id column.',
    )
    country: str = param("", 'The country\'s code of telephone numbers without one, such as "49".')

    def __post_init__(self) -> None:
        if not isinstance(self.recipe, str) and isinstance(self.recipe, Sequence):
            object.__setattr__(self, "recipe", tuple(self.recipe))
        check_params(self)
        if self.country and not (self.country.isascii() and self.country.isdigit()):
            raise ConfigError(
                "The country parameter of Normalise must be digits, such as '49'. "
                f"Got {self.country!r} instead."
            )

    def describe(self) -> str:
        """The options in one line, for comparison between parties."""
        return " ".join(f"{name}={value!r}" for name, value in asdict(self).items())

    def clean(self, texts: list[str], place: int = 0, columns: int = 1) -> list[str]:
        """Comparable texts; ``place`` is the id column's among so many."""
        for step in _list_cleaning_steps(self, self.recipe_of(place, columns)):
            texts = step(texts)
        return texts

    def recipe_of(self, place: int, columns: int) -> Recipe:
        """The recipe of one id column."""
        if isinstance(self.recipe, str):
            return self.recipe
        if len(self.recipe) != columns:
            raise ConfigError(
                f"The recipe parameter of Normalise must have one recipe for each of {columns} id "
                f"columns. Got {len(self.recipe)} instead."
            )
        return self.recipe[place]


@dataclass(frozen=True, eq=False)
class IdList:
    """The ids of one party, ready for alignment.

    Attributes
    ----------
    digests : array of uint8, (ids, 32)
        One row per id that takes part, without repeats.
    rows : array of int64
        The row of the party's table in which each id stands.
    total, duplicates, empty : int
        How many rows the table has, and how many of them were left out for each reason.
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

    def take_rows(self, rows: RowNumbers) -> IdList:
        """The ids that stand in these rows of the table, in this order."""
        numbers = np.full(self.total, -1, dtype=np.int64)
        numbers[self.rows] = np.arange(len(self.rows))
        chosen = numbers[rows]
        if len(chosen) and chosen.min() < 0:
            raise DataError(f"Party {self.party!r}: some chosen rows have no id that takes part.")
        return replace(self, digests=self.digests[chosen], rows=self.rows[chosen])

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
    check_choice("prepare_ids", "duplicates", duplicates, ("error", "first"))
    check_choice("prepare_ids", "empty", empty, ("error", "drop"))
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
    first = mark_first(digests)
    repeats = int(len(first) - np.count_nonzero(first))
    if repeats and duplicates == "error":
        raise DataError(
            f"Party {party!r} has {repeats} ids that repeat an earlier one after normalisation "
            f"({normalise.describe()}); remove them or choose duplicates='first'."
        )
    if repeats:
        digests, rows = digests[first], rows[first]
    return IdList(party, digests, rows, total, repeats, empties, normalise)


def _hash_columns(
    party: str, columns: Sequence[Sequence[Any]], total: int, normalise: Normalise
) -> tuple[ByteRows, npt.NDArray[np.bool_]]:
    """Digests of all rows and which rows have an id, in chunks: a million ids need 32 MB.

    The length before each part of a composite id makes joining unambiguous.
    """
    prefix, sha256 = _DOMAIN + len(columns).to_bytes(2, "little"), hashlib.sha256
    digests = np.empty((total, DIGEST_BYTES), dtype=np.uint8)
    present = np.ones(total, dtype=bool)
    for start in range(0, total, _CHUNK):
        stop = min(start + _CHUNK, total)
        contents: list[bytes] = []
        for place, column in enumerate(columns):
            # A Series slices by label when its index holds floats; iloc never does.
            texts = _read_texts(party, getattr(column, "iloc", column)[start:stop], normalise)
            texts = normalise.clean(texts, place, len(columns))
            present[start:stop] &= np.fromiter(map(bool, texts), dtype=bool, count=stop - start)
            encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
            parts = [len(part).to_bytes(4, "little") + part for part in encoded]
            contents = [a + b for a, b in zip(contents, parts, strict=True)] if contents else parts
        hashed = b"".join([sha256(prefix + content).digest() for content in contents])
        digests[start:stop] = to_rows(hashed, DIGEST_BYTES)
    return digests, present


def _read_texts(party: str, values: Any, normalise: Normalise) -> list[str]:
    """A chunk of a column as text, missing values as the empty text."""
    items: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
    if {type(item) for item in items} <= {str}:
        return items
    return [_read_text(party, item, normalise) for item in items]


def _read_text(party: str, item: Any, normalise: Normalise) -> str:
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


def _list_cleaning_steps(
    normalise: Normalise, recipe: Recipe
) -> list[Callable[[list[str]], list[str]]]:
    """The steps that turn texts into comparable ones, each over a whole chunk."""

    def unify(texts: list[str]) -> list[str]:
        form: Any = normalise.unicode
        return [text if text.isascii() else unicodedata.normalize(form, text) for text in texts]

    steps: list[Callable[[list[str]], list[str]]] = []
    if normalise.unicode != "none":
        steps.append(unify)
    if normalise.case == "lower":
        steps.append(lambda texts: [text.lower() for text in texts])
    if normalise.case == "fold":
        steps.append(lambda texts: [text.casefold() for text in texts])
    if normalise.case != "keep" and normalise.unicode != "none":
        # Changing case can take a text out of its normal form.
        steps.append(unify)
    if normalise.prefix:
        (start,) = replace(normalise, prefix="", remove="", strip=False, recipe="none").clean(
            [normalise.prefix]
        )
        if normalise.strip:
            steps.append(lambda texts: [text.strip() for text in texts])
        steps.append(lambda texts: [text.removeprefix(start) for text in texts])
    if normalise.remove:
        gone = str.maketrans("", "", normalise.remove)
        steps.append(lambda texts: [text.translate(gone) for text in texts])
    if normalise.strip:
        steps.append(lambda texts: [text.strip() for text in texts])
    written = find_recipe(recipe, normalise.country)
    if written is not None:
        steps.append(lambda texts: [written(text) for text in texts])
    if normalise.numbers == "integer":
        steps.append(lambda texts: [_shorten_integer(text) for text in texts])
    return steps


def _shorten_integer(text: str) -> str:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return text
    short = digits.lstrip("0") or "0"
    return "-" + short if text[0] == "-" and short != "0" else short


# ---- byte rows ------------------------------------------------------------------------------


def to_rows(data: bytes, width: int) -> ByteRows:
    """Bytes of many equally long values as one row each; read-only."""
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width)


def map_rows(function: Callable[[bytes], bytes], rows: ByteRows, width: int) -> ByteRows:
    """A function of each row; in chunks, since bytes objects take more than their content."""
    result = np.empty((len(rows), width), dtype=np.uint8)
    for start in range(0, len(rows), _CHUNK):
        data = b"".join([function(row.tobytes()) for row in rows[start : start + _CHUNK]])
        result[start : start + _CHUNK] = to_rows(data, width)
    return result


def join_rows(parts: list[ByteRows], width: int) -> ByteRows:
    """Several blocks of rows under each other; also one, which is not copied, or none."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty((0, width), dtype=np.uint8)


def find_rows(wanted: ByteRows, among: ByteRows) -> RowNumbers:
    """Which row of ``among``, which has no repeats, equals each wanted row; −1 if none."""
    found = np.full(len(wanted), -1, dtype=np.int64)
    if not len(among):
        return found
    keys = _as_words(among)
    order = np.argsort(keys)
    keys = keys[order]
    for start in range(0, len(wanted), _CHUNK):
        words = _as_words(wanted[start : start + _CHUNK])
        places = np.minimum(np.searchsorted(keys, words), len(keys) - 1)
        found[start : start + _CHUNK] = np.where(keys[places] == words, order[places], -1)
    return found


def count_repeats(rows: ByteRows) -> int:
    """How many rows equal an earlier one."""
    if len(rows) < 2:
        return 0
    keys = np.sort(_as_words(rows))
    return int(np.count_nonzero(keys[1:] == keys[:-1]))


def mark_first(rows: ByteRows) -> npt.NDArray[np.bool_]:
    """True where a row, of eight bytes or more, is the first of its value."""
    first = np.ones(len(rows), dtype=bool)
    # Eight bytes of a digest nearly always tell; sorting those alone takes a quarter of the memory.
    starts = np.ascontiguousarray(rows[:, :8]).view(np.uint64).ravel()
    order = np.argsort(starts, kind="stable")
    alike = np.flatnonzero(starts[order[1:]] == starts[order[:-1]])
    if not len(alike):
        return first
    suspects = np.unique(np.concatenate([order[alike], order[alike + 1]]))
    keys = _as_words(rows[suspects])
    inner = np.argsort(keys, kind="stable")
    first[suspects[inner[1:]]] = keys[inner[1:]] != keys[inner[:-1]]
    return first


def draw_secret_order(count: int) -> RowNumbers:
    """A uniformly random order of ``count`` rows from the operating system's randomness."""
    keys = np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)
    return np.argsort(keys, kind="stable").astype(np.int64)


def _as_words(rows: ByteRows) -> npt.NDArray[Any]:
    # Fixed-width byte strings compare as the padded bytes, so a trailing zero byte is no trap.
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel()
