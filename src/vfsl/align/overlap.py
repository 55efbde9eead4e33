"""How many ids files have in common under each way to compare them, for whoever owns them all.

No cryptography: this is for tables that lie on one machine anyway, before any work is done. Between
organisations nobody can look like this; there each party looks at its own ids only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vfsl.align.ids import Normalise

Ids = Sequence[Sequence[str | None]]  # one list per id column


@dataclass(frozen=True)
class Overlap:
    """What one way to compare ids finds.

    Attributes
    ----------
    options : dict
        Of `Normalise`; none: as they are written, without spaces around them.
    common : int
        Ids that all tables have.
    repeats : int
        Rows of all tables that repeat an id when compared like this.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    common: int = 0
    repeats: int = 0


def compare_ids(
    tables: Mapping[str, Ids], prefixes: Sequence[str] = (), begin: Normalise | None = None
) -> list[Overlap]:
    """The overlap under each way to compare, the simplest first; ``begin`` is tried before all.

    Parameters
    ----------
    tables : mapping of party to id columns
    prefixes : sequence of str
        Beginnings that the ids of a table have, such as ``CUST-``.
    """
    columns = len(next(iter(tables.values())))
    ways: list[dict[str, Any]] = [{}, {"case": "fold"}, {"numbers": "integer"}]
    ways.append({"case": "fold", "numbers": "integer"})
    ways.append({"case": "fold", "remove": "-_./ "})
    for prefix in dict.fromkeys(prefixes):
        ways.append({"case": "fold", "numbers": "integer", "prefix": prefix})
    ways.append({"unicode": "NFKC", "case": "fold"})
    if columns == 1:
        ways += [{"recipe": recipe} for recipe in ("date", "us-date", "digits", "phone")]
        ways.append({"recipe": "digits", "numbers": "integer"})
    if begin is not None:
        first = {
            name: getattr(begin, name)
            for name in Normalise.__dataclass_fields__
            if getattr(begin, name) != getattr(Normalise(), name)
        }
        ways = [first, *(way for way in ways if way != first)]
    return [count_common(tables, way) for way in ways]


def count_common(tables: Mapping[str, Ids], options: Mapping[str, Any]) -> Overlap:
    """The ids that all tables have when compared like this."""
    how, repeats = Normalise(**options), 0
    found: list[set[Any]] = []
    for columns in tables.values():
        cleaned = [
            how.clean([text or "" for text in texts], place, len(columns))
            for place, texts in enumerate(columns)
        ]
        rows = cleaned[0] if len(cleaned) == 1 else list(zip(*cleaned, strict=True))
        known = [row for row in rows if (all(row) if isinstance(row, tuple) else row)]
        unique = set(known)
        repeats += len(known) - len(unique)
        found.append(unique)
    return Overlap(dict(options), len(set.intersection(*found)), repeats)


def best_overlap(found: Sequence[Overlap]) -> Overlap:
    """The simplest way that finds nearly as many as any does, without making rows alike.

    A way that makes more ids repeat than the first one by a hundredth of what it finds is out: it
    unites different people.
    """
    first = found[0]
    fair = [one for one in found if one.repeats <= first.repeats + one.common // 100]
    most = max(one.common for one in fair)
    return next(one for one in fair if one.common >= 0.99 * most)
