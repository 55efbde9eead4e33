"""Bags on shares: the right numbers whatever the table, the same with masks as without."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from tests.pu.pu_cases import federation, people
from vfsl.channel import Transcript, count_rounds, run_together
from vfsl.crypto.shares import Session, Shared
from vfsl.crypto.words import to_words
from vfsl.data import PartyTable
from vfsl.draws import PrivateSeed
from vfsl.errors import BoundExceeded, ConfigError, PeerFailed, ProtocolError
from vfsl.estimators import LogisticRegression
from vfsl.parts import Part, Roles
from vfsl.pu import VFPU, BagLogistic, bag_plan, shared_bags
from vfsl.pu.bag_plan import (
    LONGEST,
    FeatureWords,
    LabelWords,
    Plan,
    find_directions,
    round_randomly,
    scale_rows,
)
from vfsl.pu.bags import make_batch
from vfsl.pu.shared_bags import (
    DISCLOSURES,
    SUMS,
    choose,
    form_systems,
    multiply_rows,
    multiply_symmetric,
    train_models,
)
from vfsl.pu.shared_tasks import score_side, train_side
from vfsl.store import Checkpoints

HOLDERS = ("B", "D", "E")


@dataclass(frozen=True, eq=False)
class Case:
    """Columns of all parties, the label holder's models, and what each party prepared of them."""

    plan: Plan
    features: dict
    label: LabelWords
    exact: np.ndarray  # scores of all rows and models by pooled least squares
    voters: np.ndarray

    @property
    def sums(self):
        return (self.exact * self.voters).sum(axis=1)

    def read(self, sums):
        return sums / 2.0 ** sum(self.plan.score_bits)


def make_columns(rng, rows, columns, kind):
    """Standardised columns that are easy or hard on the bounds."""
    made = rng.normal(size=(rows, columns))
    if kind == "alike":
        made[:, 1:] = made[:, :1] + 0.01 * made[:, 1:]
    if kind == "rare":
        made = (rng.random((rows, columns)) < 0.02).astype(float)
        made[0] = 1.0
    if kind == "dependent":
        made[:, -1] = made[:, 0] - made[:, 1]
    made = made - made.mean(axis=0)
    return made / np.maximum(made.std(axis=0), 1e-9)


def make_case(rows=120, widths=(4,), own=3, kind="plain", l2=0.01, seed=0, bags=4, share=0.2):
    """As the label holder and the feature holders would prepare it."""
    rng = np.random.default_rng(seed)
    columns = {p: make_columns(rng, rows, w, kind) for p, w in zip(HOLDERS, widths, strict=False)}
    columns["C"] = make_columns(rng, rows, own, "plain")
    signal = sum(one[:, :1].sum(axis=1) for one in columns.values()) + rng.normal(size=rows)
    known = signal > np.quantile(signal, 1 - share)
    batch = make_batch(known, known & ~known, ~known, bags=bags, folds=2, rng=rng)
    weights = batch.weights / batch.weights.mean(axis=0)
    turned = {p: find_directions(one) for p, one in columns.items()}
    plan = Plan(
        "C",
        rows,
        weights.shape[1],
        {p: one.shape[1] for p, one in columns.items()},
        {p: one.shape[1] for p, one in turned.items()},
        l2,
    )
    scaled = {p: scale_rows(one, turned[p], plan, p) for p, one in columns.items()}
    features = {p: FeatureWords.of(scaled[p], plan, rng) for p in plan.feature_holders}
    label = LabelWords.of(scaled["C"], known, weights, batch.voters, plan, rng)
    # What long rows were shortened to is what the pooled model sees, too.
    seen = {p: scaled[p] @ turned[p].T * plan.scale(p) for p in columns}
    matrix = np.hstack([*seen.values(), np.ones((rows, 1))])
    smallest = bag_plan.LEAST_PENALTY * plan.scale("B") ** 2
    penalty = max(4 * l2, smallest) * np.eye(matrix.shape[1])
    penalty[-1, -1] = 0
    solved = [
        np.linalg.lstsq(
            matrix.T @ (v[:, None] * matrix) / rows + penalty,
            matrix.T @ (v * np.where(known, 2.0, -2.0)) / rows,
            rcond=None,
        )[0]
        for v in weights.T
    ]
    return Case(plan, features, label, matrix @ np.array(solved).T, batch.voters)


def run(case, hide=True, transcript=None):
    """What every party gets: its piece of the weights, and the sums at the label holder."""
    parties = ("C", *case.plan.feature_holders)

    def play(channel):
        mine = {p: words for p, words in case.features.items() if p == channel.me}
        label = case.label if channel.me == "C" else None
        here = channel.within("bags", DISCLOSURES)
        with Session.join(here, parties, "K", hide=hide) as session:
            weights, sums = train_models(session, case.plan, mine, label)
            return weights.piece, sums.open("C", name=SUMS, about=("columns",))

    return run_together(dict.fromkeys((*parties, "K"), play), transcript=transcript)


def run_plain(case):
    weights, sums = train_models(Session.plain(), case.plan, case.features, case.label)
    return weights, sums.open(name=SUMS)


def check_close(case, sums, largest=5e-3):
    found, wanted, votes = case.read(sums), case.sums, case.voters.sum(axis=1)
    assert (sums[votes == 0] == 0).all()
    means = [values[votes > 0] / votes[votes > 0] for values in (found, wanted)]
    assert np.abs(means[0] - means[1]).max() < largest
    assert spearmanr(*means)[0] > 0.9999


# ---- the right numbers ----


@pytest.mark.parametrize("encrypted", [False, True], ids=["masked", "encrypted"])
@pytest.mark.parametrize("widths", [(4,), (3, 2), (2, 3, 2)], ids=str)
def test_on_shares_as_in_one_place_bit_for_bit(monkeypatch, widths, encrypted):
    monkeypatch.setattr(bag_plan, "ENCRYPTED_ROWS", 1 if encrypted else 10**9)
    case = make_case(widths=widths)
    weights, sums = run_plain(case)
    for hide in (True, False):
        found = run(case, hide)
        assert (found["C"][1] == sums).all()
        assert all(found[party][1] is None for party in found if party != "C")
        total = sum(found[party][0] for party in found if party != "K")
        assert (total == weights.piece).all()


@pytest.mark.parametrize("encrypted", [False, True], ids=["masked", "encrypted"])
@pytest.mark.parametrize("kind", ["plain", "alike", "rare", "dependent"])
@pytest.mark.parametrize("widths", [(6,), (3, 3)], ids=str)
def test_sums_are_those_of_pooled_models(monkeypatch, kind, widths, encrypted):
    monkeypatch.setattr(bag_plan, "ENCRYPTED_ROWS", 1 if encrypted else 10**9)
    case = make_case(rows=2000 if encrypted else 400, widths=widths, kind=kind, bags=8)
    check_close(case, run_plain(case)[1], 2e-2 if encrypted else 5e-3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.03, 0.5])
def test_few_and_many_positives(seed, share):
    case = make_case(rows=300, widths=(5,), own=1, seed=seed, share=share, bags=8)
    check_close(case, run_plain(case)[1])


@pytest.mark.parametrize("l2", [1e-3, 0.1, 10.0])
def test_other_penalties(l2):
    case = make_case(rows=300, widths=(5,), l2=l2, bags=8)
    check_close(case, run_plain(case)[1], 1e-2)


def test_without_a_penalty_it_is_as_with_the_smallest():
    case = make_case(rows=400, widths=(4,), kind="alike", l2=0.0, bags=8)
    check_close(case, run_plain(case)[1], 5e-2)


@pytest.mark.parametrize("encrypted", [False, True], ids=["masked", "encrypted"])
@pytest.mark.parametrize("widths", [(0, 3), (0,)], ids=str)
def test_columns_that_say_nothing(monkeypatch, widths, encrypted):
    """A feature holder without directions, beside one that has some, and alone."""
    monkeypatch.setattr(bag_plan, "ENCRYPTED_ROWS", 1 if encrypted else 10**9)
    case = make_case(widths=widths, own=2)
    found = run(case)["C"][1]
    assert (found == run_plain(case)[1]).all()
    check_close(case, found)


@pytest.mark.parametrize("own", [0, 1])
def test_a_label_holder_without_columns(own):
    case = make_case(widths=(3,), own=own)
    found = run(case)["C"][1]
    assert (found == run_plain(case)[1]).all()
    check_close(case, found)


def test_more_models_than_are_multiplied_at_once(monkeypatch):
    monkeypatch.setattr(bag_plan, "ENCRYPTED_ROWS", 1)
    monkeypatch.setattr(shared_bags, "_MODELS", 4)
    monkeypatch.setattr(shared_bags, "_BLOCK", 50)
    case = make_case(bags=7)
    found = run(case)["C"][1]
    assert (found == run_plain(case)[1]).all()
    check_close(case, found)


# ---- steps and bounds ----


@given(
    columns=st.integers(1, 400),
    own=st.integers(0, 50),
    rows=st.integers(2, 10**6),
    models=st.integers(1, 60),
    l2=st.sampled_from([0.0, 1e-6, 1e-3, 0.01, 1.0]),
)
@settings(deadline=None)
def test_every_plan_leaves_little_and_fits(columns, own, rows, models, l2):
    plan = Plan("C", rows, models, {"C": own, "B": columns}, {"C": own, "B": columns}, l2)
    assert plan.peaks[-1] >= 1 / bag_plan.REST
    assert len(plan.peaks) <= 13
    assert plan.reach("B") ** 2 < 2
    # The vector, at its longest before each product, times the peak and the matrix.
    for peak, factor in zip(plan.peaks[:-1], plan.factors, strict=False):
        vector = 2.0**plan.vector_bits / factor / np.sqrt(plan.penalty)
        assert vector * (peak + 1) * 2**bag_plan.POWER < 2.0**62
    assert min(plan.score_bits) >= 5


@given(st.integers(0, 2**32), st.integers(1, 4))
@settings(deadline=None, max_examples=30)
def test_eigenvalues_stay_between_the_ends(seed, parties):
    """Whatever rows and weights are: also those that are as long as they may be."""
    rng = np.random.default_rng(seed)
    rows, widths = 40, dict(zip("BDEF", rng.integers(1, 4, parties).tolist(), strict=False))
    plan = Plan("C", rows, 1, {"C": 2, **widths}, {"C": 2, **widths}, 0.01)
    columns = {
        p: scale_rows(rng.standard_cauchy((rows, w)) * 10, np.eye(w), plan, p)
        for p, w in plan.columns.items()
    }
    x = np.hstack([columns[p] for p in plan.feature_holders])
    z = np.column_stack([columns["C"], np.ones(rows)])
    v = rng.exponential(size=rows) ** 3
    v = (v / v.sum())[:, None]
    penalty = plan.penalty_of("C") * np.diag([1, 1, 0])
    own = np.linalg.inv(np.linalg.cholesky((v * z).T @ z + penalty)).T
    cross = (v * x).T @ z @ own
    values = np.linalg.eigvalsh((v * x).T @ x - cross @ cross.T)
    assert values.min() > -1e-12
    assert values.max() < 2


def test_rows_are_shortened_only_beyond_the_limit():
    plan = Plan("C", 3, 1, {"C": 1, "B": 4}, {"C": 1, "B": 4}, 0.01)
    columns = np.array([[LONGEST] * 4, [2 * LONGEST, 0, 0, 0], [4 * LONGEST, 0, 0, 0]])
    found = scale_rows(columns, np.eye(4), plan, "B") * plan.scale("B")
    np.testing.assert_allclose(found[:2], columns[:2])
    np.testing.assert_allclose(found[2], columns[1])


@given(st.integers(0, 2**32))
def test_random_rounding_is_right_in_the_mean(seed):
    rng = np.random.default_rng(seed)
    values = np.repeat(rng.normal(size=3), 4000).reshape(3, -1)
    found = round_randomly(values, 4, rng) / 16
    assert np.abs(found - values).max() < 1 / 16
    assert np.abs(found.mean(axis=1) - values[:, 0]).max() < 0.1 / 16
    assert (round_randomly(np.zeros(50), 7, rng) == 0).all()


def test_directions_leave_out_what_others_say():
    columns = make_columns(np.random.default_rng(0), 50, 5, "dependent")
    found = find_directions(columns)
    assert found.shape == (5, 4)
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(columns @ found @ found.T, columns, atol=1e-9)


def test_systems_are_those_of_the_columns():
    case = make_case(widths=(3, 2), own=2)
    gram, cross, _ = form_systems(Session.plain(), case.plan, case.features, case.label)
    found = gram.open(name=SUMS) / 4.0**bag_plan.LIFTED
    bits = case.plan.gram_bits - case.plan.product_bits
    weights = case.label.weights / 2.0**bits
    cells = [case.features[p].cells / 2.0**case.plan.cell_bits for p in ("B", "D")]
    x = np.hstack(cells)
    for model, v in enumerate(weights.T):
        np.testing.assert_allclose(found[model], (v[:, None] * x).T @ x, atol=1e-4)
    assert np.abs(cross.open(name=SUMS)).max() < 1.5 * 2**bag_plan.LIFTED


# ---- products of their own ----


def run_program(program, parties=("C", "B", "D")):
    """What the program returns at each party, and the pieces' sum."""

    def play(channel):
        with Session.join(channel.within("x", DISCLOSURES), parties, "K") as session:
            return program(session).piece

    found = run_together(dict.fromkeys((*parties, "K"), play))
    return sum(found[party] for party in parties)


def own(session, owner, values):
    return values if session.has(owner) else None


@given(st.integers(0, 2**32), st.sampled_from([("C", "B"), ("C", "B", "D"), ("B", "C", "D", "E")]))
@settings(deadline=None, max_examples=10)
def test_chosen_values_add_up(seed, parties):
    rng = np.random.default_rng(seed)
    values, bits = rng.integers(-(2**30), 2**30, (7, 3)), rng.integers(0, 2, (7, 3), dtype=np.uint8)

    def program(session):
        shared = session.share("B", own(session, "B", values), (7, 3), 40)
        shared = shared + session.share("C", own(session, "C", values), (7, 3), 40)
        return choose(session, shared, "C", own(session, "C", bits))

    wanted = to_words((2 * values * bits).sum(axis=1))
    low = np.uint64((1 << 40) - 1)
    assert (run_program(program, parties) & low == wanted & low).all()
    assert (program(Session.plain()).piece == wanted).all()


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=10)
def test_symmetric_products(seed):
    rng = np.random.default_rng(seed)
    full = rng.integers(-(2**20), 2**20, (2, 4, 4))
    full = full + full.transpose(0, 2, 1)
    one, other = np.triu_indices(4)
    vector = rng.integers(-(2**20), 2**20, (2, 4))
    wanted = np.hstack([(full @ full)[:, one, other], (full @ vector[..., None])[..., 0]])

    def program(session):
        matrix = session.share("B", own(session, "B", full[:, one, other]), (2, 10))
        square, moved = multiply_symmetric(
            session, matrix, session.share("D", own(session, "D", vector), (2, 4))
        )
        return Shared(session, np.hstack([square.piece, moved.piece]))

    assert (run_program(program) == to_words(wanted)).all()
    assert (program(Session.plain()).piece == to_words(wanted)).all()


def test_products_of_rows():
    rng = np.random.default_rng(0)
    x, y = rng.integers(-99, 99, (5, 2)), rng.integers(-99, 99, (5, 3))

    def program(session):
        one = session.private("B", own(session, "B", x), (5, 2), 48)
        other = session.private("D", own(session, "D", y), (5, 3), 48)
        return multiply_rows(session, one, other)

    wanted = to_words((x[:, :, None] * y[:, None]).reshape(5, 6))
    low = np.uint64((1 << 48) - 1)
    assert (run_program(program) & low == wanted & low).all()
    assert (program(Session.plain()).piece == wanted).all()


# ---- what crosses ----


def test_rounds_and_bytes():
    transcript = Transcript()
    run(make_case(rows=500, widths=(8,), own=8, bags=20), transcript=transcript)
    assert count_rounds(transcript) <= 85
    assert sum(e.bytes for e in transcript.entries) < 4e6
    assert {e.receiver for e in transcript.entries} == {"B", "C"}


def test_masked_words_say_nothing_of_the_weights():
    """What the feature holder has of the label holder's row weights, and the same without masks."""
    case = make_case(rows=400, share=0.3)
    told = {}
    for hide in (True, False):
        transcript = Transcript(keep_views=True)
        run(case, hide, transcript)
        first = next(s for s in transcript.sights if s.sender == "C" and s.name.endswith("masked"))
        words = np.frombuffer(first.body[-400 * case.plan.models * 6 :], dtype=np.uint8)
        top = words.reshape(400, case.plan.models, 6)[..., 1:4].mean(axis=(1, 2))
        told[hide] = abs(spearmanr(top, case.label.weights.sum(axis=1))[0])
    assert told[False] > 0.5
    assert told[True] < 4 / np.sqrt(400)


# ---- tasks ----


def task_parts(frames, known, weights):
    """Parts of B and C; the label holder's has marks and weights."""
    tables = {p: PartyTable.from_frame(frames[p], party=p, id="id") for p in frames}
    rows = np.arange(len(known))
    parts = {p: Part(table, rows) for p, table in tables.items()}
    return parts | {"C": replace(parts["C"], target=known.astype(int), weights=weights)}


def run_task(parts, voters, base=None, scheme="shares", after=None):
    """Train at all parties, and let ``after`` go on with the shares."""
    base = base or BagLogistic()
    roles = Roles("C", tuple(p for p in parts if p != "C"), "K", scheme)

    def play(channel):
        rng = np.random.default_rng(0)
        part = parts.get(channel.me)
        done = train_side(channel, part, base, roles, rng, voters if channel.me == "C" else None)
        if after is None:
            return done
        return after(channel, part, None if done is None else done.share, base, roles)

    return run_together(dict.fromkeys(roles.everyone, play))


@pytest.fixture
def task():
    frames, _, known = people(rows=150)
    weights = np.random.default_rng(1).poisson(1.0, (150, 3)) + known[:, None].astype(float)
    return task_parts(frames, known, weights), np.ones((150, 3), dtype=bool)


def test_new_rows_get_the_mean_of_the_first_models(task):
    parts, _ = task
    sums = []
    for models in (1, 2):
        chosen = np.tile(np.arange(3) < models, (150, 1))
        done = run_task(parts, chosen)
        assert done["B"].sums is None
        assert done["K"] is None
        sums.append(done["C"].sums)

        def score(channel, part, share, base, roles, models=models):
            return score_side(channel, part, share, base, roles, models)

        scores = run_task(parts, chosen, after=score)
        assert scores["B"] is None
        np.testing.assert_allclose(scores["C"][:, 0], sums[-1] / models, atol=5e-3)
    assert np.abs(sums[0] - sums[1] / 2).max() > 0.05


def test_a_share_alone_is_uniform(task):
    one, two = (run_task(*task)["B"].share.state["pieces"] for _ in range(2))
    assert np.mean(np.asarray(one) == np.asarray(two)) < 0.01
    assert np.abs(np.asarray(one, dtype=float)).max() > 2.0**60


def test_other_bases_are_not_cut(task):
    found = run_task(*task, base=LogisticRegression(refine=0, l2=0.01))
    assert found["B"].share.state["limits"] == {}


def test_other_rows_are_refused(task):
    parts, voters = task
    parts = parts | {"B": replace(parts["B"], rows=parts["B"].rows[1:])}
    with pytest.raises((ProtocolError, PeerFailed), match="rows"):
        run_task(parts, voters)


def test_a_model_of_rounds_is_refused(task):
    def score(channel, part, share, base, roles):
        if share is not None:
            state = {k: v for k, v in share.state.items() if k != "pieces"}
            share = replace(share, state=state)
        return score_side(channel, part, share, base, roles, 1)

    with pytest.raises((ConfigError, PeerFailed), match="was not trained on shares"):
        run_task(*task, after=score)


def test_heavy_rows_are_refused():
    plan = Plan("C", 10_000, 1, {"C": 1, "B": 1}, {"C": 1, "B": 1}, 0.01)
    weights = np.zeros((10_000, 1))
    weights[0] = 10_000
    nobody = np.zeros(10_000, dtype=bool)
    with pytest.raises(BoundExceeded, match="times the average"):
        LabelWords.of(
            np.zeros((10_000, 1)), nobody, weights, nobody[:, None], plan, np.random.default_rng(0)
        )


def test_too_many_models_are_refused():
    with pytest.raises(BoundExceeded, match="too many for bags"):
        Plan("C", 100, 10**6, {"C": 1, "B": 10**4}, {"C": 1, "B": 10**4}, 1e-3)


# ---- whole searches ----


@pytest.mark.parametrize("names", ["B", "BD", "BDE"])
def test_searches_of_several_holders_agree(names):
    frames, _, known = people()
    columns = np.array_split([c for c in frames["B"].columns if c != "id"], len(names))
    parted = {p: frames["B"][["id", *own]] for p, own in zip(names, columns, strict=True)}
    found = [
        VFPU(rounds=4, folds=2).fit(federation(tables, known, scheme)).shares_["C"].state["logits"]
        for tables, scheme in ((parted | {"C": frames["C"]}, "auto"), (frames, "plain"))
    ]
    np.testing.assert_allclose(*found, atol=5e-3)


def test_auto_is_shares_and_other_schemes_train_in_rounds():
    frames, _, known = people(rows=120)
    used = []
    for scheme, base in (("auto", "lr"), ("plain", BagLogistic(protocol="rounds"))):
        fed = federation(frames, known, scheme)
        VFPU(base=base, rounds=2, folds=2).fit(fed)
        used.append({e.message for e in fed.transcript.entries})
        assert fed.record.steps[-1].settings["scheme"] == ("shares" if scheme == "auto" else scheme)
    assert "out-of-bag sums" in used[0]
    assert "opened gradient" not in used[0]
    assert "opened gradient" in used[1]
    with pytest.raises(ConfigError, match="protocol='shares' encrypts nothing"):
        VFPU(base=BagLogistic(protocol="shares")).fit(federation(frames, known, "bfv"))


def test_pieces_of_two_attempts_are_never_joined(tmp_path, monkeypatch):
    """The label holder keeps a task, the others lose it, and it fails before it keeps the second.

    The dealer draws anew each time: with the first pieces here and the second there, weights would
    be noise.
    """
    frames, _, known = people(rows=120)
    state = {party: tmp_path / party for party in "BC"}
    private = {party: PrivateSeed.of_simulation(party, 0) for party in "ABC"}

    class Stop(Exception):
        pass

    def fit(hear=None):
        fed = federation(
            frames, known, "auto", private=private | {"K": PrivateSeed.from_system("K")}
        )
        return VFPU(rounds=2, folds=2).fit(fed, state=state, on_event=hear), fed

    def stop(event):
        if event.stage.endswith("bags"):
            raise Stop

    with pytest.raises(Stop):
        fit(stop)
    (tmp_path / "B" / "vfpu" / "task-0.json").unlink()
    with monkeypatch.context() as patched:
        save = Checkpoints.save

        def fail(self, name, *rest):
            if "C" in self.folder.parts:
                raise Stop
            save(self, name, *rest)

        patched.setattr(Checkpoints, "save", fail)
        with pytest.raises(Stop):
            fit()
    assert (tmp_path / "B" / "vfpu" / "task-0.json").exists()
    found, fed = fit()
    wanted = VFPU(rounds=2, folds=2).fit(federation(frames, known, seed=0))
    np.testing.assert_allclose(
        found.predict_proba(fed), wanted.predict_proba(federation(frames, known)), atol=5e-3
    )
