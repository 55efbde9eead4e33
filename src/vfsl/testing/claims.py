"""What contract checks require: that a claim holds, an error is told, randomness is untouched."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from vfsl.errors import VfslError

if TYPE_CHECKING:
    import pandas as pd


def require(holds: bool, sentence: str) -> None:
    """Raise AssertionError with this sentence unless the claim holds."""
    if not holds:
        raise AssertionError(sentence)


def require_same_frames(one: pd.DataFrame, other: pd.DataFrame, sentence: str) -> None:
    """Both must have the same cells, types, columns and rows."""
    from pandas.testing import assert_frame_equal

    try:
        assert_frame_equal(one, other, check_exact=True)
    except AssertionError as error:
        raise AssertionError(f"{sentence} {error}") from None


def require_refusal(what: str, call: Callable[[], object]) -> None:
    """The call must end in an error of vfsl that tells a user, in one line, what is wrong."""
    try:
        call()
    except VfslError as error:
        text = str(error)
        require(
            len(text.split()) >= 4 and "\n" not in text and text.endswith("."),
            f"With {what} the error must be a sentence on one line. It is {text!r}.",
        )
        return
    except Exception as error:
        raise AssertionError(
            f"With {what} an error of vfsl.errors was expected. "
            f"{type(error).__name__} was raised: {error}"
        ) from error
    raise AssertionError(f"With {what} an error was expected, but nothing was raised.")


@contextmanager
def require_untouched_randomness() -> Iterator[None]:
    """Global generators must be neither seeded nor drawn from; they are restored afterwards."""
    # Those of PyTorch only where something has loaded it.
    torch = sys.modules.get("torch")
    python, legacy = random.getstate(), np.random.get_state()
    tensors = None if torch is None else torch.get_rng_state()
    try:
        # A state that no seeding gives, so that seeding with a seed used before shows too.
        random.random()
        np.random.random()
        if torch is not None:
            torch.rand(1)
        before = _states(torch)
        yield
        after = _states(torch)
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
        if torch is not None:
            torch.set_rng_state(tensors)
    for name, state in before.items():
        require(
            after[name] == state,
            f"The global generator of {name} was used or seeded; draw from the passed one.",
        )


def _states(torch: Any) -> dict[str, object]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    states: dict[str, object] = {
        "random": random.getstate(),
        "numpy": (kind, np.asarray(keys).tobytes(), tuple(rest)),
    }
    if torch is not None:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states
