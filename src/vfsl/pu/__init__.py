"""VFPU: reliable positives when only positives and unlabelled rows exist."""

from vfsl.pu.bases import BASES, BagLogistic
from vfsl.pu.calibration import Calibration
from vfsl.pu.loop import Progress
from vfsl.pu.prior import Prior
from vfsl.pu.stopping import REASONS
from vfsl.pu.vfpu import PRESETS, VFPU

__all__ = [
    "BASES",
    "PRESETS",
    "REASONS",
    "VFPU",
    "BagLogistic",
    "Calibration",
    "Prior",
    "Progress",
]
