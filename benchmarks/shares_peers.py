"""What others need for the same kind of work: as published, and SPU on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from benchmarks.peers import peer_python, run_peer
from benchmarks.shares_work import Split, auc, loss
from benchmarks.wan import WAN

_PACKAGES = ("spu", "spu==0.9.5")

_SECRETFLOW = (
    "SecretFlow, docs/developer/benchmark/overall_benchmark.md of "
    "github.com/secretflow/secretflow, 21 February 2024"
)
_SECRETFLOW_ON = "a machine of 32 virtual cores and 256 GB per party, 100 Mbit/s, 50 ms"
_FATE = "FATE 2.0.0, doc/2.0/fate/performance.md of github.com/FederatedAI/FATE"
_FATE_ON = "two hosts of 32 cores, 16 of them used, and 128 GB, 1 Gbit/s LAN"

# Copied from the pages named beside them, minutes as seconds. Neither says how many bytes it sent.
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
            "logistic by SS-SGD, semi2k (trusted first party)",
            "800,000 × (1,500 + 1,500)",
            "693.57",
            "training, train AUC within 0.02 of plain text",
            _SECRETFLOW_ON,
            _SECRETFLOW,
        ),
        (
            "logistic by SS-SGD, cheetah",
            "800,000 × (1,500 + 1,500)",
            "1244.53",
            "training, train AUC within 0.02 of plain text",
            _SECRETFLOW_ON,
            _SECRETFLOW,
        ),
        (
            "logistic by SS-SGD, ABY3",
            "800,000 × (1,000 + 1,000 + 1,000)",
            "1155.78",
            "training, train AUC within 0.02 of plain text",
            _SECRETFLOW_ON,
            _SECRETFLOW,
        ),
        (
            "logistic by SS-SGD, semi2k (trusted first party)",
            "800,000 × (1,500 + 1,500)",
            "261.31",
            "predictions of the training rows",
            _SECRETFLOW_ON,
            _SECRETFLOW,
        ),
        (
            "hetero SSHE logistic",
            "100,000 × (30 + 300)",
            "294",
            "an epoch",
            _FATE_ON,
            _FATE,
        ),
        (
            "hetero coordinated logistic",
            "100,000 × (30 + 300)",
            "136",
            "an epoch",
            _FATE_ON,
            _FATE,
        ),
    )
)

# Mini-batch descent as SecretFlow's SS-SGD does it by default: batches of 1,024 rows, rate 0.1, the
# sigmoid as a straight line between 0 and 1. One epoch is compiled once and called for each; the
# weights stay shared in between. Both parties are threads of this process, and SPU's own profile of
# the first one counts what it sends, as much as the other.
_SPU = """
import os, re, sys, tempfile, time
import jax.numpy as jnp
import numpy as np
from spu import libspu
from spu.utils import frontend, simulation

data = np.load(inputs["path"])
held, own, label = (data[name].astype(np.float32) for name in ("held", "own", "label"))
batch, count = inputs["batch"], len(label) // inputs["batch"]

def epoch(held, own, label, weights):
    columns = jnp.concatenate([held, own, jnp.ones((held.shape[0], 1))], axis=1)
    for place in range(count):
        rows = columns[place * batch : (place + 1) * batch]
        known = label[place * batch : (place + 1) * batch].reshape(-1, 1)
        errors = jnp.clip(0.5 + 0.25 * (rows @ weights), 0, 1) - known
        weights = weights - 0.1 * (rows.T @ errors) / batch
    return weights

config = libspu.RuntimeConfig(
    protocol=libspu.ProtocolKind.SEMI2K, field=libspu.FieldType.FM64
)
config.enable_pphlo_profile = True
both = simulation.Simulator(2, config)
weights = np.zeros((held.shape[1] + own.shape[1] + 1, 1), dtype=np.float32)
names = ["held", "own", "label", "weights"]
secret = [libspu.Visibility.VIS_SECRET] * 4
compiled, _ = frontend.compile(
    frontend.Kind.JAX, epoch, (held, own, label, weights), {}, names, secret,
    lambda out: ["weights"],
)
kept = os.dup(1), os.dup(2)
log = tempfile.TemporaryFile()
for number in (1, 2):
    os.dup2(log.fileno(), number)
spent, walls, after = 0.0, 0.0, []
for _ in range(max(inputs["epochs"])):
    core, wall = time.process_time(), time.perf_counter()
    weights = both(compiled, held, own, label, weights)[0]
    spent, walls = spent + time.process_time() - core, walls + time.perf_counter() - wall
    after.append((spent, walls, weights.ravel().tolist()))
sys.stdout.flush()
for number, old in zip((1, 2), kept):
    os.dup2(old, number)
log.seek(0)
shape = r"Link details: total send bytes (\\d+).*?send actions (\\d+)"
found = re.findall(shape, log.read().decode())
sent, actions = (np.cumsum([int(line[place]) for line in found]).tolist() for place in (0, 1))
answer = [
    {"epochs": number, "core": after[number - 1][0], "wall": after[number - 1][1],
     "sent": sent[number - 1], "actions": actions[number - 1], "weights": after[number - 1][2]}
    for number in inputs["epochs"]
]
print(json.dumps({"after": answer}))
"""


def spu_rows(data: Split, epochs: tuple[int, ...]) -> list[dict[str, Any]]:
    """Logistic regression by SPU on the training rows, judged on the test rows.

    Raises
    ------
    PeerMissing
        SPU does not install or run here.
    """
    python = peer_python(*_PACKAGES)
    held, own = data.encoded()["train"].values()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "columns.npz"
        np.savez(path, held=held, own=own, label=data.target("train"))
        batch = min(1024, len(held))
        answer = run_peer(python, _SPU, path=str(path), batch=batch, epochs=list(epochs))
    return [_row(data, line, len(held)) for line in answer["after"]]


def _row(data: Split, line: dict[str, Any], rows: int) -> dict[str, Any]:
    weights = np.asarray(line["weights"])
    scores = data.matrix("test") @ weights[:-1] + weights[-1]
    truth = data.target("test")
    return {
        "what": "peer on this machine",
        "work": f"logistic by SPU semi2k, epochs: {line['epochs']}",
        "rows": rows,
        "MB": 2 * line["sent"] / 1e6,
        "core-s": line["core"],
        "wall s": line["wall"],
        "rounds": line["actions"],
        "WAN s": line["actions"] * WAN.seconds + 8 * line["sent"] / WAN.bits,
        "test AUC": auc(truth, scores),
        "test log-loss": loss(truth, expit(scores)),
    }
