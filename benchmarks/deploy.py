"""The overhead of the NVFlare engine: one job in memory and as a deployment on one machine."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.table import Outcome
from vfsl.completion.fedpsg import FedPSG
from vfsl.deploy import LocalDeployment, submit_job, wait_for
from vfsl.errors import VfslError
from vfsl.estimators import LogisticRegression
from vfsl.federation import Federation, simulate
from vfsl.pu import VFPU
from vfsl.record import RunRecord, StepRecord

_SEED = 7
_SECONDS = 1800.0  # maximum for one run
_ALLOW = """
[allow]
submitters = ["C"]
steps = ["align", "train", "pu", "complete"]
disclosures = ["training scores", "row differences"]
outputs = ["predictions", "reliable positives", "completed columns"]
"""
_JOB = """
parties = ["A", "B", "C"]
[run]
seed = {seed}
seconds = 900
[[steps]]
do = "align"
parties = ["B", "C"]
protocol = "ecdh"
[[steps]]
do = "train"
model = "logistic"
label = ["C", "y"]
[[steps]]
do = "pu"
positives = "A"
label_holder = "C"
protocol = "ecdh"
outer = 1
rounds = {bags}
[[steps]]
do = "complete"
given = "C"
missing = "B"
"""


# The steps of the deployment, and the steps in memory that correspond to them.
_STEPS = {
    "align": ("align",),
    "train logistic": ("train logistic", "predict logistic"),
    "vfpu": ("mark", "vfpu"),
    "complete": ("cross-fit", "vfpu-m", "direct model", "shift"),
}


def run(quick: bool, say: Callable[[str], None]) -> Outcome:
    """10,000 common rows and 20 bags; 600 and 4 if quick."""
    rows, bags = (600, 4) if quick else (10_000, 20)
    tables = make_tables(rows)
    with tempfile.TemporaryDirectory() as name:
        say(f"deployment on this machine: {rows} rows, {bags} bags")
        results, seconds = _deployed(Path(name), tables, bags, say)
        say("the same job in memory")
        fed, scores, completed = _in_memory(tables, results, bags, Path(name) / "plans")
        records = {party: RunRecord.load(path) for party, path in results.items()}
        came = pd.read_csv(results["C"] / "pu-scores-3.csv", index_col="id")["score"]
        cells = pd.read_csv(results["B"] / "completed-4.csv").drop(columns="row")
    lines = [_line(step, rows, bags, records, fed.record) for step in _STEPS]
    inside = sum(step.seconds for step in records["C"].steps)
    around = {"step": "set-up, start, scheduling, end", "rows": rows}
    lines.append(around | {"seconds, NVFlare": seconds - inside})
    notes = [
        "Relay, parties and key holder are processes on this machine, under mutual TLS.",
        "Seconds are those of the label holder; messages and bytes are summed over all parties.",
        f"Both give the same scores, bit for bit: {came.to_dict() == scores.to_dict()}.",
        f"Both give the same completed cells, bit for bit: {cells.equals(completed)}.",
    ]
    return Outcome("deploy", "The overhead of the engine, compared with memory", lines, notes)


def make_tables(rows: int) -> dict[str, pd.DataFrame]:
    """C has B's people and 10 % more, in another order; A knows a third of the positives."""
    rng = np.random.default_rng(_SEED)
    people = rows + rows // 10
    ids = np.array([f"id-{number:07d}" for number in range(people)])
    values = rng.normal(size=(people, 6))
    values[:, :2] += values[:, 3:5]  # so that completion has something to predict
    positive = values[:, 0] + values[:, 3] + rng.normal(size=people) > 0.8
    known = positive & (rng.random(people) < 1 / 3) & (np.arange(people) < rows)
    b = pd.DataFrame(values[:, :3], columns=["b1", "b2", "b3"]).assign(id=ids)
    c = pd.DataFrame(values[:, 3:], columns=["c1", "c2", "c3"]).assign(id=ids, y=positive * 1)
    a = pd.DataFrame({"id": ids[known], "since": np.arange(known.sum())})
    return {"A": a, "B": b.iloc[rng.permutation(rows)], "C": c.iloc[rng.permutation(people)]}


def _deployed(
    folder: Path, tables: Mapping[str, pd.DataFrame], bags: int, say: Callable[[str], None]
) -> tuple[dict[str, Path], float]:
    """The folders with the results of all parties, and the seconds from set-up to the end."""
    started = time.perf_counter()
    made = LocalDeployment(folder / "sites", ["A", "B", "C"], submitters=["C"])
    made.provision()
    for party, table in tables.items():
        table.to_csv(made.site(party) / "table.csv", index=False)
        columns = [name for name in table.columns if name not in ("id", "y")]
        label = 'label = "y"' if party == "C" else ""
        section = f'[table]\npath = "table.csv"\nid = "id"\ncolumns = {json.dumps(columns)}\n'
        made.write_party(party, f'party = "{party}"\n{section}{label}\n{_ALLOW}')
    made.write_party("K", f'party = "K"\nrole = "key holder"\n{_ALLOW}')
    (folder / "job.toml").write_text(_JOB.format(seed=_SEED, bags=bags))
    with made:
        made.start()
        name = submit_job(made.site("C"), folder / "job.toml")
        for party in "CABK":
            status = wait_for(
                made.site(party), name, _SECONDS, lambda one: say(f"{one.state}: {one.sentence}")
            )
            if status.state != "finished":
                raise VfslError(f"The deployment did not end well: {status.sentence}")
    results = {party: made.site(party) / "runs" / name / "results" for party in "ABCK"}
    return results, time.perf_counter() - started


def _in_memory(
    tables: Mapping[str, pd.DataFrame], results: Mapping[str, Path], bags: int, scratch: Path
) -> tuple[Federation, pd.Series[float], pd.DataFrame]:
    """The same steps in memory, on the row plan of the deployment; scores and completed cells."""
    fed = simulate(tables, labels={"C": "y"}, seed=_SEED)
    fed.align("B", "C", protocol="ecdh")
    for party in ("B", "C"):
        shutil.copytree(results[party] / "plan", scratch / party)
    fed.load_plan(scratch, "B", "C")
    LogisticRegression().fit(fed, label=("C", "y")).predict_proba(fed)
    fed.mark(positives="A", label_holder="C", protocol="ecdh")
    method = VFPU(outer=1, rounds=bags).fit(fed, positives="A", label_holder="C")
    done = FedPSG().fit_complete(fed, given="C", missing="B")
    return fed, method.scores_, done.table.reset_index(drop=True)


def _line(
    name: str, rows: int, bags: int, records: Mapping[str, RunRecord], memory: RunRecord
) -> dict[str, Any]:
    deployed = [step for one in records.values() for step in one.steps if step.name == name]
    simulated = [step for step in memory.steps if step.name in _STEPS[name]]
    seconds = next(step.seconds for step in records["C"].steps if step.name == name)
    alone = sum(step.seconds for step in simulated)
    return {
        "step": f"VFPU, logistic, T = {bags}, M = 1" if name == "vfpu" else name,
        "rows": rows,
        **_traffic(deployed, "NVFlare"),
        **_traffic(simulated, "memory"),
        "seconds, NVFlare": seconds,
        "seconds, memory": alone,
        "× memory": seconds / alone,
    }


def _traffic(steps: Sequence[StepRecord], where: str) -> dict[str, Any]:
    flows = [flow for step in steps for flow in step.flows]
    return {
        f"messages, {where}": sum(flow.messages for flow in flows),
        f"MB, {where}": sum(flow.bytes for flow in flows) / 1e6,
    }
