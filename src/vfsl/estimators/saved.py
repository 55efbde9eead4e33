"""Which estimators there are, and fitted ones on disk.

A model has a public page, and each party's share in that party's own folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vfsl import store
from vfsl.errors import ConfigError, StoreError
from vfsl.estimators.base import Estimator
from vfsl.parts import ModelShare
from vfsl.registry import Registry

FORMAT = 1
# RISA, which lies above, comes by an entry point of our own, as those of other packages do.
ESTIMATORS: Registry[type[Estimator]] = Registry(
    "estimator",
    "vfsl.estimators",
    {
        "linear": "vfsl.estimators.linear:LinearRegression",
        "logistic": "vfsl.estimators.linear:LogisticRegression",
        "rf": "vfsl.estimators.trees:RandomForest",
        "gbdt": "vfsl.estimators.trees:GBDT",
        "xgb": "vfsl.estimators.trees:XGB",
        "lgb": "vfsl.estimators.trees:LGB",
        "scorecard": "vfsl.estimators.scorecard:Scorecard",
    },
)


def save_model(
    model: Estimator, folder: str | Path, name: str = "model", *, force: bool = False
) -> None:
    """Write NAME.json and, for each party, parties/PARTY/NAME-share.json.

    Parameters
    ----------
    model : an estimator
        Fitted.
    folder : str or Path
    name : str
    force : bool
        Replace a model of that name; otherwise it is refused.
    """
    model.check_fitted()
    folder = Path(folder)
    check_no_model(folder, name, force)
    page = _describe(model, model.label_, list(model.shares_))  # refused before anything is written
    for share in model.shares_.values():
        save_share(share, folder, name)
    store.write_json(folder / f"{name}.json", page)


def save_page(
    model: Estimator, label: tuple[str, str], parties: Sequence[str], folder: Path, name: str
) -> None:
    """Write what everybody may know of a model: its settings, its label, whose shares it has."""
    store.write_json(folder / f"{name}.json", _describe(model, label, parties))


def _describe(model: Estimator, label: tuple[str, str], parties: Sequence[str]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "model": model.name,
        "label": list(label),
        "parties": list(parties),
        "settings": model.saved_settings(parties),
    }


def check_no_model(folder: Path, name: str, force: bool) -> None:
    """Refuse to write over a model."""
    path = folder / f"{name}.json"
    if path.exists() and not force:
        raise ConfigError(f"{path} exists; give another name, or force=True to replace it.")


def save_share(share: ModelShare, folder: Path, name: str) -> None:
    """Write one party's share into its own folder."""
    store.write_json(folder / "parties" / share.party / f"{name}-share.json", share.to_dict())


def load_model(folder: str | Path, name: str = "model") -> Estimator:
    """The model that `save_model` wrote, with the shares of all parties: a simulation.

    A party of a deployment reads its own share by `load_share`.
    """
    folder = Path(folder)
    path = folder / f"{name}.json"
    public = store.read_json(path)
    try:
        if public["format"] != FORMAT:
            raise StoreError(f"{path} has format {public['format']}; expected {FORMAT}.")
        settings = {**public["settings"]}
        if "encoders" in public:  # where RISA once kept them
            settings["encoder"] = public["encoders"]
        model = ESTIMATORS.find(public["model"]).from_settings(settings)
        model.label_ = (public["label"][0], public["label"][1])
        parties = list(public["parties"])
    except (KeyError, TypeError, IndexError, AttributeError):
        raise StoreError(f"{path} is damaged: it is not a saved model.") from None
    model.shares_ = {party: load_share(folder, party, name) for party in parties}
    return model


def load_share(folder: str | Path, party: str, name: str = "model") -> ModelShare:
    """One party's share."""
    path = Path(folder) / "parties" / party / f"{name}-share.json"
    content = store.read_json(path)
    try:
        share = ModelShare.from_dict(content)
    except (KeyError, TypeError):
        raise StoreError(f"{path} is damaged: it is not a share of a model.") from None
    if share.party != party:
        raise StoreError(f"{path} is the share of {share.party!r}, not of {party!r}.")
    return share
