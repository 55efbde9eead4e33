"""Trees of others: as published, and the peers that install on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.linear import parties, split
from benchmarks.peers import PeerMissing, peer_python, run_peer
from benchmarks.trees_work import BINS, DEPTH, Label, Tables, target_of
from vfsl.data import PartyTable
from vfsl.estimators import XGB

_SECRETFLOW = (
    "SecretFlow, docs/developer/benchmark/overall_benchmark.md of "
    "github.com/secretflow/secretflow, 21 February 2024"
)
_SECRETFLOW_ON = "a machine of 32 virtual cores and 256 GB per party, 100 Mbit/s, 50 ms"
_FATE = "FATE 2.0, doc/2.0/fate/performance/performance_multi_engines.md of FederatedAI/FATE"
_FATE_ON = "two hosts of 16 cores and 32 GB, 1 Gbit/s LAN"
_FEDTREE = "FedTree, docs/source/Experiments.rst of github.com/Xtra-Computing/FedTree"
_FEDTREE_ON = "one machine, 16 threads; depth 6, 255 bins, two parties"

# Copied from the pages named beside them, minutes as seconds. None says how many bytes it sent.
PUBLISHED: tuple[dict[str, Any], ...] = tuple(
    {
        "what": "published by others",
        "work": method,
        "rows × columns": size,
        "seconds": seconds,
        "of": of,
        "on": where,
        "source": source,
    }
    for method, size, seconds, of, where, source in (
        (
            "SGB, OU",
            "800,000 × (1,500 + 1,500)",
            "4176.54",
            "training, train AUC within 0.02 of plain text",
            _SECRETFLOW_ON,
            _SECRETFLOW,
        ),
        (
            "SGB, OU",
            "800,000 × (1,500 + 1,500)",
            "54.5",
            "predictions of the training rows",
            _SECRETFLOW_ON,
            _SECRETFLOW,
        ),
        (
            "hetero SecureBoost, Paillier, EggRoll",
            "100,000 × (30 + 300)",
            "131",
            "an epoch",
            _FATE_ON,
            _FATE,
        ),
        (
            "hetero SecureBoost, no encryption, EggRoll",
            "100,000 × (30 + 300)",
            "96",
            "an epoch",
            _FATE_ON,
            _FATE,
        ),
        ("FedTree, HE", "adult (a9a)", "5.25", "a tree", _FEDTREE_ON, _FEDTREE),
        ("FATE hetero SecureBoost", "adult (a9a)", "34.02", "a tree", _FEDTREE_ON, _FEDTREE),
    )
)

# Both workers and the server are processes of their own, which start before anything is imported;
# the label is at the first worker. Scores of new rows need both as well.
_XGBOOST = """
import multiprocessing, socket, time
import numpy as np

data = dict(np.load(inputs["path"]))
shared = {"dmlc_communicator": "federated", "federated_world_size": 2}

def serve(port, queue):
    from xgboost.federated import run_federated_server
    run_federated_server(n_workers=2, port=port)

def work(rank, port, queue):
    import xgboost
    from xgboost.collective import CommunicatorContext
    columns = xgboost.core.DataSplitMode.COL
    where = {"federated_server_address": f"localhost:{port}", "federated_rank": rank}
    own = ("held", "own")[rank]
    with CommunicatorContext(**shared, **where):
        label = data["label"] if rank == 0 else None
        wall, core = time.perf_counter(), time.process_time()
        rows = xgboost.DMatrix(data[own], label=label, data_split_mode=columns)
        model = xgboost.train(inputs["settings"], rows, num_boost_round=inputs["trees"])
        wall, core = time.perf_counter() - wall, time.process_time() - core
        new = xgboost.DMatrix(data["new " + own], data_split_mode=columns)
        queue.put((rank, wall, core, model.predict(new).tolist(), xgboost.__version__))

with socket.socket() as free:
    free.bind(("localhost", 0))
    port = free.getsockname()[1]
context = multiprocessing.get_context("fork")
queue = context.Queue()
server = context.Process(target=serve, args=(port, queue), daemon=True)
server.start()
time.sleep(2)
workers = [context.Process(target=work, args=(rank, port, queue), daemon=True) for rank in (0, 1)]
for worker in workers:
    worker.start()
answers = sorted(queue.get(timeout=inputs["seconds"]) for _ in workers)
server.terminate()
print(json.dumps({
    "wall": max(one[1] for one in answers), "core": sum(one[2] for one in answers),
    "scores": answers[0][3], "version": answers[0][4],
}))
"""

# All parties in one process, which SecretFlow calls debug mode. What a tree costs is the difference
# of two trainings, so that keys and compilation do not count.
_SGB = """
import logging, time
import numpy as np
import secretflow as sf
import spu
from secretflow.data import FedNdarray, PartitionWay
from secretflow.device.driver import reveal
from secretflow.ml.boost.sgb_v import Sgb

logging.disable(logging.INFO)
data = dict(np.load(inputs["path"]))
sf.init(["guest", "host"], debug_mode=True)
guest, host = sf.PYU("guest"), sf.PYU("host")
keys = {"schema": "ou", "key_pair": {"generate": {"bit_size": 2048}}}
parts = {"sk_keeper": {"party": "guest"}, "evaluators": [{"party": "host"}]}
heu = sf.HEU({**parts, "mode": "PHEU", "he_parameters": keys}, spu.spu_pb2.FM128)
same = lambda values: values
place = lambda **of: FedNdarray(
    {sf.PYU(party): sf.PYU(party)(same)(values) for party, values in of.items()},
    partition_way=PartitionWay.VERTICAL,
)
rows = place(guest=data["held"], host=data["own"])
new = place(guest=data["new held"], host=data["new own"])
label = place(guest=data["label"].astype(float))
found = []
for trees in (1, inputs["trees"]):
    wall, core = time.perf_counter(), time.process_time()
    model = Sgb(heu).train({**inputs["settings"], "num_boost_round": trees}, rows, label)
    found.append((trees, time.perf_counter() - wall, time.process_time() - core))
scores = np.asarray(reveal(model.predict(new))).ravel().tolist()
print(json.dumps({"found": found, "scores": scores, "version": sf.__version__}))
"""

_SGB_TREES = 3
_SECONDS = 600


def peer_rows(
    rows: int, trees: int, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of the peers that install, and a note for each that does not."""
    tables, label, _ = parties(rows)
    parts = split(tables, label[0])
    found: list[dict[str, Any]] = []
    notes = list(_NOT_HERE)
    for name, measure in (("xgboost", measure_xgboost), ("SecretFlow", measure_sgb)):
        say(f"{name}, split columns")
        try:
            found.append(measure(parts, label, trees))
        except PeerMissing as error:
            notes.append(f"{name} with split columns is left out: {error}")
    return found, notes


def measure_xgboost(parts: Mapping[str, Tables], label: Label, trees: int) -> dict[str, Any]:
    """xgboost's own training on split columns, which encrypts nothing."""
    python = peer_python("xgboost-3.2", "xgboost==3.2.0")
    settings = {
        "objective": "binary:logistic",
        "tree_method": "hist",
        "max_depth": DEPTH,
        "max_bin": BINS,
        "eta": XGB().learning_rate,
        "nthread": 1,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = save_columns(Path(folder), parts, label)
        answer = run_peer(
            python, _XGBOOST, path=path, settings=settings, trees=trees, seconds=_SECONDS
        )
    return {
        "what": "peers on this machine, split columns",
        "work": f"xgboost {answer['version']}, federated, nothing encrypted",
        "rows": len(parts["train"][label[0]]),
        "trees": trees,
        "core-s": answer["core"],
        "core-s per tree": answer["core"] / trees,
        "wall s": answer["wall"],
        "test AUC": _auc(parts, label, answer["scores"]),
    }


def measure_sgb(parts: Mapping[str, Tables], label: Label, trees: int) -> dict[str, Any]:
    """SecretFlow's SGB, a few trees; the label holder sees the sums of all bins."""
    python = peer_python("secretflow", "secretflow-lite==1.5.0.dev20240321")
    settings = {
        "objective": "logistic",
        "max_depth": DEPTH,
        "sketch_eps": 1 / BINS,
        "learning_rate": XGB().learning_rate,
        "reg_lambda": XGB().l2,
        "gamma": 0.0,
        "enable_goss": False,
        "enable_early_stop": False,
        "first_tree_with_label_holder_feature": False,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = save_columns(Path(folder), parts, label)
        answer = run_peer(python, _SGB, path=path, settings=settings, trees=_SGB_TREES)
    (few, _, core), (many, more_wall, more_core) = answer["found"]
    return {
        "what": "peers on this machine, split columns",
        "work": f"SecretFlow {answer['version']}, SGB, OU 2048",
        "rows": len(parts["train"][label[0]]),
        "trees": many,
        "core-s": more_core,
        "core-s per tree": (more_core - core) / (many - few),
        "wall s": more_wall,
        "test AUC": _auc(parts, label, answer["scores"]),
    }


def save_columns(folder: Path, parts: Mapping[str, Tables], label: Label) -> str:
    """Numbers of both parties in a file, those of new rows too."""
    content = {}
    for prefix, part in (("", "train"), ("new ", "test")):
        for name, table in zip(("held", "own"), _first(parts[part], label), strict=True):
            frame = table.frame[list(table.features)].apply(_as_number)
            content[f"{prefix}{name}"] = frame.to_numpy(dtype=np.float64)
    content["label"] = target_of(parts["train"], label)
    path = folder / "columns.npz"
    np.savez(path, **content)
    return str(path)


def _first(tables: Tables, label: Label) -> list[PartyTable]:
    """The label holder's table and another party's."""
    return [tables[party] for party in sorted(tables, key=lambda party: party != label[0])][:2]


def _as_number(column: pd.Series[Any]) -> Any:
    return column if pd.api.types.is_numeric_dtype(column.dtype) else pd.factorize(column)[0]


def _auc(parts: Mapping[str, Tables], label: Label, scores: list[float]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(target_of(parts["test"], label), np.asarray(scores)))


_NOT_HERE = (
    "NVIDIA FLARE 2.9.0 installs; its vertical XGBoost is a job around xgboost's own federated "
    "training, which is measured here, and its encryption plugins are not in its PyPI build.",
    "SPU 0.9.5 installs, but its PyPI build has no trees: SS-XGB is part of SecretFlow. FedTree "
    "1.0.5 installs, but does not start without the system library libntl.",
)
