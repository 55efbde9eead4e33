"""The data of the RISA experiment: two parties, a fraction of rows aligned, test rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.rivals.harness import Problem, View
from vfsl.data import PartyTable, halves
from vfsl.datasets import Dataset, available, load
from vfsl.errors import DataError
from vfsl.evidence.encoders import CNN, MLP, Recipe
from vfsl.evidence.networks import Inputs, Learning, as_inputs
from vfsl.values import Array

PICTURES = ("mnist", "cifar10")
_FOLDS = 5


@dataclass(frozen=True)
class Task:
    """A data set and the budget on it.

    Attributes
    ----------
    data : str
    rows, judged : int
        Training rows, and rows to judge by.
    epochs : int
    width : int
        Channels of the first block of a CNN.
    batch_size : int
    judge : {"test", "validation"}
        Test rows; or a part of the training rows, for choosing anything.
    """

    data: str
    rows: int
    judged: int
    epochs: int
    width: int = 16
    batch_size: int = 128
    judge: str = "test"


@dataclass(frozen=True, eq=False)
class Case:
    """A problem, the test rows, and the metric."""

    problem: Problem
    judged: tuple[Inputs, Inputs]
    truth: Array
    seed: int
    pictures: bool

    @property
    def metric(self) -> str:
        return "AUC" if self.problem.classes == 2 else "accuracy"

    def quality(self, chances: Array) -> float:
        """AUC or accuracy, in points of 100."""
        from sklearn.metrics import roc_auc_score

        if self.problem.classes == 2:
            return 100 * float(roc_auc_score(self.truth, chances[:, 1]))
        return 100 * float((chances.argmax(axis=1) == self.truth).mean())


def require(task: Task) -> None:
    """Raise DataError if the data of a task are not available."""
    if task.data not in available():
        raise DataError(f"data set {task.data!r} is not here; set VFSL_DATA to a folder with it.")


def make_case(task: Task, overlap: float, seed: int) -> Case:
    """Split rows by the seed, divide columns between two parties, align a fraction of the rows."""
    rng = np.random.default_rng([seed, 2024])
    content = load(task.data)
    train, judged = split_rows(content, task, seed, rng)
    codes, classes = pd.factorize(content.frame[content.label], sort=True)
    tables, recipe = party_tables(content, np.concatenate([train, judged]), task)
    aligned = max(1, round(overlap * len(train)))
    # Outside the overlap B's rows are the same people in another order, which nobody can see.
    others = aligned + rng.permutation(len(train) - aligned)
    orders = (np.arange(len(train)), np.concatenate([np.arange(aligned), others]))
    views, rows_to_judge = [], []
    for table, order in zip(tables, orders, strict=True):
        columns = recipe.columns.fit(table.take(np.arange(len(train))))
        inputs = as_inputs(columns.arrays(table))
        views.append(View(inputs.take(order), recipe, columns))
        rows_to_judge.append(inputs.take(np.arange(len(train), len(table))))
    learning = Learning(epochs=task.epochs, batch_size=task.batch_size)
    labels = codes[train].astype(np.int64)
    problem = Problem((views[0], views[1]), aligned, labels, len(classes), learning)
    pair = (rows_to_judge[0], rows_to_judge[1])
    return Case(problem, pair, codes[judged], seed, task.data in PICTURES)


def split_rows(
    content: Dataset, task: Task, seed: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Training rows and test rows; the publisher's own split if there is one.

    Criteo is small: the seed is the number of one of five folds. Validation rows always come from
    what would be training rows.
    """
    count = len(content.frame)
    if task.data == "criteo":
        folds = np.array_split(np.random.default_rng(0).permutation(count), _FOLDS)
        test = folds[seed % _FOLDS]
        train = np.concatenate([fold for k, fold in enumerate(folds) if k != seed % _FOLDS])
    elif content.part is not None:
        train, test = (np.flatnonzero(content.part == part) for part in ("train", "test"))
    else:
        order = np.random.default_rng(0).permutation(count)
        train, test = order[: count * 3 // 5], order[count * 3 // 5 :]
    train = rng.permutation(train)
    if task.judge == "validation":
        rows = min(task.rows, len(train) * 3 // 4)
        return train[:rows], train[rows : rows + task.judged]
    return train[: task.rows], rng.permutation(test)[: task.judged]


def party_tables(
    content: Dataset, rows: Array, task: Task
) -> tuple[tuple[PartyTable, PartyTable], Recipe]:
    """The two parties' columns of these rows: halves, or in Criteo numbers and categories."""
    if content.images is not None:
        pictures = content.images[rows]
        pictures = pictures if pictures.ndim == 4 else pictures[..., None]
        middle = pictures.shape[2] // 2
        sides = (pictures[:, :, :middle], pictures[:, :, middle:])
        tables = [_table(_pixels(side), party) for side, party in zip(sides, "AB", strict=True)]
        shape = (pictures.shape[3], pictures.shape[1], middle)
        return (tables[0], tables[1]), CNN(shape, task.width)
    frame = content.frame.iloc[rows].reset_index(drop=True)
    names = [str(name) for name in frame if name != content.label]
    if task.data == "criteo":
        columns = ([n for n in names if n[0] == "I"], [n for n in names if n[0] == "C"])
    else:
        columns = halves(names)
    kinds = [{name: content.kinds[name] for name in chosen} for chosen in columns]
    made = [
        _table(frame[chosen], party, kind)
        for chosen, party, kind in zip(columns, "AB", kinds, strict=True)
    ]
    return (made[0], made[1]), MLP()


def _pixels(pictures: Array) -> pd.DataFrame:
    """Images with channels first, one column per pixel."""
    flat = np.moveaxis(pictures, 3, 1).reshape(len(pictures), -1).astype(np.float32)
    return pd.DataFrame(flat, columns=[f"p{place}" for place in range(flat.shape[1])])


def _table(frame: pd.DataFrame, party: str, kinds: Any = None) -> PartyTable:
    named = frame.assign(id=np.arange(len(frame)).astype(str))
    return PartyTable.from_frame(named, party=party, id="id", kinds=kinds, label=False)
