"""Ridge models on shares: the same as pooled ones, bit for bit the same between parties."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.channel import Transcript, run_together
from vfsl.completion.class_sums import draw_halves, number_cells
from vfsl.completion.shared_errors import (
    add_up_errors,
    error_bits,
    falls,
    hold_out,
    keep_better,
)
from vfsl.completion.shared_fit import (
    DISCLOSURES,
    FARTHEST_BITS,
    STEPS,
    Missing,
    Sizes,
    chebyshev_steps,
    count_twentieths,
    draw_in_rows,
    fit_common,
    open_predictions,
    turn_columns,
)
from vfsl.completion.shared_rounds import Choice, block_sizes, draw_blocks, self_train
from vfsl.completion.tasks import known_fractions, residual_factors
from vfsl.crypto.shares import Session
from vfsl.errors import ProtocolError

L2 = 0.01
PARTS = 4


class Case:
    """Tables of both parties: numbers, one of them with gaps, and categories of 2 and 3 classes."""

    def __init__(self, rows=150, rest=200, columns=4, rounds=1, gaps=True, seed=0):
        rng = np.random.default_rng(seed)
        hidden = rng.normal(size=(rows + rest, 3))
        mixed = hidden @ rng.normal(size=(3, columns)) + rng.normal(size=(rows + rest, columns))
        mixed = (mixed - mixed[:rows].mean(axis=0)) / mixed[:rows].std(axis=0)
        self.columns, self.rest = mixed[:rows], mixed[rows:]
        numbers = hidden[:rows] @ rng.normal(size=(3, 2)) + 0.5 * rng.normal(size=(rows, 2))
        latent = hidden[:rows, 0] + 0.3 * rng.normal(size=rows)
        self.codes = {2: (latent > 0).astype(int), 3: np.digitize(latent, [-0.7, 0.7])}
        hot = np.column_stack([self.codes[2], np.eye(3)[self.codes[3]][:, 1:]])
        self.known = np.ones((rows, 5), dtype=bool)
        if gaps:
            self.known[:, 1] = rng.random(rows) < 0.7
            self.known[:, 3:] = (rng.random(rows) < 0.85)[:, None]
        values = np.hstack([numbers, hot])
        self.means = np.array([v[k].mean() for v, k in zip(values.T, self.known.T, strict=True)])
        scales = np.ones(5)
        scales[:2] = [v[k].std() for v, k in zip(values.T[:2], self.known.T[:2], strict=True)]
        self.values = np.where(self.known, (values - self.means) / scales, 0.0)
        self.parts = rng.permutation(np.arange(rows) % PARTS)
        self.cells = {}
        for unit, at, count in ((2, 2, 2), (3, 3, 3)):
            halves = draw_halves(self.codes[unit], count, rng)
            self.cells[unit] = number_cells(self.codes[unit], halves, self.known[:, at], count)
        self.blocks = draw_blocks(rest, 0.2, rounds, rng)
        self.given = turn_columns(self.columns, self.rest, L2, self.blocks)
        # Linear probabilities of at least 0.7.
        self.maps = np.zeros((3, 5))
        self.maps[0, :2] = -1, 1
        self.maps[1:, 2:] = [[-(0.5**0.5), 1, 0], [-(0.5**0.5), 0, 1]]
        cuts = np.array([-0.3, 0.7, -0.3 * 0.5**0.5, 0.7, 0.7])
        self.cuts = cuts - self.means[2:] @ self.maps
        self.missing = Missing(
            self.values,
            self.known,
            self.means,
            self.values,
            self.parts,
            self.cells,
            np.array([True, False, False, False, False]),
            self.maps,
            self.cuts,
        )
        self.sizes = Sizes(
            "A",
            "B",
            rows,
            rest,
            self.given.columns.shape[1],
            PARTS,
            count_twentieths(self.known),
            (0, 0, 2, 3),
            self.given.reach,
        )

    def design(self, columns):
        return np.column_stack([columns, np.ones(len(columns))])

    @property
    def penalty(self):
        return np.diag([*[L2] * self.columns.shape[1], 0.0])

    def left_out(self):
        """Errors of models that did not see the row, with numpy on pooled rows."""
        design, rows = self.design(self.columns), len(self.columns)
        gram = design.T @ design / rows + self.penalty
        leverage = (design * (design @ np.linalg.inv(gram))).sum(axis=1) / rows
        errors = np.zeros(self.values.shape)
        for k, (y, use) in enumerate(zip(self.values.T, self.known.T, strict=True)):
            system = design[use].T @ design[use] + use.sum() * self.penalty
            fitted = design @ np.linalg.solve(system, design[use].T @ y[use])
            fraction = 1.0 if use.all() else min(known_fractions(use[:, None])[0], 0.95)
            errors[:, k] = residual_factors(leverage, fraction) * (fitted - y)
        return errors

    def play(self, program):
        """A program at all parties; what the missing one has afterwards, and the messages."""

        def side(channel, party):
            inner = channel.within("fit", DISCLOSURES)
            with Session.join(inner, ("B", "A"), "K") as s:
                mine = {"A": (self.given, None), "B": (None, self.missing)}.get(party)
                return program(s, *(mine or (None, None)))

        transcript = Transcript()
        jobs = {party: partial(side, party=party) for party in "ABK"}
        return run_together(jobs, transcript=transcript)["B"], transcript

    def add_up(self, s, given, missing):
        return add_up_errors(s, self.sizes, given, missing)

    def train(self, s, given, missing, choice):
        sizes = [len(block) for block in self.blocks]
        _, weights = self_train(s, self.sizes, given, missing, sizes, choice)
        rows = None if given is None else given.rest
        return open_predictions(s, self.sizes, rows, self.sizes.rest, weights)

    def self_trained(self, choice):
        """The same loop with numpy."""
        design, rest = self.design(self.columns), self.design(self.rest)
        uses = self.known.T
        systems = [design[u].T @ design[u] + u.sum() * self.penalty for u in uses]
        rights = [design[u].T @ y[u] for u, y in zip(uses, self.values.T, strict=True)]
        models = np.column_stack([np.linalg.solve(*p) for p in zip(systems, rights, strict=True)])
        chosen = []
        for block in self.blocks:
            rows, every = rest[block], rest @ models
            shown = every[block]
            labels = shown.copy()
            weights = np.zeros(shown.shape)
            if choice.by_spread:
                weights[:, :2] = self.missing.sure[:2]
            else:
                distance = np.abs(shown - every.mean(axis=0))[:, :2]
                weights[:, :2] = distance <= (1 - choice.alpha) * every.std(axis=0)[:2]
            sure = shown[:, 2:] @ self.maps >= self.cuts
            weights[:, 2], weights[:, 3:] = sure[:, :2].sum(1), sure[:, 2:].sum(1)[:, None]
            labels[:, 2:] = sure[:, [1, 3, 4]] - self.means[2:]
            chosen.append(weights.sum(axis=0))
            for k in range(5):
                weighed = rows * weights[:, [k]]
                systems[k] = systems[k] + weighed.T @ rows + weights[:, k].sum() * self.penalty
                rights[k] = rights[k] + weighed.T @ labels[:, k]
            models = np.column_stack(
                [np.linalg.solve(*p) for p in zip(systems, rights, strict=True)]
            )
        return rest @ models, chosen


@given(
    rows=st.integers(40, 300),
    columns=st.integers(1, 6),
    gaps=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=15, deadline=None)
def test_errors_add_up_to_those_of_pooled_models(rows, columns, gaps, seed):
    case = Case(rows, 10, columns, gaps=gaps, seed=seed)
    found, errors = case.add_up(Session.plain(), case.given, case.missing), case.left_out()
    spread = (errors**2 * case.known).sum(axis=0)
    for part in range(PARTS):
        here = (case.parts == part)[:, None] & case.known
        expected = np.array([(errors**2 * here), errors * case.values * here]).sum(axis=1)
        np.testing.assert_allclose(
            found.numbers[:, part], expected[:, :2], atol=2e-3 * spread[:2].max()
        )
    for unit, at in ((2, [2]), (3, [3, 4])):
        mine, sums = errors[:, at], found.classes[unit]
        for cell, one in enumerate(sums.sums.reshape(-1, len(at))):
            here = (case.cells[unit] == cell) & case.known[:, at[0]]
            np.testing.assert_allclose(one, mine[here].sum(axis=0), atol=0.01 * rows)
        whole = mine[case.known[:, at[0]]]
        np.testing.assert_allclose(sums.products, whole.T @ whole, atol=2e-3 * spread[at].max())


def test_parties_find_what_one_place_finds():
    case = Case()
    plain = case.add_up(Session.plain(), case.given, case.missing)
    shared, transcript = case.play(case.add_up)
    np.testing.assert_array_equal(shared.numbers, plain.numbers)
    for unit in (2, 3):
        for name, value in vars(shared.classes[unit]).items():
            np.testing.assert_array_equal(value, vars(plain.classes[unit])[name])
    # Sums go to the missing party only, and nothing but random words to anybody.
    told = {(e.sender, e.receiver, e.message) for e in transcript.entries}
    results = {one for one in told if one[2] not in ("masked", "dealt", "seed")}
    sums = ("errors of numbers", "errors of classes")
    assert results == {("A", "B", name) for name in sums}
    assert {one[2] for one in told if "K" in one[:2]} == {"seed", "dealt"}


def test_categories_alone_are_added_up_too():
    case = Case(gaps=False)
    sizes = replace(case.sizes, known=(STEPS,), classes=(2,))
    values, cells = case.values[:, [2]], {0: case.cells[2]}
    case.missing = replace(
        case.missing, values=values, known=case.known[:, [2]], means=case.means[[2]], codes=cells
    )
    found, _ = case.play(lambda s, *mine: add_up_errors(s, sizes, *mine))
    assert found.numbers.shape == (2, PARTS, 0)
    assert found.classes[0].sums.shape == (2, 2, 1)


@pytest.mark.parametrize("choice", [Choice(0.5, False), Choice(0.5, True)], ids=["seed", "spread"])
def test_self_training_is_the_pooled_loop(choice):
    case = Case(rounds=3)
    found = case.train(Session.plain(), case.given, case.missing, choice)
    expected, chosen = case.self_trained(choice)
    assert all(count > 0 for counts in chosen for count in counts[[0, 2, 3]])
    np.testing.assert_allclose(found, expected, atol=5e-3)
    before, _ = Case(rounds=1).self_trained(choice)
    assert np.abs(expected - before)[:, 2:].max() > 0.05  # pseudo-labels do something


def test_a_hidden_loop_opens_one_prediction_per_row_and_target():
    case = Case(rounds=3)
    program = partial(case.train, choice=Choice(0.5, False))
    shared, transcript = case.play(program)
    np.testing.assert_array_equal(shared, program(Session.plain(), case.given, case.missing))
    shown = [e for e in transcript.entries if e.message == "predictions"]
    assert [(e.sender, e.receiver) for e in shown] == [("A", "B")]
    others = {e.message for e in transcript.entries} - {"masked", "dealt", "seed"}
    assert others == {"predictions"}


def test_without_rounds_predictions_are_those_of_ridge_regression():
    case = Case(gaps=False)
    found = case.train(Session.plain(), case.given, case.missing, Choice(0.5, False))
    expected, _ = case.self_trained(Choice(0.5, False))
    np.testing.assert_allclose(found, expected, atol=3e-4)


@pytest.mark.slow
def test_a_million_rows_are_within_bounds():
    case = Case()
    sizes = Sizes("A", "B", 1 << 20, 1 << 20, 3, 20, (20, 13, 20, 17), (0, 0, 3), 10)
    s = Session.rehearse(("B", "A"))
    assert add_up_errors(s, sizes, None, None) is None
    before, weights = self_train(s, sizes, None, None, [1 << 18], Choice(0.8, False))
    assert weights.shape == (3, 4)
    assert keep_better(s, sizes, None, None, before, weights)[0].shape == (3, 4)
    plain = Session.plain()
    direct = fit_common(plain, case.sizes, case.given, case.missing).weights.T
    error = hold_out(plain, case.sizes, case.given, case.missing, direct)
    assert error_bits(case.sizes) == 20
    assert error.shape == (150, 5)


def test_rounds_are_kept_only_where_errors_fall_by_more_than_chance():
    changes = np.array([[-3.0, -1.0, 1.0], [-2.0, 2.0, 1.0], [-3.0, -2.0, 2.0], [-4.0, 0.5, 1.0]])
    assert falls(changes).tolist() == [True, False, False]
    rng = np.random.default_rng(0)
    by_luck = [falls(rng.normal(size=(20, 100))).mean() for _ in range(20)]
    assert 0.1 < np.mean(by_luck) < 0.22  # a standard error: 16 % of what changes nothing


def test_better_weights_are_chosen_column_by_column_and_nobody_else_knows():
    case = Case(gaps=True)

    def program(s, given, missing):
        direct = fit_common(s, case.sizes, given, missing).weights.T
        # Of the second number and the last category weights that are worse by far.
        worse = np.array([1, -1, 1, 0, 0])
        before, after = worse * direct, direct
        weights, error, better = keep_better(s, case.sizes, given, missing, before, after)
        chosen = weights.open("B", name="predictions"), error.open("B", name="predictions")
        return *chosen, better, direct.open("B", name="predictions")

    plain = program(Session.plain(), case.given, case.missing)
    (weights, error, better, direct), transcript = case.play(program)
    for one, other in zip(plain, (weights, error, better, direct), strict=True):
        np.testing.assert_array_equal(one, other)
    assert better.tolist() == [False, True, False, True]
    np.testing.assert_array_equal(weights, direct)
    np.testing.assert_allclose(error / 2.0**20, case.left_out(), atol=0.02)
    told = {(e.sender, e.receiver) for e in transcript.entries if e.message == "change of errors"}
    assert told == {("A", "B")}


# ---- pieces -------------------------------------------------------------------------------------


@given(low=st.floats(0.01, 1.0), ratio=st.floats(1.0, 60.0), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_chebyshev_steps_reach_the_solution(low, ratio, seed):
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    matrix = (turn * rng.uniform(low, low * ratio, 6)) @ turn.T
    truth = rng.normal(size=6)
    right, found, step = matrix @ truth, np.zeros(6), np.zeros(6)
    for last, residual in chebyshev_steps(low, low * ratio, 1e-4):
        step = last * step + residual * (right - matrix @ found)
        found = found + step
    assert np.linalg.norm(found - truth) <= 1.1e-4 * np.linalg.norm(truth)


def test_chebyshev_steps_are_safe_below_their_interval():
    """An eigenvalue below the interval makes an error fall more slowly, never rise."""
    for value in (1e-3, 0.05, 0.2):
        error = step = 1.0
        step = 0.0
        for last, residual in chebyshev_steps(0.25, 1.0, 1e-4):
            step = last * step - residual * value * error
            error += step
            assert 0 <= error <= 1


@given(rest=st.integers(0, 500), fraction=st.floats(0.01, 1.0), rounds=st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_no_row_is_looked_at_twice(rest, fraction, rounds):
    sizes = block_sizes(rest, fraction, rounds)
    blocks = draw_blocks(rest, fraction, rounds, np.random.default_rng(0))
    assert [len(block) for block in blocks] == sizes
    every = np.concatenate([np.zeros(0, int), *blocks])
    assert len(np.unique(every)) == len(every) <= rest
    assert len(sizes) <= max(rounds - 1, 0)
    assert all(size <= int(np.ceil(fraction * rest)) for size in sizes)


def test_the_reach_bounds_every_choice_of_rows():
    case = Case(rounds=4)
    rng = np.random.default_rng(1)
    rows = case.given.rest[np.concatenate(case.given.blocks)]
    common, count = case.given.columns, len(case.columns)
    assert turn_columns(case.columns, case.rest, L2).reach == 0
    for _ in range(20):
        some = rows[rng.random(len(rows)) < rng.random()]
        matrix = common.T @ common + some.T @ some + (count + len(some)) * case.given.penalty
        assert np.linalg.eigvalsh(matrix / count)[-1] <= 2.0**case.given.reach + 1e-9


def test_rows_far_out_are_drawn_in():
    rows = draw_in_rows(np.array([[1e6, 0.0], [3.0, 4.0]]))
    assert rows[0].tolist() == [2.0**FARTHEST_BITS - 1, 0.0]
    assert rows[1].tolist() == [3.0, 4.0]


def test_gaps_are_told_even_if_few():
    known = np.ones((200, 2), dtype=bool)
    known[0, 1] = False
    assert count_twentieths(known) == (STEPS, STEPS - 1)


def test_sizes_that_do_not_fit_are_refused():
    ours = {"rows": 40, "rest": 5, "columns": 3, "reach": 1}
    theirs = {"rows": 40, "parts": 4, "columns": 2, "classes 0": 0, "classes 1": 3}
    known = {f"known {i}": 20 for i in range(3)}
    made = Sizes.of({"A": ours, "B": theirs | known}, "A", "B")
    assert made.units.tolist() == [0, 1, 1]
    for wrong in ({"rows": 41}, {"known 3": 20}, {"known 0": 0}, {"columns": 3}, {"parts": 9}):
        with pytest.raises(ProtocolError):
            Sizes.of({"A": ours, "B": theirs | known | wrong}, "A", "B")
    with pytest.raises(ProtocolError):
        Sizes.of({"A": ours | {"reach": 40}, "B": theirs | known}, "A", "B")
