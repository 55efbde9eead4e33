"""How far each party's opinion is trusted, judged on labelled rows that training did not see.

The judge is the log score of normalised plausibilities, q_k ∝ Π (b_k + u). The probability of the
fused opinion is no judge: two parties in conflict make it flat, however right one of them is, so by
it the second party would nearly always be better left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import log_softmax, softmax

from vfsl.evidence.opinion import Opinion, discount
from vfsl.evidence.rows import Numbers
from vfsl.values import Array

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
# A few rows must not decide: moving by d from where a party begins costs 16 d² units of log score.
# The label holder begins with full trust whatever it knows, so 4 d² for it.
_CAUTION, _CAUTION_FIRST = 16.0, 4.0
# The label holder, who has labels for all of its rows, begins with full trust. Another party begins
# with a quarter and twice the share of what there is to know of the label that it knows alone,
# which counts half where only ten rows say so. On validation rows full trust in a party that
# learned from few rows cost 5 to 7 points of AUC on Criteo, where it knows nothing alone; a quarter
# cost 1 on census and 2.5 on MNIST, where it knows a third and two thirds.
_FIRST, _OTHERS, _PER_SHARE, _HALVING_ROWS = 1.0, 0.25, 2.0, 10
_TEMPERATURES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)


def choose_trust(opinions: Sequence[Opinion], labels: Numbers) -> list[float]:
    """The trust in each party by which their opinions say most of the labels; the holder first.

    One party is always trusted fully. Up to three parties all combinations of levels are tried; for
    more, parties are gone through one at a time, starting from each of them.
    """
    count = len(opinions)
    begin = first_trust(opinions, labels)

    def cost(levels: list[float]) -> float:
        moved = [(level - start) ** 2 for level, start in zip(levels, begin, strict=True)]
        caution = _CAUTION_FIRST * moved[0] + _CAUTION * sum(moved[1:])
        return _log_loss(np.log(plausible(opinions, levels)), labels) + caution

    if count <= 3:
        grid = [list(levels) for levels in itertools.product(LEVELS, repeat=count)]
        return min((levels for levels in grid if max(levels) == 1.0), key=cost)
    return min((_descend(begin, place, cost) for place in range(count)), key=cost)


def unjudged_trust(parties: int) -> list[float]:
    """The trust in each party where no row can judge it; the label holder first."""
    return [_FIRST] + [_OTHERS] * (parties - 1)


def first_trust(opinions: Sequence[Opinion], labels: Numbers) -> list[float]:
    """The trust in each party by what it knows alone; the label holder first."""
    sure = len(labels) / (len(labels) + _HALVING_ROWS)
    shares = [known_share(opinion, labels) for opinion in opinions[1:]]
    return [_FIRST] + [min(1.0, _OTHERS + _PER_SHARE * sure * share) for share in shares]


def known_share(opinion: Opinion, labels: Numbers) -> float:
    """1 − the log loss of one party alone over that of the frequencies of classes, at least 0."""
    classes = opinion.belief.shape[1]
    counts = np.bincount(labels, minlength=classes) + 1.0
    nothing = -np.log(counts / counts.sum())[labels].sum()
    alone = _log_loss(np.log(plausible([opinion], [1.0])), labels)
    return max(0.0, 1 - alone / float(nothing))


def _descend(
    begin: Sequence[float], leader: int, cost: Callable[[list[float]], float]
) -> list[float]:
    """The best trust found by changing one party at a time, the leader being trusted fully."""
    trust = [1.0 if place == leader else start for place, start in enumerate(begin)]
    for _ in range(len(trust)):
        before = list(trust)
        for place in range(len(trust)):
            if place != leader:
                options = [[*trust[:place], level, *trust[place + 1 :]] for level in LEVELS]
                trust = min(options, key=cost)
        if trust == before:
            break
    return trust


def plausible(opinions: Sequence[Opinion], trust: Sequence[float]) -> Array:
    """Π (b_k + u) of discounted opinions, normalised."""
    logs = 0.0
    for opinion, level in zip(opinions, trust, strict=True):
        belief, doubt = discount(opinion, level)
        logs = logs + np.log(belief + doubt[:, None])
    return np.asarray(softmax(logs, axis=1))


def _log_loss(logs: Array, labels: Numbers) -> float:
    """The sum at the best of some temperatures: order counts, overconfidence does not."""
    rows = np.arange(len(labels))
    said = [log_softmax(logs / temperature, axis=1)[rows, labels] for temperature in _TEMPERATURES]
    return min(float(-one.sum()) for one in said)
