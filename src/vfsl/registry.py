"""Implementations by name: ours in one explicit list, those of other packages by entry point."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from vfsl.errors import ConfigError

Entry = TypeVar("Entry")


def find_plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points that installed packages declare in a group, in order of their names."""
    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda e: e.name)}


class Registry(Generic[Entry]):
    """Named implementations of one kind, each imported only when it is asked for.

    Parameters
    ----------
    what : str
        What one entry is called in error messages, such as ``"completion method"``.
    group : str
        The entry-point group by which other packages add entries. A name of ours stays ours.
    builtin : mapping of str to str
        Our own entries, as ``"module:attribute"`` by name.
    """

    def __init__(self, what: str, group: str, builtin: Mapping[str, str]) -> None:
        self.what = what
        self.group = group
        self._builtin = {name: EntryPoint(name, path, group) for name, path in builtin.items()}

    def names(self) -> list[str]:
        """All names, those of other packages last. Nothing is imported."""
        return list(self._builtin | find_plugins(self.group))

    def __len__(self) -> int:
        return len(self.names())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in find_plugins(self.group)

    def get(self, name: str) -> Entry | None:
        """The entry of that name, or None where there is none."""
        entry = self._builtin.get(name) or find_plugins(self.group).get(name)
        return None if entry is None else self._load(entry)

    def find(self, name: str) -> Entry:
        """The entry of that name.

        Raises
        ------
        ConfigError
            The name is unknown, or its entry needs PyTorch, which is not installed.
        """
        found = self.get(name)
        if found is None:
            known = self.names()
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise ConfigError(
                f"There is no {self.what} {name!r}{hint} Known are {', '.join(known)}."
            )
        return found

    def _load(self, entry: EntryPoint) -> Entry:
        try:
            loaded: Entry = entry.load()
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "torch":
                raise
            noun = self.what.split()[-1].capitalize()
            raise ConfigError(
                f"{noun} {entry.name!r} needs PyTorch, which is not installed; install it with "
                "pip install 'vfsl[deep]'."
            ) from None
        return loaded
