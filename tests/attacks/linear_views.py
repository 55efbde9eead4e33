"""What parties of a linear training have before them, and attacks that start from it.

A party sees its own columns, the messages that it receives, and, since it knows its masks, what the
key holder opened for it. `watch` keeps these of a real run; nothing else reaches an attack.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from vfsl.align import RowPlan, RowShare
from vfsl.channel import wire
from vfsl.crypto.fixed import decode, encode
from vfsl.data import PartyTable
from vfsl.estimators import exchange, least_squares
from vfsl.estimators.exchange import SCORE_BITS
from vfsl.federation import Federation

LABEL = ("C", "y")


@dataclass
class Seen:
    """One party's own columns and openings in the order in which they came."""

    columns: np.ndarray | None = None  # encoded, centred
    program: object = None
    roles: object = None
    gradients: list = field(default_factory=list)  # integers, one list per round
    looks: list = field(default_factory=list)  # scores of the others in training, (rows, models)
    predictions: list = field(default_factory=list)  # and in prediction


@contextmanager
def watch(monkeypatch):
    """The openings of each party by name, while the context lasts."""
    seen = {party: Seen() for party in "BCDK"}
    with monkeypatch.context() as patch:
        _keep_inputs(patch, seen)
        _keep_openings(patch, seen)
        yield seen


def _keep_inputs(patch, seen):
    feature_holder = least_squares.train_feature_holder

    def train(channel, columns, roles, key, program, *more):
        mine = seen[channel.me]
        mine.columns, mine.roles, mine.program = columns, roles, program
        return feature_holder(channel, columns, roles, key, program, *more)

    patch.setattr(least_squares, "train_feature_holder", train)


def _keep_openings(patch, seen):
    open_masked, open_total = least_squares.open_masked, least_squares.open_total
    score_total = exchange.open_total

    def opened(channel, roles, requests):
        answers = open_masked(channel, roles, requests)
        seen[channel.me].gradients.append(answers)
        return answers

    def looked(channel, roles, key, own):
        total = open_total(channel, roles, key, own)
        seen[channel.me].looks.append(total - decode(own, SCORE_BITS))
        return total

    def predicted(channel, roles, key, own):
        total = score_total(channel, roles, key, own)
        seen[channel.me].predictions.append(total - decode(own, SCORE_BITS))
        return total

    patch.setattr(least_squares, "open_masked", opened)
    patch.setattr(least_squares, "open_total", looked)
    patch.setattr(exchange, "open_total", predicted)


# ---- runs ----------------------------------------------------------------------------------------


def federation(frames, label, scheme="plain", seed=0, marks=None):
    """Aligned beforehand, in the order of the tables; C holds the label, and marks if any."""
    rows = len(label)
    ids = [f"person-{row}" for row in range(rows)]
    frames = {party: pd.DataFrame(frame).assign(id=ids) for party, frame in frames.items()}
    frames["C"]["y"] = label
    tables = {
        party: PartyTable.from_frame(
            frame.rename(columns=str), party=party, id="id", label="y" if party == "C" else None
        )
        for party, frame in frames.items()
    }
    fed = Federation(tables, scheme=scheme, security=112, seed=seed, keep_views=True)
    nobody = np.empty(0, dtype=np.int64)
    fed.plan = RowPlan(
        {
            party: RowShare(party, "plan", np.arange(rows), nobody, marks if party == "C" else None)
            for party in tables
        }
    )
    return fed


def received(fed, party, name):
    """The messages of that name that a party received, opened."""
    return [
        wire.decode(body)[1]
        for _, sight, body in fed.transcript.view(party)
        if sight.rsplit("/", 1)[-1] == name
    ]


# ---- from the first gradient to labels -----------------------------------------------------------


def label_sums(seen, weighted=False):
    """Σ x over the positive rows, (models, d), as the first gradient gives it to a feature holder.

    At scores 0 the gradient is −Σ v t x with targets t = ±2; columns are centred.
    """
    first = np.vstack([np.atleast_2d(one) for one in seen.gradients[0]])
    width = replace(seen.program, weighted=weighted).width(len(seen.columns), 0, seen.roles)
    return -decode(first, width.sums) / 4


def exact_sums(seen):
    """B's columns as the integers that it computes on, and Σ x over the positive rows of these.

    Exact where labels have no noise: −Σ t x with t = 4y − 2.
    """
    width = seen.program.width(len(seen.columns), 0, seen.roles)
    columns = encode(seen.columns, width.columns)
    first = np.rint(-seen.gradients[0][0][0] / 2**width.scores).astype(np.int64)
    return columns, np.rint((first + 2 * columns.sum(axis=0)) / 4).astype(np.int64)


def marked_sums(seen, folds, positives):
    """Σ x over the known positives, nearly, as the mean over VFPU's models gives it.

    A bag's gradient is −(n/p) (Σ_P x − Σ_N x) with p draws N of its own, that of a model without
    fold f the same with p_f of each. The draws are hidden; their mean is that of U, which is what P
    is not, since columns are centred. What they scatter falls with the number of models.
    """
    rows = len(seen.columns)
    sums = 4 * label_sums(seen, weighted=True) / rows
    bags = len(sums) - folds
    without = positives * (folds - 1) / folds
    total = sums[:bags].sum(axis=0) * positives + sums[bags:].sum(axis=0) * without
    return total / ((bags + folds - 1) * (1 + positives / (rows - positives)))


# ---- from scores to columns ----------------------------------------------------------------------
