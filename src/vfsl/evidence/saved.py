"""A fitted RISA on disk: a public page on the model, and each party's share in its own folder.

The same files as those of other estimators. A share holds the weights of that party's network and
how its columns are encoded: keep it as private as the table.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from vfsl import store
from vfsl.errors import ConfigError, StoreError
from vfsl.estimators.saved import FORMAT, check_no_model, load_share, save_shares
from vfsl.evidence.encoders import CNN, MLP, recipe_for
from vfsl.evidence.risa import RISA

MODEL = "risa"
_ENCODERS: dict[str, type[MLP] | type[CNN]] = {"mlp": MLP, "cnn": CNN}
# Where training kept epochs, who listened and on which machine it ran are not parts of the model.
_NOT_SAVED = ("encoder", "checkpoints", "checkpoint_every", "on_event", "device")


def save_risa(model: RISA, folder: str | Path, name: str = "model", *, force: bool = False) -> None:
    """Write NAME.json and, for each party, parties/PARTY/NAME-share.json.

    Parameters
    ----------
    model : RISA
        Fitted, with networks of ours: a torch module of your own is yours to keep.
    folder : str or Path
    name : str
    force : bool
        Replace a model of that name; otherwise it is refused.
    """
    if not hasattr(model, "shares_"):
        raise ConfigError("RISA is not fitted yet: call fit first.")
    folder = Path(folder)
    encoders = {party: _encoder(model, party) for party in model.shares_}
    chosen = [field.name for field in fields(model) if field.name not in _NOT_SAVED]
    settings = {field: getattr(model, field) for field in chosen}
    if settings["switches"] is not None:
        settings["switches"] = dict(settings["switches"])
    check_no_model(folder, name, force)
    save_shares(model.shares_, folder, name)
    public = {
        "format": FORMAT,
        "model": MODEL,
        "label": list(model.label_),
        "parties": list(model.shares_),
        "settings": settings,
        "encoders": encoders,
    }
    store.write_json(folder / f"{name}.json", public)


def load_risa(folder: str | Path, name: str = "model", **settings: Any) -> RISA:
    """The RISA that `save_risa` wrote, with the shares of all parties: a simulation.

    Parameters
    ----------
    **settings
        ``device``, which is not saved.
    """
    folder = Path(folder)
    path = folder / f"{name}.json"
    public = store.read_json(path)
    try:
        if public["format"] != FORMAT:
            raise StoreError(f"{path} has format {public['format']}; expected {FORMAT}.")
        if public["model"] != MODEL:
            raise StoreError(f"{path} is a saved {public['model']!r}; expected {MODEL!r}.")
        parties = list(public["parties"])
        encoder = {party: _decoded(public["encoders"][party]) for party in parties}
        model = RISA(**public["settings"], encoder=encoder, **settings)
        model.label_ = (public["label"][0], public["label"][1])
    except (KeyError, TypeError, IndexError, AttributeError):
        raise StoreError(f"{path} is damaged: it is not a saved model.") from None
    model.shares_ = {party: load_share(folder, party, name) for party in parties}
    return model


def _encoder(model: RISA, party: str) -> dict[str, Any]:
    recipe = recipe_for(model.encoder, party)
    for name, kind in _ENCODERS.items():
        if isinstance(recipe, kind):
            return {"kind": name, **asdict(recipe)}
    raise ConfigError(
        f"The network of party {party!r} is a torch module of your own, which is not saved; keep "
        "risa.shares_ beside it."
    )


def _decoded(content: dict[str, Any]) -> MLP | CNN:
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in content.items()
        if name != "kind"
    }
    return _ENCODERS[content["kind"]](**given)
