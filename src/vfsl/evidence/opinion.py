"""Opinions: from evidence, fused, as a loss, and how far each party's opinion is trusted.

An opinion over K classes is a belief b_k ≥ 0 for each class and an uncertainty u > 0 with
Σ b + u = 1. All but trust is written with operations that numpy and torch share, so that one text
serves both; the caller chooses the precision (training uses double).

Trust is judged on labelled rows that training did not see, by the log score of normalised
plausibilities, q_k ∝ Π (b_k + u). The probability of the fused opinion is no judge: two parties in
conflict make it flat, however right one of them is, so by it the second party would nearly always
be better left out.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import log_softmax, softmax

from vfsl.errors import ConfigError
from vfsl.values import Array

# A numpy array or a torch tensor of floats; the last axis is classes unless said otherwise.
Floats = Any

# exp(10) is 22,026 units of evidence: enough for any certainty, far from overflow when fused.
LOGIT_BOUND = 10.0
EvidenceForm = Literal["exp", "softplus", "relu"]
Fusion = Literal["sequence", "symmetric", "dempster"]
FUSIONS = get_args(Fusion)

TRUST_LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
# A few rows must not decide: moving by d from where a party begins costs 16 d² units of log score.
# The label holder begins with full trust whatever it knows, so 4 d² for it.
_CAUTION, _CAUTION_FIRST = 16.0, 4.0
# The label holder, who has labels for all of its rows, begins with full trust. Another party begins
# with a quarter, plus twice the fraction of what there is to know of the label that it knows alone;
# this counts half where only ten rows say so. On validation rows full trust in a party that learned
# from few rows cost 5 to 7 points of AUC on Criteo, where it knows nothing alone; a quarter cost 1
# on census and 2.5 on MNIST, where it knows a third and two thirds.
_FIRST, _OTHERS, _PER_FRACTION, _HALVING_ROWS = 1.0, 0.25, 2.0, 10
_TEMPERATURES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)


class Opinion(NamedTuple):
    """Beliefs (rows, classes) and uncertainties (rows,)."""

    belief: Floats
    uncertainty: Floats


def evidence_of(logits: Floats, form: str = "exp") -> Floats:
    """Network outputs as evidence ≥ 0."""
    library = _library(logits)
    if form == "exp":
        return library.exp(library.clip(logits, -LOGIT_BOUND, LOGIT_BOUND))
    if form == "softplus":
        return library.clip(logits, 0, None) + library.log1p(library.exp(-library.abs(logits)))
    if form == "relu":
        return library.clip(logits, 0, None)
    raise ConfigError(
        f"The evidence parameter of RISA must be one of {', '.join(get_args(EvidenceForm))}. "
        f"Got {form!r} instead."
    )


def opinion_of(evidence: Floats) -> Opinion:
    """α = e + 1, S = Σ α, b = e / S, u = K / S. No evidence at all is the vacuous opinion."""
    classes = evidence.shape[-1]
    strength = evidence.sum(axis=-1) + classes
    return Opinion(evidence / strength[..., None], classes / strength)


def fuse_two(first: Opinion, second: Opinion) -> Opinion:
    """The reduced Yager rule: b = b¹b² + b¹u² + b²u¹, u = u¹u² + C, C = Σ_{i≠j} b¹_i b²_j."""
    own, other = first.uncertainty[..., None], second.uncertainty[..., None]
    belief = first.belief * second.belief + first.belief * other + second.belief * own
    doubt = first.uncertainty * second.uncertainty + conflict(first, second)
    return Opinion(belief, doubt)


def conflict(first: Opinion, second: Opinion) -> Floats:
    """C: the belief that two opinions place on different classes, at least 0 also when rounded."""
    elsewhere = second.belief.sum(axis=-1)[..., None] - second.belief
    library = _library(elsewhere)
    return (first.belief * library.clip(elsewhere, 0, None)).sum(axis=-1)


def fuse(opinions: Sequence[Opinion], how: str = "sequence") -> Opinion:
    """Fuse opinions: one after another in the given order, or all at once.

    The reduced rule is not associative, so for more than two opinions "sequence" depends on the
    order, which is why callers fix it. "symmetric" does not: b_k = Π(b_k + u) − Π u, and what is
    left is uncertainty. For two opinions both are the reduced Yager rule. "dempster" is the rule
    that it replaces.
    """
    if how == "sequence":
        return reduce(fuse_two, opinions)
    if how not in FUSIONS:
        raise ConfigError(
            f"The fusion parameter of RISA must be one of {', '.join(FUSIONS)}. "
            f"Got {how!r} instead."
        )
    belief, doubt = opinions[0]
    for opinion in opinions[1:]:
        # Π(b + u) − Π u one factor further, without subtracting.
        plausible = opinion.belief + opinion.uncertainty[..., None]
        belief = belief * plausible + opinion.belief * doubt[..., None]
        doubt = doubt * opinion.uncertainty
    if how == "dempster":
        # Conflict is divided away: what the opinions agree on becomes all there is.
        agreed = belief.sum(axis=-1) + doubt
        return Opinion(belief / agreed[..., None], doubt / agreed)
    left = 1 - belief.sum(axis=-1) - doubt
    return Opinion(belief, doubt + _library(left).clip(left, 0, None))


def discount(opinion: Opinion, trust: float) -> Opinion:
    """The opinion as far as its holder is trusted: 1 keeps it, 0 makes it vacuous."""
    return Opinion(trust * opinion.belief, 1 - trust + trust * opinion.uncertainty)


def fuse_trusted(opinions: Sequence[Opinion], trust: Iterable[float], how: str) -> Opinion:
    """Fuse opinions in the given order, each as far as its holder is trusted."""
    return fuse([discount(o, level) for o, level in zip(opinions, trust, strict=True)], how)


def probability(opinion: Opinion) -> Floats:
    """p_k = b_k + u / K, which equals α_k / S, the mean of the Dirichlet distribution."""
    classes = opinion.belief.shape[-1]
    return opinion.belief + opinion.uncertainty[..., None] / classes


def losses(opinion: Opinion, labels: Floats) -> Floats:
    """Σ_k y_k (log S − log α_k) = −log p_y, for each row."""
    library = _library(opinion.belief)
    rows = library.arange(len(labels))
    chosen = opinion.belief[rows, labels] + opinion.uncertainty / opinion.belief.shape[-1]
    return -library.log(chosen)


# ---- trust ---------------------------------------------------------------------------------------


def choose_trust(opinions: Sequence[Opinion], labels: Array) -> list[float]:
    """The trust in each party with which their opinions tell most about the labels.

    The label holder comes first. One party is always trusted fully. With up to three parties all
    combinations of levels are tried; with more, one party at a time, starting from each of them.
    """
    count = len(opinions)
    begin = first_trust(opinions, labels)

    def cost(levels: list[float]) -> float:
        moved = [(level - start) ** 2 for level, start in zip(levels, begin, strict=True)]
        caution = _CAUTION_FIRST * moved[0] + _CAUTION * sum(moved[1:])
        return _log_loss(np.log(plausibility(opinions, levels)), labels) + caution

    if count <= 3:
        grid = [list(levels) for levels in itertools.product(TRUST_LEVELS, repeat=count)]
        return min((levels for levels in grid if max(levels) == 1.0), key=cost)
    return min((_descend(begin, place, cost) for place in range(count)), key=cost)


def unjudged_trust(parties: int) -> list[float]:
    """The trust in each party where no row can judge it; the label holder first."""
    return [_FIRST] + [_OTHERS] * (parties - 1)


def first_trust(opinions: Sequence[Opinion], labels: Array) -> list[float]:
    """The trust in each party by what it knows alone; the label holder first."""
    sure = len(labels) / (len(labels) + _HALVING_ROWS)
    known = [known_fraction(opinion, labels) for opinion in opinions[1:]]
    return [_FIRST] + [min(1.0, _OTHERS + _PER_FRACTION * sure * fraction) for fraction in known]


def known_fraction(opinion: Opinion, labels: Array) -> float:
    """1 − (one party's log loss alone) / (that of the class frequencies), at least 0."""
    classes = opinion.belief.shape[1]
    counts = np.bincount(labels, minlength=classes) + 1.0
    nothing = -np.log(counts / counts.sum())[labels].sum()
    alone = _log_loss(np.log(plausibility([opinion], [1.0])), labels)
    return max(0.0, 1 - alone / float(nothing))


def _descend(
    begin: Sequence[float], leader: int, cost: Callable[[list[float]], float]
) -> list[float]:
    """The best trust found by changing one party at a time; the leader is trusted fully."""
    trust = [1.0 if place == leader else start for place, start in enumerate(begin)]
    for _ in range(len(trust)):
        before = list(trust)
        for place in range(len(trust)):
            if place != leader:
                options = [[*trust[:place], level, *trust[place + 1 :]] for level in TRUST_LEVELS]
                trust = min(options, key=cost)
        if trust == before:
            break
    return trust


def plausibility(opinions: Sequence[Opinion], trust: Sequence[float]) -> Array:
    """Π (b_k + u) of discounted opinions, normalised."""
    logs = 0.0
    for opinion, level in zip(opinions, trust, strict=True):
        belief, doubt = discount(opinion, level)
        logs = logs + np.log(belief + doubt[:, None])
    return np.asarray(softmax(logs, axis=1))


def _log_loss(logs: Array, labels: Array) -> float:
    """The sum at the best of some temperatures: order counts, overconfidence does not."""
    rows = np.arange(len(labels))
    said = [log_softmax(logs / temperature, axis=1)[rows, labels] for temperature in _TEMPERATURES]
    return min(float(-one.sum()) for one in said)


def _library(values: Floats) -> Any:
    """numpy or torch, whichever the values belong to; torch is then loaded already."""
    return sys.modules[type(values).__module__.partition(".")[0]]
