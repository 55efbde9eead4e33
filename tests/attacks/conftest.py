"""Lets the attacks import what they share."""

import sys
from pathlib import Path

here = Path(__file__).parent
sys.path.insert(0, str(here))
