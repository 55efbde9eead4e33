"""One way to run a step: what every party gets over the relay is what it gets in memory.

Each job runs between parties with folders, seals and consent of their own, and again in a
federation of this process with the seeds and row plans that they kept. All result files must be the
same, byte for byte.
"""

from functools import partial

from vfsl import rows
from vfsl.federation import simulate
from vfsl.job.play import play
from vfsl.job.steps import AlignStep
from vfsl.site import TestRows

ALLOW = """
[allow]
submitters = ["C"]
steps = ["align", "train", "pu", "complete", "evaluate"]
disclosures = ["training scores", "repeated predictions", "tree partitions", "associations",
  "row differences", "row confidence", "training labels", "evidence", "strangers", "row lists",
  "cross-gram", "rare labels"]
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


COMPLETE = '[[steps]]\ndo = "complete"\ngiven = "C"\nmissing = "B"\nfolds = 2\n'
EVALUATE = '[[steps]]\ndo = "evaluate"\nbootstrap = 100\n'
FEW = "n_estimators = 2\nmax_depth = 2"
RISA = 'accept = ["label-disclosure"]\nepochs = 2\nself_steps = 5\nhidden = [4]'
JOBS = {
    "align": "",
    "logistic": train("logistic", "refine = 1"),
    "linear": train("linear").replace('"y"', '"amount"'),
    "rf": train("rf", FEW),
    "gbdt": train("gbdt", FEW),
    "xgb": train("xgb", FEW),
    "lgb": train("lgb", FEW),
    "risa": train("risa", RISA),
    "pu": '[[steps]]\ndo = "pu"\npositives = "A"\nlabel_holder = "C"\nprotocol = "ecdh"\nrounds = 2\n'
    'folds = 2\nconsent = ["B", "C"]\n',
    "pu over trees": '[[steps]]\ndo = "pu"\npositives = "A"\nlabel_holder = "C"\nbase = "xgb"\n'
    'protocol = "ecdh"\nrounds = 2\nfolds = 2\n',
    "complete": COMPLETE + 'rounds = 2\nlabel = "y"\nadvice_trees = 1\n',
    "complete by association": COMPLETE + "tau = 0.05\n",
    "completed rows": COMPLETE + train("xgb", 'rows = "completed"\n' + FEW),
    "evaluate": train("logistic", "refine = 0")
    + train("xgb", FEW)
    + train("risa", RISA)
    + EVALUATE,
}


def give_amounts(world, kit):
    """C's people also have an amount, for models of numbers; its party file releases one label."""
    table = world.tables["C"].assign(amount=range(len(world.tables["C"])))
    table.to_csv(world.site("C") / "table.csv", index=False)


def allow_all(world, kit, label="y"):
    for party in "ABCK":
        text = kit.party_text(party, ALLOW).replace('label = "y"', f'label = "{label}"')
        world.write_party(party, text)


def play_in_memory(job, tables, world, scratch, seeds):
    """The same steps by the same seeds and row plans, all parties in this process."""
    frames = {party: frame.drop(columns="unused") for party, frame in tables.items()}
    fed = simulate(
        frames,
        labels={party: name for party in frames for name in job.labels_in_steps(party)}
        | {"B": None},
        seed=job.run.seed,
        private=seeds,
    )
    for number, step in enumerate(job.steps, start=1):
        for party, site in fed.sites.items():
            site.number, site.folder = number, scratch / "kept" / party / f"step-{number}"
            site.results = site.pages = scratch / party
        if isinstance(step, AlignStep):
            fed.load_plan_of(world.results, step.parties)
            fed.play(partial(rows.hold_out, test=TestRows(job.test.share)))
        else:
            fed.play(partial(play, step))


def files_in(folder):
    """Results by name, without the record, which has clocks and each party's own messages."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "record.json" and path.parent.name != "plan"
    }
