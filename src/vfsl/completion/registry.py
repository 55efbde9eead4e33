"""Completion methods by name, what each of them is, and fitted ones on disk.

A saved method is a JSON page and arrays, never a pickle. It holds what was learned from a party's
rows: keep it as private as the table. A method that runs between parties is a public page on the
model, and each party's share in its own folder, as with estimators.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vfsl import store
from vfsl.completion.simple import GeneratorCompleter
from vfsl.errors import ConfigError, DataError, StoreError
from vfsl.registry import Registry
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.completion.imputers.halves import NetworkShare

KINDS = ("completer", "generator", "protocol")
FORMAT = 1
# Settings that earlier versions saved under another name.
_RENAMED = {"attention": "self_attention"}
# What a page that is not ours makes of the code that reads it.
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, DataError)


@dataclass(frozen=True)
class Facts:
    """What a completion method is. A class of another package declares it as ``facts``.

    A completer fills a table, a generator makes up rows and completes through `GeneratorCompleter`,
    a protocol runs between parties.
    """

    kind: Literal["completer", "generator", "protocol"] = "completer"
    needs_torch: bool = False
    saved: bool = False  # by `save`
    checkpoints: bool = False  # an interrupted training goes on from where it was


_BASELINE = Facts()
_GENERATOR = Facts("generator", needs_torch=True, saved=True, checkpoints=True)
_IMPUTER = Facts("completer", needs_torch=True, saved=True, checkpoints=True)
_PROTOCOL = Facts("protocol", needs_torch=True, saved=True, checkpoints=True)

# Beside the paths, so that nothing is imported to know them.
METHODS: dict[str, tuple[str, Facts]] = {
    "mean": ("vfsl.completion.simple:MeanMode", _BASELINE),
    "hot-deck": ("vfsl.completion.simple:HotDeck", _BASELINE),
    "ctgan": ("vfsl.completion.generators.ctgan:CTGAN", _GENERATOR),
    "tablegan": ("vfsl.completion.generators.tablegan:TableGAN", _GENERATOR),
    "ctabgan": ("vfsl.completion.generators.ctabgan:CTABGAN", _GENERATOR),
    "vae": ("vfsl.completion.generators.vae:VAE", _GENERATOR),
    "tvae": ("vfsl.completion.generators.tvae:TVAE", _GENERATOR),
    "tabddpm": ("vfsl.completion.generators.tabddpm:TabDDPM", _GENERATOR),
    "gain": ("vfsl.completion.imputers.gain:GAIN", _IMPUTER),
    "vgain": ("vfsl.completion.imputers.vgain:VGAIN", _IMPUTER),
    "vfgain": ("vfsl.completion.imputers.vfgain:VFGAIN", _PROTOCOL),
}
_registry: Registry[Any] = Registry(
    "completion method", "vfsl.completers", {name: path for name, (path, _) in METHODS.items()}
)


def available(kind: str | None = None) -> list[str]:
    """Names of methods, those of other packages last.

    Parameters
    ----------
    kind : {"completer", "generator", "protocol"}, optional
        Only methods of that kind; those of other packages are imported to know theirs. Without it
        nothing is imported.
    """
    if kind is not None and kind not in KINDS:
        raise ConfigError(
            "The kind parameter of available must be 'completer', 'generator' or 'protocol'. "
            f"Got {kind!r} instead."
        )
    return [name for name in _registry.names() if kind is None or facts_of(name).kind == kind]


def local_methods() -> list[str]:
    """Methods that one party runs alone. Nothing is imported: those of other packages count."""
    return [n for n in _registry.names() if n not in METHODS or facts_of(n).kind != "protocol"]


def find(name: str) -> Any:
    """The class of a method; ConfigError for an unknown name, or if it needs a missing extra."""
    return _registry.find(name)


def facts_of(name: str) -> Facts:
    """What a method is; one of another package that declares nothing is a completer."""
    if name in METHODS:
        return METHODS[name][1]
    facts: Facts = getattr(find(name), "facts", Facts())
    return facts


def completer(name: str, **settings: Any) -> Any:
    """A completer by name; a generator is wrapped in :class:`GeneratorCompleter`.

    Parameters
    ----------
    name : str
        One of :func:`available`, except protocols, which run between parties.
    **settings
        Parameters of the method; ``draws`` goes to the wrapper of a generator.
    """
    kind = facts_of(name).kind
    if kind == "protocol":
        raise ConfigError(
            f"Method {name!r} runs between parties over a channel; it is not a local completer."
        )
    made = find(name)
    try:
        if kind == "completer":
            return made(**settings)
        outer = {key: settings.pop(key) for key in ("draws",) if key in settings}
        return GeneratorCompleter(made(**settings), **outer)
    except TypeError as error:
        raise ConfigError(f"Method {name!r} cannot be made with these settings: {error}.") from None


# ---- fitted methods on disk ----------------------------------------------------------------------


def save(model: Any, folder: str | Path, name: str = "completion") -> None:
    """Write a fitted generator or imputer with networks as NAME.json and NAME.npz.

    Of VF-GAIN there is NAME.json and, for each party, its share in parties/PARTY/NAME-share.json
    and NAME-share.npz.
    """
    method = getattr(model, "name", None)
    if method not in _registry.names() or not facts_of(method).saved:
        raise ConfigError(
            f"Only generators and imputers with networks can be saved. Got {type(model).__name__} "
            "instead; fit the others anew, which takes no time."
        )
    folder = Path(folder)
    page = {"format": FORMAT, "method": method, "settings": model.settings()}
    if facts_of(method).kind == "protocol":
        if not hasattr(model, "shares_"):
            raise ConfigError(f"{type(model).__name__} is not fitted yet: call fit first.")
        save_shares(model.shares_, folder, name)
        page["parties"] = list(model.shares_)
    else:
        page["state"] = model.state()
        store.write_arrays(folder / f"{name}.npz", model.arrays())
    _write_page(folder / f"{name}.json", page)


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
        _check_format(path, page)
        saved = {_RENAMED.get(key, key): value for key, value in page["settings"].items()}
        model = find(page["method"])(**saved, **settings)
        if facts_of(page["method"]).kind == "protocol":
            shares = {party: load_share(folder, party, name) for party in page["parties"]}
            model.restore(shares, str(path))
        else:
            arrays = store.read_arrays(path.with_suffix(".npz"))
            model.restore(page["state"], arrays, str(path))
    except _UNREADABLE:
        raise StoreError(f"{path} is damaged: it is not a saved completion method.") from None
    return model


def save_shares(
    shares: Mapping[str, NetworkShare], folder: str | Path, name: str = "completion"
) -> None:
    """Write each party's share into its own folder; a party of a deployment gives only its own."""
    for party, share in shares.items():
        path = _share_path(folder, party, name)
        store.write_arrays(path.with_suffix(".npz"), share.arrays)
        page = {"format": FORMAT, **share.to_page(), "arrays": _mark(share.arrays)}
        _write_page(path, page)


def load_share(folder: str | Path, party: str, name: str = "completion") -> NetworkShare:
    """One party's share of a VF-GAIN."""
    path = _share_path(folder, party, name)
    page = store.read_json(path)
    try:
        _check_format(path, page)
        if page["party"] != party:
            raise StoreError(f"{path} is the share of {page['party']!r}, not of {party!r}.")
        if page["method"] != "vfgain":
            raise StoreError(f"{path} is a share of {page['method']!r}; expected 'vfgain'.")
        find("vfgain")  # says what is missing where PyTorch is
        from vfsl.completion.imputers.halves import NetworkShare

        arrays = store.read_arrays(path.with_suffix(".npz"))
        if page["arrays"] != _mark(arrays):
            raise StoreError(
                f"{path.with_suffix('.npz')} does not belong to {path.name}: it is of another "
                "training or was changed."
            )
        return NetworkShare.from_page(page, arrays)
    except _UNREADABLE:
        raise StoreError(f"{path} is damaged: it is not a share of VF-GAIN.") from None


def _share_path(folder: str | Path, party: str, name: str) -> Path:
    return Path(folder) / "parties" / party / f"{name}-share.json"


def _check_format(path: Path, page: Mapping[str, Any]) -> None:
    if page["format"] != FORMAT:
        raise StoreError(f"{path} has format {page['format']}; expected {FORMAT}.")


def _mark(arrays: Mapping[str, Array]) -> str:
    """A digest of named arrays, by which a page knows those that were written with it."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        value = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {value.dtype.str} {value.shape}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def _write_page(path: Path, page: Mapping[str, Any]) -> None:
    store.write_json(path, json.loads(json.dumps(page, default=_plain)))


def _plain(value: Any) -> Any:
    """Values that are not JSON's own as those that are."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not saved")
