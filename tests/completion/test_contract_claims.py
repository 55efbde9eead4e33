"""What contract checks ask: refusals must be sentences of ours, global generators untouched."""

import random

import numpy as np
import pandas as pd
import pytest
import torch

from vfsl.errors import DataError
from vfsl.testing.claims import (
    require,
    require_refusal,
    require_same_frames,
    require_untouched_randomness,
)


def test_a_claim_that_does_not_hold_is_its_sentence():
    require(True, "never said")
    with pytest.raises(AssertionError, match="rows were lost"):
        require(False, "rows were lost")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KeyError("x"), "KeyError was raised"),
        (DataError("Bad."), "must be a sentence"),
        (DataError("The table for X has no rows"), "must be a sentence"),
        (DataError("The table\nfor X has no rows."), "must be a sentence"),
        (None, "nothing was raised"),
    ],
    ids=str,
)
def test_what_is_no_refusal(error, sentence):
    def call():
        if error is not None:
            raise error

    with pytest.raises(AssertionError, match=sentence):
        require_refusal("no rows", call)


def test_a_refusal():
    def call():
        raise DataError("The table for X has no rows.")

    require_refusal("no rows", call)


GENERATORS = {
    "random": (lambda: random.seed(0), random.random, random.getstate),
    "numpy": (lambda: np.random.seed(0), np.random.random, lambda: repr(np.random.get_state())),
    "torch": (
        lambda: torch.manual_seed(0),
        lambda: torch.rand(1),
        lambda: torch.get_rng_state().tolist(),
    ),
}


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("way", ["seeded", "drawn from"])
def test_global_generators_are_watched_and_put_back(name, way):
    seed, draw, state = GENERATORS[name]
    seed()  # also where it was seeded with the same number before
    before = state()
    sentence = f"generator of {name} was used or seeded"
    with pytest.raises(AssertionError, match=sentence), require_untouched_randomness():
        seed() if way == "seeded" else draw()
    assert state() == before
    with require_untouched_randomness():
        np.random.default_rng(0).random()
    assert state() == before


def test_an_error_inside_passes_through():
    before = random.getstate()
    with pytest.raises(KeyError), require_untouched_randomness():
        raise KeyError("x")
    assert random.getstate() == before


def test_frames_are_compared_to_the_type():
    one = pd.DataFrame({"x": [1, 2]})
    require_same_frames(one, one.copy(), "They differ.")
    with pytest.raises(AssertionError, match="They differ"):
        require_same_frames(one, one.astype(float), "They differ.")
