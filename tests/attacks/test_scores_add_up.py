"""Attack: a label holder trains again and again and solves the total scores for B's columns.

Each job with another penalty shows it one more combination of B's columns for every row. With as
many as B has columns, and a few rows whose values it knows, it reads all rows. It follows the
protocol; only a count that lasts over jobs stops it.
"""

import threading
from functools import partial

import numpy as np
import pandas as pd
import pytest

from vfsl.channel import Channel, Transcript
from vfsl.channel.memory import Hub
from vfsl.data import PartyTable
from vfsl.deploy.budget import Hidden, KeptBudget, RunBudget
from vfsl.deploy.config import LimitSection
from vfsl.errors import LimitReached, PeerFailed
from vfsl.estimators import LogisticRegression, Part, Roles

ROWS, COLUMNS, AUX = 600, 6, 20
ROLES = Roles("C", ("B",), "K", "plain")
PENALTIES = np.geomspace(1e-3, 3.0, 10)


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(ROWS, COLUMNS)) @ rng.normal(size=(COLUMNS, COLUMNS))
    own = rng.normal(size=(ROWS, 2))
    label = (mixed @ rng.normal(size=COLUMNS) + own[:, 0] > 0).astype(int)
    frames = {"B": mixed, "C": own}
    made = {}
    for party, values in frames.items():
        frame = pd.DataFrame(values, columns=[f"{party}{at}" for at in range(values.shape[1])])
        frame["id"] = [f"p{row}" for row in range(ROWS)]
        made[party] = PartyTable.from_frame(frame, party=party, id="id")
    rows = np.arange(ROWS)
    return {"B": Part(made["B"], rows), "C": Part(made["C"], rows, target=label)}


def run(roles, budget):
    """Roles together, B's channel with its budget; the first error that is no echo is raised."""
    hub, results, errors = Hub(tuple(roles)), {}, []

    def body(party):
        kept = budget if party == "B" else None
        try:
            channel = Channel(hub.transport(party), Transcript(), budget=kept)
            results[party] = roles[party](channel)
            hub.end(party)
        except Exception as error:
            errors.append(error)
            hub.fail(party, type(error).__name__)

    threads = [threading.Thread(target=body, args=(party,), daemon=True) for party in roles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for error in errors:
        if not isinstance(error, PeerFailed):
            raise error
    return results


def views_of(parts, budget_for):
    """B's part of the scores of every job that B took part in to the end, (rows, jobs)."""
    views = []
    for number, l2 in enumerate(PENALTIES):
        model, budget = (
            LogisticRegression(l2=float(l2), refine=0, protocol="rounds"),
            budget_for(f"job {number}"),
        )
        try:
            shares = run(
                {p: partial(model.train, part=parts.get(p), roles=ROLES) for p in "BCK"}, budget
            )
            scores = run(
                {
                    p: partial(model.score_rows, part=parts.get(p), share=shares[p], roles=ROLES)
                    for p in "BCK"
                },
                budget,
            )["C"]
        except LimitReached:
            break
        views.append(scores[:, 0] - own_scores(parts["C"], shares["C"]))
    return np.array(views).T


def own_scores(part, share):
    table = part.table.frame.to_numpy()
    columns = (table - table.mean(axis=0)) / table.std(axis=0)
    weights = np.array(share.state["weights"])[:, 0]
    return columns @ weights[:-1] + weights[-1]


def columns_read(views, truth):
    """How many of B's columns the attacker reads in rows that it knows nothing of."""
    inputs = np.column_stack([views, np.ones(ROWS)])
    guess = np.linalg.lstsq(inputs[:AUX], truth[:AUX], rcond=None)[0]
    wrong = ((inputs @ guess - truth)[AUX:] ** 2).mean(axis=0)
    return int((1 - wrong / truth[AUX:].var(axis=0) > 0.98).sum())


def budget_of(folder, share, run):
    columns = tuple(f"B{at}" for at in range(COLUMNS))
    hidden = {"columns": Hidden(columns, ROWS)}
    return RunBudget(KeptBudget(folder), "B", run, "table", b"key", share, hidden)


def test_a_lasting_budget_ends_the_jobs_before_they_tell_a_column(parts, tmp_path):
    views = views_of(parts, partial(budget_of, tmp_path, LimitSection().numbers))
    assert 1 <= views.shape[1] <= COLUMNS * LimitSection().numbers
    assert columns_read(views, parts["B"].table.frame.to_numpy()) == 0


def test_without_it_the_same_jobs_tell_all_columns(parts, tmp_path):
    views = views_of(parts, partial(budget_of, tmp_path, 100.0))
    assert views.shape[1] == len(PENALTIES)
    assert columns_read(views, parts["B"].table.frame.to_numpy()) == COLUMNS
