"""One way to run a step: what every party gets over the relay is what it gets in memory.

Each job runs between parties with folders, seals and consent of their own, and again in a
federation of this process with the seeds and row plans that they kept. All result files must be the
same, byte for byte.
"""

import shutil
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest

from vfsl import rows
from vfsl.completion import available
from vfsl.deploy.job import load_shared_job
from vfsl.federation import simulate
from vfsl.job.play import play, write_aligned
from vfsl.job.steps import STEPS, AlignStep, models
from vfsl.site import TestRows

ALLOW = """
[allow]
submitters = ["C"]
steps = ["align", "count", "train", "pu", "complete", "evaluate"]
disclosures = ["training scores", "repeated predictions", "tree partitions", "associations",
  "row differences", "row confidence", "training labels", "evidence",
  "noisy evidence", "strangers", "row lists",
  "cross-gram", "gradients", "rare labels", "embeddings"]
outputs = ["predictions", "reliable positives", "completed columns"]
[limits]
asked = 1000
numbers = 5000.0
minimum = 20
seconds = 100.0
"""
ALIGN = """
parties = ["A", "B", "C"]
[run]
seed = 5
seconds = 100
[test]
share = 0.3
[[steps]]
do = "align"
parties = ["B", "C"]
protocol = "ecdh"
"""


def train(model, more=""):
    return f'[[steps]]\ndo = "train"\nmodel = "{model}"\nlabel = ["C", "y"]\n{more}\n'


PU = """
[[steps]]
do = "pu"
positives = "A"
label_holder = "C"
protocol = "ecdh"
rounds = 2
folds = 2
"""
COMPLETE = '[[steps]]\ndo = "complete"\ngiven = "C"\nmissing = "B"\nfolds = 2\n'
EVALUATE = '[[steps]]\ndo = "evaluate"\nbootstrap = 100\n'
FEW = "n_estimators = 2\nmax_depth = 2"
RISA = "epochs = 2\nself_steps = 5\nhidden = [4]"
OPEN = f'{RISA}\naccept = ["label-disclosure"]\nprotect = "none"'
JOBS = {
    "align": "",
    "count": '[[steps]]\ndo = "count"\nparties = ["B", "C"]\n',
    "logistic": train("logistic"),
    "logistic in rounds": train("logistic", 'protocol = "rounds"\nrefine = 1'),
    "shared weights": train("logistic", 'weights = "shared"'),
    "linear": train("linear").replace('"y"', '"amount"'),
    "rf": train("rf", FEW),
    "gbdt": train("gbdt", FEW),
    "xgb": train("xgb", FEW),
    "scorecard": train("scorecard"),
    "lgb": train("lgb", FEW),
    "risa": train("risa", OPEN),
    "risa with noise": train("risa", RISA + '\nprotect = "both"'),
    "pu": PU + 'consent = ["B", "C"]\n',
    "pu over trees": PU + 'base = "xgb"\n',
    "complete": COMPLETE + 'rounds = 2\nlabel = "y"\nadvice_trees = 1\n',
    "complete by association": COMPLETE + "tau = 0.05\n",
    "complete by an ensemble with VF-GAIN": COMPLETE
    + 'preset = "paper"\ntau = 0.99\nlow_fill = "draw"\n'
    + 'low = { ensemble = ["mean", { method = "vfgain", epochs = 2 }], how = "stacking" }\n',
    "complete by a generator": COMPLETE + 'tau = 0.99\nlow = { method = "vae", epochs = 5 }\n',
    "completed rows": COMPLETE + train("xgb", 'rows = "completed"\n' + FEW),
    "evaluate": train("logistic", "refine = 0")
    + train("xgb", FEW)
    + train("risa", RISA)
    + EVALUATE,
}


EXPECTED = {
    "risa": ("predictions-2.csv", "parties/B/model-2-share.json"),
    "pu": ("pu-scores-2.csv", "reliable-positives-2.csv"),
    "complete": ("completed-2.csv", "provenance-2.csv", "remaining-2.csv", "advice-2.json"),
    "completed rows": ("completed-2.csv", "predictions-3.csv"),
    "evaluate": ("metrics-5.json",),
}


def allow_all(world, kit, label):
    """Every party allows what any job asks for, and C releases the label of this one."""
    for party in "ABCK":
        text = kit.party_text(party, ALLOW).replace('label = "y"', f'label = "{label}"')
        text = text.replace(
            "disclosures = [", 'disclosures = ["own weights", "label rates", "correlations", '
        )
        if label != "y":
            text = text.replace('"MARKER-c2"]', '"MARKER-c2", "amount"]')
        world.write_party(party, text)
    table = world.tables["C"]
    table.assign(amount=table["MARKER-c1"] * 3.0).to_csv(world.site("C") / "table.csv", index=False)


def play_within(scope, step, site, channel):
    """As a deployment does, so that the dealer's words are the same."""
    return play(step, site, channel.within(scope))


def play_in_memory(job, world, kit, scratch, label):
    """The same steps by the same seeds and row plans, all parties in this process."""
    columns = {"A": ["id", "since"], "B": ["id", "MARKER-b1", "MARKER-b2"]}
    columns["C"] = ["id", "MARKER-c1", "MARKER-c2", label]
    frames = {party: frame[columns[party]] for party, frame in world.read().items()}
    fed = simulate(
        frames,
        labels={"A": None, "B": None, "C": label},
        seed=job.run.seed,
        private=kit.private_seeds(world.results),
    )
    for number, step in enumerate(job.steps, start=1):
        for party, site in fed.sites.items():
            site.number, site.folder = number, scratch / "kept" / party / f"step-{number}"
            site.results = site.pages = scratch / party
            site.test = TestRows(job.test.share)
            # As in a deployment: completed rows have numbers, their ids stay at the given party.
            state = scratch / "kept" / party / "alignment"
            site.alignment = replace(site.alignment, lasting=True, state=state)
        if isinstance(step, AlignStep):
            for party in step.parties:
                shutil.copytree(world.results(party) / "plan", scratch / "plans" / party)
            fed.load_plan(scratch / "plans", *step.parties)
            fed.play(partial(rows.hold_out, test=TestRows(job.test.share)))
            for party in step.parties:
                write_aligned(fed.sites[party], scratch / party)
        else:
            fed.play(partial(play_within, f"step {number}", step))


def files_in(folder):
    """Results by name, without the record, which has clocks and each party's own messages."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "record.json" and path.parent.name != "plan"
    }


@pytest.mark.parametrize("name", JOBS)
def test_every_party_gets_over_the_relay_what_it_gets_in_memory(world, kit, name):
    if any(word in JOBS[name] for word in ("risa", "vae", "vfgain")):
        pytest.importorskip("torch")
    label = "amount" if name == "linear" else "y"
    made = compare_with_memory(world, kit, ALIGN + JOBS[name], label)
    assert set(EXPECTED.get(name, ())) <= made
    assert "aligned.csv" in made


def test_alignment_and_marks_with_the_key_holders_help(world, kit):
    job = (ALIGN + PU).replace('"ecdh"', '"aided"')
    assert {"aligned.csv", "pu-scores-2.csv"} <= compare_with_memory(world, kit, job, "y")
    tables = world.read()
    people = [pd.read_csv(world.results(party) / "aligned.csv")["id"].tolist() for party in "BC"]
    assert people[0] == people[1]
    assert set(people[0]) == set(tables["B"]["id"]) & set(tables["C"]["id"])


def compare_with_memory(world, kit, text, label):
    """Run a job over the relay and in memory; the names of the data holders' result files."""
    allow_all(world, kit, label)
    _, errors = world.attempt(job=text)
    assert errors == {}
    job = load_shared_job(world.folder / "job.toml")
    scratch = world.folder / "in memory"
    play_in_memory(job, world, kit, scratch, label)
    for party in "ABCK":
        assert files_in(world.results(party)) == files_in(scratch / party), party
    return {path for party in "BC" for path in files_in(world.results(party))}


def test_the_jobs_above_have_every_step_and_every_model():
    jobs = "".join([ALIGN, *JOBS.values()])
    assert {do for do in STEPS if f'do = "{do}"' in jobs} == set(STEPS)
    assert {model for model in models() if f'model = "{model}"' in jobs} == set(models())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", available())
def test_every_completion_method_runs_between_companies(world, kit, method):
    """Most are local at the missing party; what counts is that each can be asked for there."""
    pytest.importorskip("torch")
    allow_all(world, kit, "y")
    _, errors = world.attempt(job=ALIGN + COMPLETE + f'tau = 0.99\nlow = "{method}"\n')
    assert errors == {}
    scratch = world.folder / "in memory"
    play_in_memory(load_shared_job(world.folder / "job.toml"), world, kit, scratch, "y")
    assert files_in(world.results("B")) == files_in(scratch / "B")
