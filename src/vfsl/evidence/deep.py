"""torch is an extra: one clear sentence where it is needed and absent; and its threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from vfsl.errors import ConfigError


def need_torch(what: str) -> None:
    if find_spec("torch") is None:
        raise ConfigError(
            f"{what} needs PyTorch, which is not installed; install it with "
            "pip install 'vfsl[deep]'."
        )


@contextmanager
def divided_threads(parties: int) -> Iterator[int]:
    """Each party's share of torch's threads while all parties compute on this machine.

    Parties that use all of them at once crowd each other out. The caller's number is put back.
    """
    import torch

    before = torch.get_num_threads()
    try:
        yield max(1, before // parties)
    finally:
        torch.set_num_threads(before)
