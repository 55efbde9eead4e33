"""Starting a site from its own folder, after a look at what would stop it later."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from vfsl.deploy.config import FOLDER_VARIABLE, KIT_FOLDER, load_party, seal_key
from vfsl.deploy.engine import become

LOG_FILE = "engine.log"


def check_site(folder: Path) -> str:
    """Refuse a folder whose site could not take part in a run; returns what it is set up as."""
    mine = load_party(folder)
    if mine.role == "relay":
        return "the relay"
    seal_key(folder)
    mine.pins()
    if mine.role == "key holder":
        return f"{mine.party}, the key holder"
    table = mine.read_table(folder)
    return f"{mine.party} with {len(table)} rows and {len(table.columns)} columns"


def start_site(folder: Path) -> NoReturn:
    """Become the long-running process of a site."""
    folder = folder.absolute()
    become(folder / KIT_FOLDER, folder / LOG_FILE, {FOLDER_VARIABLE: str(folder)})
