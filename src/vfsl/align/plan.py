"""Row plans: which rows of each party belong together, and which are its own.

A plan never holds an id. Each party has its own part, a *share*: row numbers of its own table. The
k-th overlap row of every party is the same person; the common order is random and says nothing
about the order of any table. The rows in ``rest`` are in nobody else's share: nameless to the
others.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from vfsl.align.ids import IdList, RowNumbers
from vfsl.errors import DataError, StoreError
from vfsl.showing import show_table
from vfsl.store import read_arrays, read_json, write_arrays, write_json

_VERSION = 1


@dataclass(frozen=True, eq=False)
class RowShare:
    """One party's part of a row plan.

    Attributes
    ----------
    party : str
        Whose part it is.
    plan : str
        The plan's random name, the same at all parties.
    overlap : array of int64
        Rows of the party's table that all parties have, in the common order.
    rest : array of int64
        The party's other rows with an id, in the order of its table.
    marks : array of int8, optional
        Label holder only: +1 for overlap rows that the positive holder knows, −1 for the others.
    """

    party: str
    plan: str
    overlap: RowNumbers
    rest: RowNumbers
    marks: npt.NDArray[np.int8] | None = None

    def __repr__(self) -> str:
        marked = "" if self.marks is None else ", marked"
        return f"<RowShare of {self.party}: {len(self.overlap):,} common rows{marked}>"

    def with_marks(self, marks: npt.NDArray[np.int8]) -> RowShare:
        """The same share with P/U marks."""
        if marks.shape != self.overlap.shape or not np.isin(marks, (-1, 1)).all():
            raise DataError(
                f"The marks of {self.party!r} must be +1 or −1 for each of its {len(self.overlap)} "
                "overlap rows."
            )
        return replace(self, marks=marks.astype(np.int8))

    def save(self, folder: Path | str, ids: IdList) -> None:
        """Write the share, bound to the list that it was made with by a keyed fingerprint."""
        arrays: dict[str, npt.NDArray[Any]] = {"overlap": self.overlap, "rest": self.rest}
        if self.marks is not None:
            arrays["marks"] = self.marks
        numbers, header = _files(Path(folder), self.party)
        secret = secrets.token_bytes(32)
        write_arrays(numbers, arrays)
        # The header comes last: without it, or with one of another time, the share does not load.
        write_json(
            header,
            {
                "version": _VERSION,
                "party": self.party,
                "plan": self.plan,
                "rows": hashlib.sha256(numbers.read_bytes()).hexdigest(),
                "secret": secret.hex(),
                "list": ids.fingerprint(secret),
            },
        )

    @classmethod
    def load(cls, folder: Path | str, party: str, ids: IdList) -> RowShare:
        """Read a share; StoreError if it is damaged or was made with another list."""
        numbers, header = _files(Path(folder), party)
        content = read_json(header)
        try:
            version, owner, plan = content["version"], content["party"], str(content["plan"])
            rows, listed = content["rows"], content["list"]
            secret = bytes.fromhex(content["secret"])
        except (TypeError, KeyError, ValueError):
            raise StoreError(f"{header} is damaged: it is not the header of a row plan.") from None
        if version != _VERSION or owner != party:
            raise StoreError(
                f"{header} holds version {version} of {owner!r}; expected version {_VERSION} of "
                f"{party!r}."
            )
        if not numbers.exists() or hashlib.sha256(numbers.read_bytes()).hexdigest() != rows:
            raise StoreError(f"{numbers} is missing or does not belong to {header}.")
        if ids.fingerprint(secret) != listed:
            raise StoreError(
                f"The row plan in {folder} was made with another id list of {party!r} (other ids, "
                "order or normalisation); align again."
            )
        arrays = read_arrays(numbers)
        return cls(party, plan, arrays["overlap"], arrays["rest"], arrays.get("marks"))


@dataclass(frozen=True, eq=False)
class RowPlan:
    """The shares of all parties, as a simulation has them.

    ``plan["B"]`` is B's share, ``len(plan.overlap)`` the number of common rows.
    """

    shares: Mapping[str, RowShare]

    def __post_init__(self) -> None:
        plans = {share.plan for share in self.shares.values()}
        lengths = {len(share.overlap) for share in self.shares.values()}
        if len(plans) != 1 or len(lengths) != 1:
            raise DataError(
                f"The shares of {', '.join(map(repr, self.shares))} are not of one row plan; "
                "align again."
            )

    def __repr__(self) -> str:
        rests = ", ".join(f"{party} {len(one.rest):,}" for party, one in self.shares.items())
        return f"<RowPlan: {len(self.overlap):,} common rows; other rows: {rests}>"

    def _repr_html_(self) -> str:
        """A line per party, in a notebook."""
        lines = [(party, len(one.overlap), len(one.rest)) for party, one in self.shares.items()]
        return show_table("Row plan", ("party", "common rows", "other rows"), lines)

    def __getitem__(self, party: str) -> RowShare:
        if party not in self.shares:
            raise DataError(
                f"The row plan has no party {party!r}; its parties are "
                f"{', '.join(map(repr, self.shares))}."
            )
        return self.shares[party]

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self.shares)

    @property
    def overlap(self) -> range:
        """The common rows, by their place in the common order."""
        return range(len(next(iter(self.shares.values())).overlap))

    def counts(self) -> dict[str, Any]:
        """Sizes for reports: overlap, remaining rows by party, marked rows where there are any."""
        counts: dict[str, Any] = {
            "overlap": len(self.overlap),
            "rest": {party: len(share.rest) for party, share in self.shares.items()},
        }
        marks = [share.marks for share in self.shares.values() if share.marks is not None]
        if marks:
            counts["marked"] = int(np.count_nonzero(marks[0] == 1))
        return counts

    def save(self, folder: Path | str, ids: Mapping[str, IdList]) -> None:
        """Write all shares, each party's in its own files."""
        for party, share in self.shares.items():
            share.save(folder, ids[party])

    @classmethod
    def load(cls, folder: Path | str, ids: Mapping[str, IdList]) -> RowPlan:
        """Read the shares of these parties."""
        return cls({party: RowShare.load(folder, party, ids[party]) for party in ids})


def find_rest(ids: IdList, overlap: RowNumbers) -> RowNumbers:
    """The rows with an id that are not in the overlap, in the order of the table."""
    own = np.zeros(ids.total, dtype=bool)
    own[ids.rows] = True
    own[overlap] = False
    return np.flatnonzero(own).astype(np.int64)


def _files(folder: Path, party: str) -> tuple[Path, Path]:
    name = f"rows-{quote(party, safe='')}"
    return folder / f"{name}.npz", folder / f"{name}.json"
