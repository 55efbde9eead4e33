"""Evidence to opinions, their fusion and the loss: pure functions of numpy arrays or torch tensors.

An opinion over K classes is a belief b_k ≥ 0 for each class and an uncertainty u > 0 with
Σ b + u = 1. Everything here is written with operations that numpy and torch share, so that one text
serves both; the caller chooses the precision (training uses double).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from vfsl.errors import ConfigError

# A numpy array or a torch tensor of floats; the last axis is classes unless said otherwise.
Numbers = Any

# exp(10) is 22,026 units of evidence: enough for any certainty, far from overflow when fused.
LOGIT_BOUND = 10.0
EVIDENCE_FORMS = ("exp", "softplus", "relu")
FUSIONS = ("sequence", "symmetric")


class Opinion(NamedTuple):
    """Beliefs (rows, classes) and uncertainties (rows,)."""

    belief: Numbers
    uncertainty: Numbers


def evidence_of(logits: Numbers, form: str = "exp") -> Numbers:
    """Network outputs as evidence ≥ 0."""
    library = _library(logits)
    if form == "exp":
        return library.exp(library.clip(logits, -LOGIT_BOUND, LOGIT_BOUND))
    if form == "softplus":
        return library.clip(logits, 0, None) + library.log1p(library.exp(-library.abs(logits)))
    if form == "relu":
        return library.clip(logits, 0, None)
    raise ConfigError(
        f"The evidence parameter of RISA must be one of {', '.join(EVIDENCE_FORMS)}. "
        f"Got {form!r} instead."
    )


def opinion_of(evidence: Numbers) -> Opinion:
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


def conflict(first: Opinion, second: Opinion) -> Numbers:
    """C: the belief that two opinions place on different classes, at least 0 also when rounded."""
    elsewhere = second.belief.sum(axis=-1)[..., None] - second.belief
    library = _library(elsewhere)
    return (first.belief * library.clip(elsewhere, 0, None)).sum(axis=-1)


def fuse(opinions: Sequence[Opinion], how: str = "sequence") -> Opinion:
    """Fuse opinions: one after another in the given order, or all at once.

    The reduced rule is not associative, so for more than two opinions "sequence" depends on the
    order, which is why callers fix it. "symmetric" does not: b_k = Π(b_k + u) − Π u, and what is
    left is uncertainty. For two opinions both are the reduced Yager rule.
    """
    if how == "sequence":
        return reduce(fuse_two, opinions)
    if how != "symmetric":
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
    left = 1 - belief.sum(axis=-1) - doubt
    return Opinion(belief, doubt + _library(left).clip(left, 0, None))


def discount(opinion: Opinion, trust: float) -> Opinion:
    """The opinion as far as its holder is trusted: 1 keeps it, 0 makes it vacuous."""
    return Opinion(trust * opinion.belief, 1 - trust + trust * opinion.uncertainty)


def probability(opinion: Opinion) -> Numbers:
    """p_k = b_k + u / K, which equals α_k / S, the mean of the Dirichlet distribution."""
    classes = opinion.belief.shape[-1]
    return opinion.belief + opinion.uncertainty[..., None] / classes


def dirichlet(opinion: Opinion) -> Numbers:
    """α_k = b_k S + 1 with S = K / u."""
    classes = opinion.belief.shape[-1]
    return opinion.belief * (classes / opinion.uncertainty)[..., None] + 1


def losses(opinion: Opinion, labels: Numbers) -> Numbers:
    """Σ_k y_k (log S − log α_k) = −log p_y, for each row."""
    library = _library(opinion.belief)
    rows = library.arange(len(labels))
    chosen = opinion.belief[rows, labels] + opinion.uncertainty / opinion.belief.shape[-1]
    return -library.log(chosen)


def _library(values: Numbers) -> Any:
    """numpy or torch, whichever the values belong to; torch is then loaded already."""
    return sys.modules[type(values).__module__.partition(".")[0]]
