"""Pooled baselines of PU learning: what one could do if all columns were in one place.

Every method takes training columns, who is known (P; the others are U) and test columns, and
returns scores of the training and the test rows. None sees a true label but the oracle.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from benchmarks.peers import peer_python, run_peer
from vfsl.pu.bags import Booleans
from vfsl.store import read_arrays, write_arrays
from vfsl.values import Floats

Scores = tuple[Floats, Floats]
Model = Callable[[], Any]
_FOLDS = 5
PULEARN = ("pulearn", "pulearn", "numpy", "scikit-learn")  # the peer and what it installs


def pooled_model(kind: str) -> Any:
    """A scikit-learn classifier: "logistic", or "boosted" trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    if kind == "logistic":
        return LogisticRegression(max_iter=1000)
    return HistGradientBoostingClassifier(max_iter=100, max_leaf_nodes=31, random_state=0)


def fit_pooled(kind: str, columns: Floats, label: Booleans, weights: Floats) -> Any:
    """A fitted classifier, on one core, since waiting threads would count as work."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        return pooled_model(kind).fit(columns, label, sample_weight=weights)


def naive(kind: str, train: Floats, known: Booleans, test: Floats) -> Scores:
    """U taken for negative; training rows are scored out of fold."""
    ones = np.ones(len(known))
    return _out_of_fold(kind, train, known, ones), _fit_score(kind, train, known, ones, test)


def elkan_noto_weighted(kind: str, train: Floats, known: Booleans, test: Floats) -> Scores:
    """Elkan and Noto's second method: each unlabelled row counts as both, by its probability."""
    s = np.clip(_out_of_fold(kind, train, known, np.ones(len(known))), 1e-6, 1 - 1e-6)
    c = float(s[known].mean())
    p = np.clip((1 - c) / c * s / (1 - s), 0, 1)
    rows = np.concatenate([np.arange(len(known)), np.flatnonzero(~known)])
    label = np.concatenate([np.ones(len(known), bool), np.zeros(int((~known).sum()), bool)])
    weights = np.concatenate([np.where(known, 1.0, p), 1 - p[~known]])
    model = fit_pooled(kind, train[rows], label, weights)
    return model.predict_proba(train)[:, 1], model.predict_proba(test)[:, 1]


def bagging(
    kind: str, train: Floats, known: Booleans, test: Floats, bags: int, rng: np.random.Generator
) -> Scores:
    """PU bagging by Mordelet and Vert, written independently of VFPU."""
    rest, sums, counts = np.flatnonzero(~known), np.zeros(len(known)), np.zeros(len(known))
    answers = np.zeros(len(test))
    for _ in range(bags):
        drawn = rng.choice(rest, int(known.sum()), replace=True)
        rows = np.concatenate([np.flatnonzero(known), drawn])
        model = fit_pooled(kind, train[rows], known[rows], np.ones(len(rows)))
        free = np.setdiff1d(rest, drawn)
        sums[free] += model.predict_proba(train[free])[:, 1]
        counts[free] += 1
        answers += model.predict_proba(test)[:, 1] / bags
    return sums / np.maximum(counts, 1), answers


def oracle(kind: str, train: Floats, truth: Booleans, test: Floats) -> Scores:
    """All labels known: out of fold on the training rows."""
    ones = np.ones(len(truth))
    return _out_of_fold(kind, train, truth, ones), _fit_score(kind, train, truth, ones, test)


def nnpu(
    train: Floats,
    known: Booleans,
    test: Floats,
    prior: float,
    rng: np.random.Generator,
    epochs: int = 50,
) -> Scores:
    """Non-negative PU learning (Kiryo et al., 2017): one hidden layer, sigmoid loss, Adam.

    R = π E_P l(g, +) + max(0, r), r = E_U l(g, −) − π E_P l(g, −); where r < 0 the step is on −r.
    """
    network = Network(train.shape[1], 32, rng)
    positive, rest = np.flatnonzero(known), np.flatnonzero(~known)
    size = 256
    for _ in range(epochs):
        order = rng.permutation(rest)
        for start in range(0, len(order), size):
            u = order[start : start + size]
            p = rng.choice(positive, min(size, len(positive)), replace=False)
            g = network.forward(train[np.concatenate([p, u])])
            network.step(nnpu_gradient(g, len(p), prior))
    return network.forward(train), network.forward(test)


def nnpu_gradient(g: Floats, positives: int, prior: float) -> Floats:
    """By each row's output, the first ones positive: of R, or of −r where r is negative."""
    loss = expit(g)  # l(g, −) = σ(g), l(g, +) = σ(−g)
    slope = loss * expit(-g)
    p, u = loss[:positives], loss[positives:]
    risk = u.mean() - prior * p.mean()
    by_p, by_u = slope[:positives] / len(p), slope[positives:] / len(u)
    if risk < 0:
        return np.concatenate([prior * by_p, -by_u])
    return np.concatenate([-2 * prior * by_p, by_u])


class Network:
    """One hidden layer of rectifiers, trained by Adam."""

    def __init__(self, inputs: int, hidden: int, rng: np.random.Generator) -> None:
        self.weights = [
            rng.normal(0, np.sqrt(2 / inputs), (inputs, hidden)),
            np.zeros(hidden),
            rng.normal(0, np.sqrt(1 / hidden), hidden),
            np.zeros(1),
        ]
        self._first = [np.zeros_like(w) for w in self.weights]
        self._second = [np.zeros_like(w) for w in self.weights]
        self._steps = 0

    def forward(self, columns: Floats) -> Floats:
        a, b, c, d = self.weights
        self._columns, self._hidden = columns, np.maximum(columns @ a + b, 0)
        return np.asarray(self._hidden @ c + d[0])

    def gradients(self, outputs: Floats) -> list[Floats]:
        """Of all weights, from the gradient by the last outputs."""
        back = np.outer(outputs, self.weights[2]) * (self._hidden > 0)
        return [
            self._columns.T @ back,
            back.sum(axis=0),
            self._hidden.T @ outputs,
            np.array([outputs.sum()]),
        ]

    def step(self, outputs: Floats, rate: float = 1e-3, decay: float = 1e-4) -> None:
        self._steps += 1
        for place, gradient in enumerate(self.gradients(outputs)):
            total = gradient + decay * self.weights[place]
            first = self._first[place] = 0.9 * self._first[place] + 0.1 * total
            second = self._second[place] = 0.999 * self._second[place] + 0.001 * total**2
            unbiased = first / (1 - 0.9**self._steps)
            scale = np.sqrt(second / (1 - 0.999**self._steps)) + 1e-8
            self.weights[place] = self.weights[place] - rate * unbiased / scale


def pulearn_bagging(train: Floats, known: Booleans, test: Floats, bags: int) -> Scores:
    """PU bagging of pulearn over logistic regression, in an environment of its own.

    Raises PeerMissing where it cannot be installed.
    """
    python = peer_python(*PULEARN)
    with tempfile.TemporaryDirectory() as folder:
        path, answer = Path(folder) / "in.npz", Path(folder) / "out.npz"
        write_arrays(path, {"train": train, "known": known.astype(np.int64), "test": test})
        run_peer(python, _PULEARN, path=str(path), out=str(answer), bags=bags)
        arrays = read_arrays(answer)
    return arrays["train"], arrays["test"]


_PULEARN = """
import warnings
warnings.filterwarnings("ignore")
import numpy as np
from pulearn import BaggingPuClassifier
from sklearn.linear_model import LogisticRegression
data = np.load(inputs["path"])
X, y = data["train"], np.where(data["known"] == 1, 1, 0)
model = BaggingPuClassifier(
    LogisticRegression(max_iter=1000), n_estimators=inputs["bags"], max_samples=int(y.sum()),
    random_state=0,
)
model.fit(X, y)
train = np.asarray(model.oob_decision_function_)[:, 1]
test = model.predict_proba(data["test"])[:, 1]
np.savez(inputs["out"], train=np.nan_to_num(train), test=test)
print(json.dumps({"rows": len(X)}))
"""


def _fit_score(kind: str, train: Floats, label: Booleans, weights: Floats, test: Floats) -> Floats:
    model = fit_pooled(kind, train, label, weights)
    return np.asarray(model.predict_proba(test)[:, 1])


def _out_of_fold(kind: str, train: Floats, label: Booleans, weights: Floats) -> Floats:
    from sklearn.model_selection import StratifiedKFold

    scores = np.zeros(len(label))
    for fit, held in StratifiedKFold(_FOLDS, shuffle=True, random_state=0).split(train, label):
        scores[held] = _fit_score(kind, train[fit], label[fit], weights[fit], train[held])
    return scores
