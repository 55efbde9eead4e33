"""What to beware of in a completion, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from vfsl.completion.targets import Target
from vfsl.data import Kind, PartyTable
from vfsl.data.checks import counted


def about_targets(missing: str, constant: Sequence[Target], scarce: Sequence[Target]) -> list[str]:
    """Columns that could not be learned."""
    found = [
        f"Column {target.name!r} of party {missing} has one value in all common rows; it is "
        "completed with that value, and nothing is known of others."
        for target in constant
    ]
    return found + [
        f"Column {target.name!r} of party {missing} is known in only "
        f"{counted(int(target.known.sum()), 'common row')}; it is completed locally."
        for target in scarce
    ]


def about_rare(missing: str, columns: Sequence[str]) -> list[str]:
    """Columns that a linear base must not learn."""
    if not columns:
        return []
    names = ", ".join(repr(name) for name in columns)
    return [
        f"In {counted(len(columns), 'column')} of party {missing} ({names}) too few common rows "
        "differ from the most frequent value: the gradients of a linear model could tell the other "
        "party which rows these are. They are completed locally; trees can predict them."
    ]


def unseen_categories(table: PartyTable, common: PartyTable) -> list[str]:
    """Categories that cannot be predicted."""
    found = []
    for name in common.features:
        if table.kinds[name] is not Kind.CATEGORICAL:
            continue
        unseen = set(table.column(name).dropna()) - set(common.column(name).dropna())
        if unseen:
            found.append(
                f"Column {name!r} of party {table.party} has "
                f"{counted(len(unseen), 'category', 'categories')} that no common row has; no "
                "completed cell can have them."
            )
    return found


def about_views(given: str, missing: str, views: int, columns: int, rounds: int) -> list[str]:
    """What predictions of the same rows show together of the columns that they come from.

    ``views``: how many exact predictions per remaining row the missing party has seen, over all
    columns, classes and rounds.
    """
    if not views:
        return []
    seen = f"{missing} has seen {counted(views, 'exact prediction')} per remaining row of {given}"
    if rounds > 1:
        seen += f", over {rounds} rounds"
    rank = min(views, columns)
    if views < columns:
        return [f"{seen}: they can show {rank} of {counted(columns, 'dimension')} of its columns."]
    return [
        f"{seen}, which has {counted(columns, 'column')}: with a linear base they show the columns "
        f"of {given} up to a linear map (rank {rank} of {columns}). Route fewer columns, use one "
        "round, or use trees."
    ]
