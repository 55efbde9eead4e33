"""Announced seeds say nothing about the stream that they come from."""

import hashlib

import numpy as np

from vfsl.draws import ANNOUNCED_BITS, draw_announced_seed, draw_private_seed


def test_seeds_follow_from_the_stream():
    for draw in (draw_announced_seed, draw_private_seed):
        one, two, other = (np.random.default_rng(seed) for seed in (5, 5, 6))
        found = draw(one)
        assert found == draw(two)
        assert found != draw(other)
        assert found != draw(one)


def test_an_announced_seed_is_a_hash_of_256_bits():
    rng = np.random.default_rng(1)
    told = draw_announced_seed(rng)
    behind = np.random.default_rng(1).bytes(32)
    digest = hashlib.sha256(b"vfsl announced seed" + behind).digest()
    assert told == int.from_bytes(digest[:8], "big") >> 2


def test_how_long_seeds_are():
    rng = np.random.default_rng(2)
    told = [draw_announced_seed(rng) for _ in range(200)]
    kept = [draw_private_seed(rng) for _ in range(200)]
    assert max(seed.bit_length() for seed in told) == ANNOUNCED_BITS
    assert max(seed.bit_length() for seed in kept) == 256
    assert len({*told, *kept}) == 400
    assert all(isinstance(seed, int) for seed in (*told, *kept))


def test_draws_by_a_private_seed_use_all_of_it():
    """The last bit of 256 matters."""
    seed = draw_private_seed(np.random.default_rng(3))
    one, two = (np.random.default_rng([each, 1, 0]).random(5) for each in (seed, seed ^ 1))
    assert (one != two).any()
