"""Where random draws come from: public ones repeat everywhere, private ones at their party only."""

import hashlib
import json
import stat

import numpy as np
import pandas as pd
import pytest

import vfsl
from vfsl.draws import (
    ANNOUNCED_BITS,
    PrivateSeed,
    draw_announced_seed,
    draw_by_number,
    draw_private_seed,
    public_rng,
)
from vfsl.errors import StoreError
from vfsl.record import RunRecord


def numbers(rng):
    return rng.integers(0, 1 << 62, 4).tolist()


def test_public_draws_follow_from_the_seed_and_the_purpose():
    assert numbers(public_rng(3, "rows")) == numbers(public_rng(3, "rows"))
    assert numbers(public_rng(3, "rows")) != numbers(public_rng(4, "rows"))
    assert numbers(public_rng(3, "rows")) != numbers(public_rng(3, "row"))


def test_private_draws_differ_by_party_and_purpose_and_repeat():
    seed = PrivateSeed.from_system("B")
    assert numbers(seed.rng("bags")) == numbers(seed.rng("bags"))
    assert numbers(seed.rng("bags")) != numbers(seed.rng("folds"))
    other = PrivateSeed("C", seed.words)
    assert numbers(seed.rng("bags")) != numbers(other.rng("bags"))


def test_the_system_gives_another_seed_each_time():
    first, second = (PrivateSeed.from_system("B").words for _ in range(2))
    assert first != second
    assert len(first) * 32 == 256


def test_a_kept_seed_is_drawn_once_and_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "private.json"
    first = PrivateSeed.kept_in(path, "B")
    assert PrivateSeed.kept_in(path, "B") == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["{}", '{"party": "C", "words": [1,2,3,4,5,6,7,8]}', "[1]"])
def test_a_damaged_seed_is_not_replaced_in_silence(tmp_path, content):
    path = tmp_path / "private.json"
    path.write_text(content)
    with pytest.raises(StoreError, match="no private seed of 'B'"):
        PrivateSeed.kept_in(path, "B")
    assert json.loads(path.read_text()) == json.loads(content)


def tables(rows=60):
    rng = np.random.default_rng(0)
    ids = [str(row) for row in range(rows)]
    return {party: pd.DataFrame({"id": ids, f"{party}-x": rng.normal(size=rows)}) for party in "BC"}


def test_a_simulation_repeats_and_its_record_says_by_what(tmp_path):
    one, two = (vfsl.simulate(tables(), seed=7) for _ in range(2))
    assert numbers(one.private_rng("B", "bags")) == numbers(two.private_rng("B", "bags"))
    other = vfsl.simulate(tables(), seed=8)
    assert numbers(one.private_rng("B", "bags")) != numbers(other.private_rng("B", "bags"))
    one.record.save(tmp_path)
    assert RunRecord.load(tmp_path).private_draws == "fixed by the simulation's seed"


def test_private_seeds_of_a_deployment_repeat_it():
    kept = {party: PrivateSeed.from_system(party) for party in ("B", "C", "K")}
    fed = vfsl.simulate(tables(), seed=7, private=kept)
    assert numbers(fed.private_rng("C", "bags")) == numbers(kept["C"].rng("bags"))
    assert fed.record.private_draws == "from the operating system, at each party"
    plain = vfsl.simulate(tables(), seed=7)
    assert numbers(fed.rng("test rows")) == numbers(plain.rng("test rows"))


def test_draws_for_the_same_purpose_are_new_each_time():
    """The same noise in two trainings would cancel out; other purposes change nothing."""
    fed = vfsl.simulate(tables(), seed=7)
    first = numbers(fed.private_rng("B", "logistic"))
    fed.private_rng("B", "xgb")
    second = numbers(fed.private_rng("B", "logistic"))
    assert second != first
    assert second == numbers(PrivateSeed.of_simulation("B", 7).rng("logistic 2"))


def test_records_of_before_still_load(tmp_path):
    fed = vfsl.simulate(tables(), seed=7)
    path = fed.record.save(tmp_path)
    content = json.loads(path.read_text())
    del content["private_draws"]
    path.write_text(json.dumps(content))
    assert RunRecord.load(tmp_path).private_draws == "not recorded"


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


def test_numbered_draws_are_the_same_whichever_were_skipped():
    every = draw_by_number(np.random.default_rng(5))
    first, second = (every(number).integers(0, 1 << 62) for number in range(2))
    resumed = draw_by_number(np.random.default_rng(5))
    assert resumed(1).integers(0, 1 << 62) == second != first
    other = draw_by_number(np.random.default_rng(6))
    assert other(1).integers(0, 1 << 62) != second
