"""Fitted models on disk: a public page on the model, and each party's share in its own folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from vfsl import store
from vfsl.errors import ConfigError, StoreError
from vfsl.estimators.base import Share
from vfsl.estimators.linear import LinearRegression
from vfsl.estimators.logistic import LogisticRegression

Model = LinearRegression | LogisticRegression

FORMAT = 1
MODELS: dict[str, type[LinearRegression] | type[LogisticRegression]] = {
    "linear": LinearRegression,
    "logistic": LogisticRegression,
}


def save_model(model: Model, folder: str | Path, name: str = "model") -> None:
    """Write NAME.json and, for each party, parties/PARTY/NAME-share.json.

    Parameters
    ----------
    model : LinearRegression or LogisticRegression
        Fitted.
    folder : str or Path
    name : str
    """
    if not hasattr(model, "shares_"):
        raise ConfigError(f"{type(model).__name__} is not fitted yet: call fit first.")
    folder = Path(folder)
    for party, share in model.shares_.items():
        store.write_json(folder / "parties" / party / f"{name}-share.json", asdict(share))
    public = {
        "format": FORMAT,
        "model": model.name,
        "label": list(model.label_),
        "parties": list(model.shares_),
        "settings": asdict(model),
    }
    store.write_json(folder / f"{name}.json", public)


def load_model(folder: str | Path, name: str = "model") -> Model:
    """The model that `save_model` wrote, with the shares of all parties: a simulation.

    A party of a deployment reads its own share by `load_share`.
    """
    folder = Path(folder)
    path = folder / f"{name}.json"
    public = store.read_json(path)
    try:
        if public["format"] != FORMAT:
            raise StoreError(f"{path} has format {public['format']}; expected {FORMAT}.")
        model = MODELS[public["model"]](**public["settings"])
        model.label_ = (public["label"][0], public["label"][1])
        parties = list(public["parties"])
    except (KeyError, TypeError, IndexError):
        raise StoreError(f"{path} is damaged: it is not a saved model.") from None
    model.shares_ = {party: load_share(folder, party, name) for party in parties}
    return model


def load_share(folder: str | Path, party: str, name: str = "model") -> Share:
    """One party's share."""
    path = Path(folder) / "parties" / party / f"{name}-share.json"
    content = store.read_json(path)
    try:
        share = Share(
            **content | {"rounds": tuple(content["rounds"]), "notes": tuple(content["notes"])}
        )
    except (KeyError, TypeError):
        raise StoreError(f"{path} is damaged: it is not a share of a model.") from None
    if share.party != party:
        raise StoreError(f"{path} is the share of {share.party!r}, not of {party!r}.")
    return share
