"""What a job writes of a completion: columns, where each cell comes from, what it is worth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from vfsl import store
from vfsl.completion.completed import Completion
from vfsl.completion.recommend import Advice
from vfsl.data import write_table


def write_completion(
    done: Completion, folder: Path, number: int, suffix: str, ids: pd.DataFrame | None = None
) -> None:
    """The completed table, its provenance, quality and verdicts, at the missing party.

    Parameters
    ----------
    ids : DataFrame, optional
        Id columns of the completed rows, which only the given party knows between organisations;
        without them rows have numbers.
    """
    for name, frame in (("completed", done.table), ("provenance", provenance_by_cell(done))):
        named = _name_rows(frame, done, ids)
        foreign = [] if ids is None else list(named.columns[: ids.shape[1]])
        write_table(named, folder / f"{name}-{number}{suffix}", foreign=foreign)
    quality = quality_by_column(done)
    write_table(quality, folder / f"quality-{number}.csv")
    verdicts = dict(zip(quality["column"], quality["verdict"], strict=True))
    page = {"columns": verdicts, "notes": list(done.notes)}
    store.write_json(folder / f"verdicts-{number}.json", page)


def _name_rows(frame: pd.DataFrame, done: Completion, ids: pd.DataFrame | None) -> pd.DataFrame:
    """The index as a first column of row numbers, or as the given party's id columns."""
    if ids is None:
        numbered: pd.DataFrame = frame.rename_axis("row").reset_index()
        return numbered
    places = pd.Index(done.ids).get_indexer(frame.index)
    first = ids.iloc[places].reset_index(drop=True)
    taken = set(frame.columns)
    first.columns = pd.Index([f"{n} of the row" if n in taken else n for n in first.columns])
    return pd.concat([first, frame.reset_index(drop=True)], axis=1)


def provenance_by_cell(done: Completion) -> pd.DataFrame:
    """One line per cell, by row: route, model, round, confidence, and an interval or a probability.

    Numbers have the bounds that hold the truth with the probability 1 − miss, categories the
    probability of the completed one.
    """
    blocks: list[pd.DataFrame] = []
    for name, column in done.columns.items():
        lines = pd.DataFrame(done.provenance[name]).copy()
        lines.insert(0, "column", name)
        nothing = np.full(len(lines), np.nan)
        low = high = likely = nothing
        if column.chances is None:
            bounds = done.intervals[name]
            low, high = bounds["low"].to_numpy(), bounds["high"].to_numpy()
        else:
            codes = np.asarray(column.cells).astype(np.int64)
            likely = column.chances[np.arange(len(codes)), codes]
        blocks.append(lines.assign(low=low, high=high, probability=likely))
    return pd.concat(blocks)


def quality_by_column(done: Completion) -> pd.DataFrame:
    """What held-out rows say of each column, how it was routed, and the verdict, last."""
    quality = done.quality.rename_axis("column").reset_index()
    routes = pd.DataFrame(
        [
            {
                "column": route.column,
                "route": route.route,
                "routed by": route.by,
                "measure": route.measure,
                "threshold": route.threshold,
            }
            for route in done.routes
        ]
    )
    clash = [name for name in routes if name in quality and name != "column"]
    both: pd.DataFrame = routes.merge(
        quality.drop(columns=clash), on="column", validate="one_to_one"
    )
    verdicts = both.pop("verdict")
    return both.assign(verdict=verdicts)


def write_advice(advice: Advice, folder: Path, number: int) -> None:
    """Which way to train is best, as data and as a sentence, at the label holder."""
    table = advice.table.rename_axis("way").reset_index()
    page = {
        "text": advice.text,
        "measure": advice.measure,
        "gain": advice.gain,
        "ways": table.astype(object).where(table.notna(), None).to_dict("records"),
    }
    store.write_json(folder / f"advice-{number}.json", page)
    store.write_text(folder / f"advice-{number}.txt", f"{advice.text}\n")
