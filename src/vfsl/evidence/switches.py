"""What differs between the paper's RISA, ours, and its ablations: small switches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from vfsl.data.checks import check_choice, check_count, check_fraction
from vfsl.errors import ConfigError
from vfsl.evidence.opinion import FUSIONS

ABSENT = ("mean", "vacuous")
REMOVAL = ("uncertainty", "label", "none")


@dataclass(frozen=True)
class Switches:
    """Choices within RISA.

    Attributes
    ----------
    impute : bool
        Rows that are not in the overlap take part (IMP).
    self_train : bool
        Rows without a label get one from the self-training model (ST).
    evidential : bool
        Parties' outputs are fused as opinions and rows leave by a score (EVFL); otherwise outputs
        are added up and go through a softmax, and no row leaves.
    absent : {"mean", "vacuous"}
        An absent party says what it says of the mean of its overlap rows, or nothing at all.
    party_loss : float
        Weight of the loss of each party's own opinion, on the rows that it has.
    masked : bool
        The self-training model also learns from each party alone.
    fusion : {"sequence", "symmetric"}
        How more than two opinions are fused.
    removal : {"uncertainty", "label", "none"}
        The score by which rows leave: the fused uncertainty, or how much less likely the row's
        label is than the likeliest class, 1 − p_label / p_max.
    keep_labelled : bool
        Rows with a true label never leave.
    pseudo_weight : float
        What a row with a pseudo label counts in the loss; one with a true label counts 1.
    repeats : int
        How often overlap rows are seen in a pass, as long as the others are not outnumbered.
    discount : bool
        Opinions of a party that does not help on held-out overlap rows are discounted.
    """

    impute: bool = True
    self_train: bool = True
    evidential: bool = True
    absent: str = "mean"
    party_loss: float = 0.0
    masked: bool = False
    fusion: str = "sequence"
    removal: str = "uncertainty"
    keep_labelled: bool = False
    pseudo_weight: float = 1.0
    repeats: int = 1
    discount: bool = False


PAPER = Switches()
# For networks that learn slowly from pictures: overlap rows come up often.
PLUS = Switches(
    absent="vacuous",
    party_loss=1.0,
    masked=True,
    fusion="symmetric",
    removal="label",
    keep_labelled=True,
    pseudo_weight=0.3,
    repeats=4,
    discount=True,
)
# On tables a network soon knows few overlap rows by heart, and pseudo labels say little new.
PLUS_TABLES = replace(PLUS, pseudo_weight=0.1, repeats=1)
VARIANTS = {"paper": (PAPER, PAPER), "plus": (PLUS_TABLES, PLUS)}


def switches_of(
    variant: str, changes: Mapping[str, Any] | None, pictures: bool = False
) -> Switches:
    """The switches of a variant, for tables or pictures, with some of them changed."""
    check_choice("RISA", "variant", variant, tuple(VARIANTS))
    known = [field.name for field in fields(Switches)]
    for name in changes or {}:
        if name not in known:
            raise ConfigError(
                f"The switches parameter of RISA must name some of {', '.join(known)}. "
                f"Got {name!r} instead."
            )
    made = replace(VARIANTS[variant][pictures], **(changes or {}))
    check_choice("RISA", "absent switch", made.absent, ABSENT)
    check_choice("RISA", "fusion switch", made.fusion, FUSIONS)
    check_choice("RISA", "removal switch", made.removal, REMOVAL)
    check_fraction("RISA", "party_loss switch", made.party_loss)
    check_fraction("RISA", "pseudo_weight switch", made.pseudo_weight)
    check_count("RISA", "repeats switch", made.repeats, 1)
    return made
