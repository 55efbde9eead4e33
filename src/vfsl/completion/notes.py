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


def linear_map(given: str, missing: str, predicted: int, columns: int) -> list[str]:
    """What many linear predictions show of the columns that they come from."""
    if predicted < columns:
        return []
    return [
        f"{predicted} columns were predicted by a linear model from {columns}: together the "
        f"predictions show party {missing} the columns of {given} up to a linear map. Route fewer "
        "columns, or use trees."
    ]
