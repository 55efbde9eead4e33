"""Row weights for training on completed rows: what the missing party tells the label holder.

Holds   the missing party: how sure each remaining row of the given party was completed.
Learns  the given party, who holds the label: that confidence, in tenths.
"""

from __future__ import annotations

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.completion.downstream import DISCLOSURES
from vfsl.completion.selection import Floats

NAME = "confidence of completed rows"


def row_weights(common: int, confidence: Floats) -> Floats:
    """1 for common rows; for completed ones from 0.1, since the given columns are real, to 1."""
    return np.concatenate([np.ones(common), 0.1 + 0.9 * np.clip(confidence, 0.0, 1.0)])


def tell_confidence(channel: Channel, given: str, confidence: Floats) -> None:
    """The missing party's side."""
    said = np.round(np.clip(confidence, 0.0, 1.0), 1)
    here = channel.within(NAME, DISCLOSURES)
    # Tenths: less than an eighth of a number of 32 bits.
    here.release(given, "confidence in tenths", -(-len(said) // 8))
    here.send(given, "confidence", said)


def hear_confidence(channel: Channel, missing: str, rows: int) -> Floats:
    """The given party's side: one number for each of its remaining rows."""
    came = channel.within(NAME, DISCLOSURES).receive(missing, "confidence")
    return expect_array(came, sender=missing, name="confidence", holds="float", shape=(rows,))
