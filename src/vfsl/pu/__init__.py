"""VFPU: reliable positives when only positives and unlabelled rows exist."""

from vfsl.pu.bases import BASES, BagLogistic
from vfsl.pu.deliver import deliver_side
from vfsl.pu.prior import Calibration, Prior
from vfsl.pu.search import REASONS
from vfsl.pu.vfpu import PRESETS, VFPU, raw_scores_of, reliable_of, scores_alone, scores_of

__all__ = [
    "BASES",
    "PRESETS",
    "REASONS",
    "VFPU",
    "BagLogistic",
    "Calibration",
    "Prior",
    "deliver_side",
    "raw_scores_of",
    "reliable_of",
    "scores_alone",
    "scores_of",
]
