"""torch is an extra: one clear sentence where it is needed and absent."""

from __future__ import annotations

from importlib.util import find_spec

from vfsl.errors import ConfigError


def need_torch(what: str) -> None:
    if find_spec("torch") is None:
        raise ConfigError(
            f"{what} needs PyTorch, which is not installed; install it with "
            "pip install 'vfsl[deep]'."
        )
