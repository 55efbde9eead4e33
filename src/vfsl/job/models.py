"""Models of all kinds that a job trains: keeping them, taking them up, writing what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vfsl import store
from vfsl.data import write_table
from vfsl.errors import StoreError
from vfsl.estimators import Estimator, load_model, save_model
from vfsl.evidence import RISA, load_risa, save_risa
from vfsl.federation import Federation
from vfsl.values import Array

AnyModel = Estimator | RISA


def keep_model(model: AnyModel, folder: Path, name: str) -> None:
    """Write a fitted model, each party's share into its own folder.

    A step that is done again after an interruption replaces what it had written.
    """
    if isinstance(model, RISA):
        save_risa(model, folder, name, force=True)
    else:
        save_model(model, folder, name, force=True)


def take_up_model(folder: Path, name: str) -> AnyModel:
    """The model of that name."""
    path = folder / f"{name}.json"
    public = store.read_json(path)
    if not isinstance(public, dict):
        raise StoreError(f"{path} is damaged: it is not a saved model.")
    if public.get("model") == "risa":
        return load_risa(folder, name)
    return load_model(folder, name)


def predicts_numbers(model: AnyModel) -> bool:
    return not isinstance(model, RISA) and model.predicts == "numbers"


def write_predictions(model: AnyModel, fed: Federation, path: Path) -> None:
    """The label holder's ids of rows with what the model says of them.

    The aligned rows; of RISA, which knows what to do without the others, all rows of the holder,
    with the uncertainty of each.
    """
    holder, column = model.label_
    share = fed.share(holder)
    if isinstance(model, RISA):
        rows = np.sort(np.concatenate([share.overlap, share.rest]))
        columns = named(model.predict_proba(fed, rows="all"), model.classes_, column)
        columns["uncertainty"] = model.uncertainty(fed, rows="all")
        columns["aligned"] = np.isin(rows, share.overlap)
    else:
        rows = share.overlap
        if predicts_numbers(model):
            columns = {f"predicted {column}": model.predict(fed)}
        else:
            columns = named(model.predict_proba(fed), model.classes_, column)
    table = fed.tables[holder].take(rows)
    write_table(table.to_frame()[list(table.id_columns)].assign(**columns), path)


def named(chances: Array, classes: Array, column: str) -> dict[str, Array]:
    """Columns of a predictions file: the most probable class, and the probability of each."""
    most = classes[chances.argmax(axis=1)]
    each = {f"p({column}={c})": p for c, p in zip(classes, chances.T, strict=True)}
    return {f"predicted {column}": most, **each}
