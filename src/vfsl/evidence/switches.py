"""What differs between the paper's RISA, ours, and its ablations: small switches."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from vfsl.data.checks import check_choice
from vfsl.errors import ConfigError
from vfsl.evidence.opinion import Fusion
from vfsl.params import check_params, documented, param


@documented
@dataclass(frozen=True)
class Switches:
    """Choices within RISA; the defaults are those of the paper."""

    impute: bool = param(True, "Rows that are not in the overlap take part (IMP).")
    self_train: bool = param(
        True, "Rows without a label may get one from the self-training model (ST)."
    )
    evidential: bool = param(
        True,
        "The parties' outputs are fused as opinions, and rows leave by a score (EVFL). Otherwise "
        "outputs are added up and go through a softmax, and no row leaves.",
    )
    absent: Literal["mean", "vacuous"] = param(
        "mean",
        "An absent party says what it says of the mean of its overlap rows, or nothing at all.",
    )
    party_loss: float = param(
        0.0, "Weight of the loss of each party's own opinion on the rows that it has.", ge=0, le=1
    )
    masked: bool = param(False, "The self-training model also learns from each party alone.")
    fusion: Fusion = param(
        "sequence",
        "Opinions are fused by the reduced Yager rule, more than two one after another "
        "('sequence') or all at once ('symmetric'); or by Dempster's rule ('dempster'), which "
        "divides conflict away.",
    )
    removal: Literal["uncertainty", "label", "none"] = param(
        "uncertainty",
        "The score by which rows leave: the fused uncertainty, or how much less likely the row's "
        "label is than the likeliest class, 1 − p_label / p_max.",
    )
    keep_labelled: bool = param(False, "Rows with a true label never leave.")
    pseudo_weight: float = param(
        1.0,
        "What a row with a pseudo label counts in the loss; one with a true label counts 1.",
        ge=0,
        le=1,
    )
    repeats: int = param(
        1,
        "How often overlap rows are seen in a pass, as long as they do not outnumber the others.",
        ge=1,
    )
    discount: bool = param(
        False, "Opinions of a party that does not help on held-out overlap rows are discounted."
    )


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
_VARIANTS = {"paper": (PAPER, PAPER), "plus": (PLUS_TABLES, PLUS)}


def switches_of(
    variant: str, changes: Mapping[str, Any] | None, pictures: bool = False
) -> Switches:
    """The switches of a variant, for tables or pictures, with some of them changed."""
    check_choice("RISA", "variant", variant, tuple(_VARIANTS))
    known = [field.name for field in fields(Switches)]
    for name in changes or {}:
        if name not in known:
            raise ConfigError(
                f"The switches parameter of RISA must name some of {', '.join(known)}. "
                f"Got {name!r} instead{_nearest(name, known)}"
            )
    made = replace(_VARIANTS[variant][pictures], **(changes or {}))
    check_params(made, where="RISA's switches")
    return made


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else "."
