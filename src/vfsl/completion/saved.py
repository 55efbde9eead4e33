"""Fitted methods on disk: a JSON page and arrays, never pickles. They hold what was learned from a
party's rows: keep them as private as the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from vfsl import store
from vfsl.completion.registry import METHODS, find
from vfsl.errors import ConfigError, StoreError

FORMAT = 1


def save(model: Any, folder: str | Path, name: str = "completion") -> None:
    """Write NAME.json and NAME.npz.

    Parameters
    ----------
    model : a fitted generator or imputer with networks
    folder : str or Path
    name : str
    """
    method = getattr(model, "name", None)
    if method not in METHODS or not hasattr(model, "restore"):
        raise ConfigError(
            f"Only generators and imputers with networks can be saved. Got {type(model).__name__} "
            "instead; fit the others anew, which takes no time."
        )
    page = {
        "format": FORMAT,
        "method": method,
        "settings": model.settings(),
        "state": model.state(),
    }
    arrays = model.arrays()
    folder = Path(folder)
    store.write_arrays(folder / f"{name}.npz", arrays)
    store.write_json(folder / f"{name}.json", json.loads(json.dumps(page, default=_plain)))


def load(folder: str | Path, name: str = "completion", **settings: Any) -> Any:
    """The model that :func:`save` wrote; it samples and completes as before.

    Parameters
    ----------
    **settings
        ``device`` and ``threads``, which are not saved.
    """
    path = Path(folder) / f"{name}.json"
    page = store.read_json(path)
    try:
        if page["format"] != FORMAT:
            raise StoreError(f"{path} has format {page['format']}; expected {FORMAT}.")
        model = find(page["method"])(**page["settings"], **settings)
        arrays = store.read_arrays(path.with_suffix(".npz"))
        model.restore(page["state"], arrays, str(path))
    except (KeyError, TypeError):
        raise StoreError(f"{path} is damaged: it is not a saved completion method.") from None
    return model


def _plain(value: Any) -> Any:
    """Numbers and lists of numpy as those of Python."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | tuple):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not saved")
