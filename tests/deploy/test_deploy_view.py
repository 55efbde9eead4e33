"""A party's own view of a run: what it draws and hides."""

from pathlib import Path

from vfsl.deploy.config import PartyFile
from vfsl.deploy.job import SharedJob
from vfsl.deploy.view import Site
from vfsl.draws import PrivateSeed

STEPS = [
    {"do": "align"},
    {"do": "train", "model": "logistic", "label": ["C", "y"]},
    {"do": "train", "model": "xgb", "label": ["C", "y"]},
    {"do": "train", "model": "logistic", "label": ["C", "y"], "l2": 0.1},
]
SEED = PrivateSeed.from_system("C")


def site(number):
    mine = PartyFile.model_validate({"party": "K", "role": "key holder"})
    job = SharedJob.model_validate({"parties": ["B", "C"], "steps": STEPS})
    return Site(mine, job, None, Path(), Path(), lambda: None, SEED, number)


def first(rng):
    return int(rng.integers(1 << 62))


def test_every_step_and_every_part_of_one_draws_anew():
    runs = [site(2), site(4)]
    draws = [first(one.private_rng("logistic")) for one in runs for _ in range(2)]
    assert len(set(draws)) == 4
    assert draws[0] == first(SEED.rng("logistic"))


def test_a_step_that_is_done_again_repeats_its_draws():
    """Also where the steps before it are finished and not done again."""
    through = site(2)
    first(through.private_rng("logistic"))
    through.number = 4
    assert first(through.private_rng("logistic")) == first(site(4).private_rng("logistic"))
