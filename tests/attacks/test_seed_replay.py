"""The job's seed is public: whoever repeats the label holder's draws finds the known positives.

Bags of VFPU draw places in the list of unlabelled rows. On shares nothing is opened that such draws
could be held against. In the protocol "rounds" a feature holder that knows the places and sees the
first gradient of each bag has sums over x[U[place]]; the list U is all rows but the known
positives, so U[place] = place + how many positives come before. A mixed-integer program finds them.
"""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from tests.attacks.completion_views import Opened
from tests.pu.pu_cases import federation, people
from vfsl.data import Encoder
from vfsl.draws import PrivateSeed, public_rng
from vfsl.parts import Roles
from vfsl.pu import VFPU
from vfsl.pu.bags import draw_negatives
from vfsl.pu.bases import BagLogistic

BAGS, SEED = 20, 5
# Without the rule and the noise that hide few positives anyway: draws must do it alone.
BASE = BagLogistic(rare_rows_per_column=0.0, label_noise=0.0, protocol="rounds")


def case(rows, positives):
    frames, positive, _ = people(rows=rows, seed=1, share=0.4)
    known = np.zeros(rows, dtype=bool)
    known[np.random.default_rng(2).choice(np.flatnonzero(positive), positives, False)] = True
    return frames, known


def drawn_places(rng, rows, positives):
    """The places that a generator of the label holder draws into each bag."""
    rng.integers(0, 1 << 32, 4)  # drawn first, for the training tasks
    draws = np.random.default_rng(rng.integers(0, 1 << 62, 2))
    return draws.integers(0, rows - positives, (BAGS, positives))


def first_sums(opened, rows, positives):
    """Σ v·(±1)·x of each bag from B's first gradients, up to what all bags have in common."""
    begun = (v for scope, v in opened.gradients_of("B") if scope.endswith("stage 0/round 0/"))
    values = next(begun)
    width = BASE._program(weighted=True).width(rows, 0, Roles("C", ("B",), "K"))
    sums = np.stack(values)[:BAGS] / 2.0**width.sums
    # A bag weighs 2 |P| rows, weights count over their mean, and y − p is ±½ at score 0, over ¼.
    return sums * positives / rows


def matrix_of(fed):
    matrix = Encoder(missing="impute").fit_transform(fed.tables["B"]).matrix
    return matrix - matrix.mean(axis=0)


def replayed_positives(matrix, sums, places, positives, seconds):
    """Known positives whose list of unlabelled rows explains the differences between bags best."""
    rows = len(matrix)
    free = rows - positives
    counts = np.stack([np.bincount(bag, minlength=free) for bag in places])
    change = counts[1:] - counts[:1]
    wanted = (sums[1:] - sums[:1] - change @ matrix[:free]).ravel()
    # u[j, k] = 1 if at least k + 1 positives come before the j-th unlabelled row.
    steps = np.stack(
        [matrix[k + 1 : k + 1 + free] - matrix[k : k + free] for k in range(positives)]
    )
    blocks = [(change[:, :, None] * step[None]).transpose(0, 2, 1) for step in steps]
    design = np.concatenate([block.reshape(-1, free) for block in blocks], axis=1)
    size, equations = positives * free, len(wanted)
    before, after = [], []
    for k in range(positives):
        before += [k * free + j for j in range(free - 1)]
        after += [k * free + j + 1 for j in range(free - 1)]
    for k in range(positives - 1):
        before += [(k + 1) * free + j for j in range(free)]
        after += [k * free + j for j in range(free)]
    order = np.zeros((len(before), size + 2 * equations))
    order[np.arange(len(before)), before] = 1
    order[np.arange(len(before)), after] = -1
    slack = np.eye(equations)
    found = milp(
        np.concatenate([np.zeros(size), np.ones(2 * equations)]),
        constraints=[
            LinearConstraint(np.hstack([design, slack, -slack]), wanted, wanted),
            LinearConstraint(order, -np.inf, 0),
        ],
        integrality=np.concatenate([np.ones(size), np.zeros(2 * equations)]),
        bounds=Bounds(0, np.concatenate([np.ones(size), np.full(2 * equations, np.inf)])),
        options={"time_limit": seconds},
    )
    if found.x is None:
        return set()
    shift = np.rint(found.x[:size]).reshape(positives, free).sum(axis=0).astype(int)
    return set(range(rows)) - set((np.arange(free) + shift).tolist())


def attack(monkeypatch, rows, positives, private, replay, seconds):
    """How many known positives B finds that repeats ``replay``'s draws."""
    frames, known = case(rows, positives)
    opened = Opened(monkeypatch)
    fed = federation(frames, known, seed=SEED, private=private)
    VFPU(base=BASE, rounds=BAGS).fit(fed, positives="A", label_holder="C")
    places = drawn_places(replay, rows, positives)
    sums = first_sums(opened, rows, positives)
    found = replayed_positives(matrix_of(fed), sums, places, positives, seconds)
    return len(found & set(np.flatnonzero(known).tolist()))


def from_system(seed=None):
    return {party: PrivateSeed.from_system(party) for party in ("A", "B", "C", "K")}


def test_by_default_nothing_is_opened_to_hold_draws_against(monkeypatch):
    """B knows the draws, and has words of the dealer and masked words of C: no sum of anything."""
    frames, known = case(60, 6)
    opened = Opened(monkeypatch)
    fed = federation(frames, known, "auto", seed=SEED, keep_views=True)
    VFPU(rounds=BAGS).fit(fed, positives="A", label_holder="C")
    assert not opened.gradients
    told = [s for s in fed.transcript.sights if s.receiver == "B" and "/bags/" in s.name]
    assert {(s.kind, s.name.rsplit("/")[-1]) for s in told} == {
        ("plain", "seed"),
        ("plain", "sizes"),
        ("masked", "masked"),
        ("masked", "dealt"),
    }
    # Uniform: every bit of all words is as often 0 as 1.
    words = b"".join(s.body[64:] for s in told if s.kind == "masked" and len(s.body) > 1000)
    bits = np.unpackbits(np.frombuffer(words, dtype=np.uint8)).astype(float)
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(bits))


CASES = [(60, 6, 6.0), pytest.param(120, 20, 60.0, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("rows", "positives", "seconds"), CASES)
def test_public_facts_repeat_no_private_draw(monkeypatch, rows, positives, seconds):
    """Whatever B derives from the job's seed, it finds positives as often as by guessing."""
    replay = PrivateSeed.of_simulation("C", SEED).rng("vfpu")
    hits = attack(monkeypatch, rows, positives, from_system(), replay, seconds)
    chance = positives**2 / rows
    # Guessing gets there less than once in 100,000 runs; the control below always does.
    assert hits < min(chance + 5 * np.sqrt(chance), 0.8 * positives)


@pytest.mark.parametrize(("rows", "positives", "seconds"), CASES)
def test_draws_that_follow_from_the_seed_give_the_positives_away(
    monkeypatch, rows, positives, seconds
):
    """The control: a simulation, whose seed fixes private draws too.

    A row that is in no bag cannot be told from its neighbour, hence one in ten less.
    """
    replay = PrivateSeed.of_simulation("C", SEED).rng("vfpu")
    hits = attack(monkeypatch, rows, positives, None, replay, seconds)
    assert hits >= 0.8 * positives


def test_every_private_draw_differs_from_what_the_seed_gives():
    """The label holder's bags, as it draws them, against those of public generators."""
    known = np.zeros(200, dtype=bool)
    known[:20] = True
    mine = from_system()["C"].rng("vfpu")
    drawn = draw_negatives(~known, 20, BAGS, mine)
    for rng in (
        public_rng(SEED, "vfpu"),
        public_rng(SEED, "vfpu C"),
        PrivateSeed.of_simulation("C", SEED).rng("vfpu"),
        from_system()["C"].rng("vfpu"),
    ):
        assert (draw_negatives(~known, 20, BAGS, rng) != drawn).any(axis=0).all()
