"""Fitted methods on disk: a JSON page and arrays, never pickles. They hold what was learned from a
party's rows: keep them as private as the table.

A method that runs between parties is a public page on the model, and each party's share in its own
folder, as with estimators.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vfsl import store
from vfsl.completion.registry import METHODS, find
from vfsl.errors import ConfigError, DataError, StoreError
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.completion.imputers.shares import EmbedderShare, FillerShare

FORMAT = 1
# What a page that is not ours makes of the code that reads it.
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, DataError)


def save(model: Any, folder: str | Path, name: str = "completion") -> None:
    """Write NAME.json and NAME.npz; of VF-GAIN NAME.json and, for each party, its share in
    parties/PARTY/NAME-share.json and NAME-share.npz.

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
    folder = Path(folder)
    page = {"format": FORMAT, "method": method, "settings": model.settings()}
    if METHODS[method].kind == "protocol":
        if not hasattr(model, "shares_"):
            raise ConfigError(f"{type(model).__name__} is not fitted yet: call fit first.")
        save_shares(model.shares_, folder, name)
        page["parties"] = list(model.shares_)
    else:
        page["state"] = model.state()
        store.write_arrays(folder / f"{name}.npz", model.arrays())
    store.write_json(folder / f"{name}.json", _plain_page(page))


def load(folder: str | Path, name: str = "completion", **settings: Any) -> Any:
    """The model that :func:`save` wrote; it samples and completes as before.

    VF-GAIN comes with the shares of both parties: a simulation. A party of a deployment reads its
    own by :func:`load_share`.

    Parameters
    ----------
    **settings
        ``device`` and ``threads``, which are not saved.
    """
    folder = Path(folder)
    path = folder / f"{name}.json"
    page = store.read_json(path)
    try:
        if page["format"] != FORMAT:
            raise StoreError(f"{path} has format {page['format']}; expected {FORMAT}.")
        model = find(page["method"])(**page["settings"], **settings)
        if METHODS[page["method"]].kind == "protocol":
            shares = {party: load_share(folder, party, name) for party in page["parties"]}
            model.restore(shares, str(path))
        else:
            arrays = store.read_arrays(path.with_suffix(".npz"))
            model.restore(page["state"], arrays, str(path))
    except _UNREADABLE:
        raise StoreError(f"{path} is damaged: it is not a saved completion method.") from None
    return model


def save_shares(
    shares: Mapping[str, EmbedderShare | FillerShare], folder: str | Path, name: str = "completion"
) -> None:
    """Write each party's share into its own folder; a party of a deployment gives only its own."""
    for party, share in shares.items():
        path = _share_path(folder, party, name)
        page = {
            "format": FORMAT,
            "party": party,
            "method": "vfgain",
            "role": share.role,
            "state": share.to_dict(),
            "arrays": _mark(share.arrays),
        }
        store.write_arrays(path.with_suffix(".npz"), share.arrays)
        store.write_json(path, _plain_page(page))


def load_share(
    folder: str | Path, party: str, name: str = "completion"
) -> EmbedderShare | FillerShare:
    """One party's share of a VF-GAIN."""
    path = _share_path(folder, party, name)
    page = store.read_json(path)
    try:
        if page["format"] != FORMAT:
            raise StoreError(f"{path} has format {page['format']}; expected {FORMAT}.")
        if page["party"] != party:
            raise StoreError(f"{path} is the share of {page['party']!r}, not of {party!r}.")
        if page["method"] != "vfgain":
            raise StoreError(f"{path} is a share of {page['method']!r}; expected 'vfgain'.")
        find("vfgain")  # says what is missing where PyTorch is
        from vfsl.completion.imputers.shares import SHARES

        arrays = store.read_arrays(path.with_suffix(".npz"))
        if page["arrays"] != _mark(arrays):
            raise StoreError(
                f"{path.with_suffix('.npz')} does not belong to {path.name}: it is of another "
                "training or was changed."
            )
        share = SHARES[page["role"]].from_dict(page["state"], arrays)
    except _UNREADABLE:
        raise StoreError(f"{path} is damaged: it is not a share of VF-GAIN.") from None
    return share


def _share_path(folder: str | Path, party: str, name: str) -> Path:
    return Path(folder) / "parties" / party / f"{name}-share.json"


def _mark(arrays: Mapping[str, Array]) -> str:
    """A digest of named arrays, by which a page knows those that were written with it."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        value = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {value.dtype.str} {value.shape}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def _plain_page(page: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(page, default=_plain))


def _plain(value: Any) -> Any:
    """Numbers and lists of numpy as those of Python."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | tuple):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not saved")
