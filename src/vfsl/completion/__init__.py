"""Completing columns that are missing for many rows: generators, imputers, and how good they are.

Methods with networks need PyTorch (``pip install 'vfsl[deep]'``); it is loaded on first use.
"""

from typing import TYPE_CHECKING, Any

from vfsl.completion.base import Completed, Completer, Generator
from vfsl.completion.ensembles import Ensemble
from vfsl.completion.fidelity import (
    Efficiency,
    NearestRecords,
    Quality,
    learning_efficiency,
    nearest_records,
    quality,
)
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.registry import (
    METHODS,
    Facts,
    available,
    completer,
    facts_of,
    find,
    load,
    save,
)
from vfsl.completion.simple import GeneratorCompleter, HotDeck, MeanMode

if TYPE_CHECKING:
    from vfsl.completion.generators.ctabgan import CTABGAN
    from vfsl.completion.generators.ctgan import CTGAN
    from vfsl.completion.generators.tabddpm import TabDDPM
    from vfsl.completion.generators.tablegan import TableGAN
    from vfsl.completion.generators.tvae import TVAE
    from vfsl.completion.generators.vae import VAE
    from vfsl.completion.imputers.gain import GAIN
    from vfsl.completion.imputers.vfgain import VFGAIN
    from vfsl.completion.imputers.vgain import VGAIN

__all__ = [
    "CTABGAN",
    "CTGAN",
    "GAIN",
    "TVAE",
    "VAE",
    "VFGAIN",
    "VGAIN",
    "Completed",
    "Completer",
    "Efficiency",
    "Ensemble",
    "Facts",
    "Generator",
    "GeneratorCompleter",
    "HotDeck",
    "MeanMode",
    "MixedEncoder",
    "NearestRecords",
    "Quality",
    "TabDDPM",
    "TableGAN",
    "available",
    "completer",
    "facts_of",
    "find",
    "learning_efficiency",
    "load",
    "nearest_records",
    "quality",
    "save",
]

_DEEP = {path.partition(":")[2]: name for name, (path, _) in METHODS.items()}


def __getattr__(name: str) -> Any:
    if name in _DEEP:
        return find(_DEEP[name])
    raise AttributeError(f"module 'vfsl.completion' has no attribute {name!r}")
