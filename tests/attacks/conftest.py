"""Lets the attacks import what they share, and the cases of VFPU."""

import sys
from pathlib import Path

here = Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent / "pu")]
