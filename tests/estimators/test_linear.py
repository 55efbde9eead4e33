"""Federated linear regression: lossless, the same everywhere, and what each party may see."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression as PooledLeastSquares
from sklearn.linear_model import Ridge

from vfsl.channel import Transcript, run_together
from vfsl.data import PartyTable
from vfsl.errors import BoundExceeded, ConfigError, DataError, ProtocolError
from vfsl.estimators import LinearRegression, Part, Roles
from vfsl.estimators.linear import DISCLOSURES
from vfsl.values import Ciphertext

ROLES = Roles("C", ("B",), "K")


def tables(rows=240, parties=("B",), seed=0):
    """Feature tables of the parties and of C, a target, all in the same row order."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 2))
    ids = [f"person-{i}" for i in range(rows)]
    made, target = {}, rng.normal(size=rows)
    for party in (*parties, "C"):
        numbers = common @ rng.normal(size=(2, 3)) + rng.normal(size=(rows, 3))
        frame = pd.DataFrame(numbers, columns=[f"{party}{j}" for j in range(3)])
        frame[f"{party}-group"] = rng.choice(["x", "y", "z"], rows)
        target = target + numbers @ rng.normal(size=3) + (frame[f"{party}-group"] == "y")
        frame["id"] = ids
        made[party] = PartyTable.from_frame(frame, party=party, id="id")
    return made, np.asarray(target) * 3 + 40


def parts_of(made, target, rows=None):
    rows = np.arange(len(target)) if rows is None else rows
    return {
        party: Part(table, rows, target=target if party == "C" else None)
        for party, table in made.items()
    }


def train(model, parts, roles=ROLES, scheme=("plain", 128), **how):
    jobs = {
        party: partial(model.train, part=parts.get(party), role=roles, scheme=scheme)
        for party in roles.everyone
    }
    return run_together(jobs, **how)


def score(model, parts, shares, roles=ROLES, scheme=("plain", 128), **how):
    jobs = {
        party: partial(
            model.score, part=parts.get(party), share=shares[party], role=roles, scheme=scheme
        )
        for party in roles.everyone
    }
    return run_together(jobs, **how)[roles.label_holder]


def pooled_matrix(made):
    frames = [pd.get_dummies(table.frame, dtype=float) for table in made.values()]
    return pd.concat(frames, axis=1).to_numpy()


@pytest.mark.parametrize("parties", [("B",), ("B", "D"), ("B", "D", "E")])
def test_predictions_equal_pooled_least_squares(parties):
    made, target = tables(parties=parties)
    roles = Roles("C", parties, "K")
    parts, model = parts_of(made, target), LinearRegression()
    shares = train(model, parts, roles)
    predicted = score(model, parts, shares, roles)
    reference = PooledLeastSquares().fit(pooled_matrix(made), target).predict(pooled_matrix(made))
    np.testing.assert_allclose(predicted, reference, atol=1e-5)
    assert shares["C"].stop_reason in ("converged", "precision")
    unexplained = ((target - reference) ** 2).mean() / target.var()
    assert 2 * shares["C"].rounds[-1]["loss"] == pytest.approx(unexplained, abs=1e-6)


def test_ridge_equals_the_pooled_ridge():
    made, target = tables()
    for name, table in made.items():
        made[name] = table.without([f"{name}-group"])
    parts, model = parts_of(made, target), LinearRegression(l2=0.3)
    predicted = score(model, parts, train(model, parts))
    matrix = pooled_matrix(made)
    matrix = (matrix - matrix.mean(0)) / matrix.std(0)
    reference = Ridge(alpha=0.3 * len(target)).fit(matrix, target).predict(matrix)
    np.testing.assert_allclose(predicted, reference, atol=1e-5)


def test_same_weights_everywhere_bit_for_bit():
    made, target = tables(rows=130)
    parts, model = parts_of(made, target), LinearRegression(l2=0.01, max_rounds=6)
    weak = ("paillier", 112)
    runs = [
        train(model, parts),
        train(model, parts, on="processes"),
        train(model, parts, sealed=True),
        train(model, parts, scheme=weak),
        train(model, parts, scheme=weak, on="processes"),
    ]
    for shares in runs[1:]:
        for party in ("B", "C"):
            assert shares[party].state["weights"] == runs[0][party].state["weights"]
        assert shares["C"].rounds == runs[0]["C"].rounds
    predictions = [
        score(model, parts, runs[0]),
        score(model, parts, runs[0], scheme=weak),
        score(model, parts, runs[0], on="processes"),
    ]
    for other in predictions[1:]:
        assert (other == predictions[0]).all()


def test_row_order_and_unknown_labels():
    """Rows without a label stay out of training but are predicted; the order is the plan's."""
    made, target = tables()
    rows = np.random.default_rng(1).permutation(240)[:200]
    partial_target = target[rows].copy()
    partial_target[:30] = np.nan
    parts, model = parts_of(made, partial_target, rows), LinearRegression()
    predicted = score(model, parts, train(model, parts))
    matrix = pooled_matrix(made)[rows]
    reference = PooledLeastSquares().fit(matrix[30:], target[rows][30:]).predict(matrix)
    np.testing.assert_allclose(predicted, reference, atol=1e-5)


# ---- who sees what -------------------------------------------------------------------------------


def views(made, target, scheme=("plain", 128)):
    transcript = Transcript(keep_views=True)
    parts, model = parts_of(made, target), LinearRegression(max_rounds=3, tolerance=0.0)
    shares = train(model, parts, scheme=scheme, transcript=transcript)
    score(model, parts, shares, scheme=scheme, transcript=transcript)
    return transcript


def readable(transcript, party):
    """What a party sees of the others: all names and sizes, and the content of what is not hidden.

    The "public key" and what is encrypted or masked under it are random in every run.
    """
    return [
        (s.sender, s.name, s.kind, len(s.body), s.body if s.kind in ("plain", "aggregate") else b"")
        for s in sorted(transcript.sights, key=lambda sight: sight.sender)
        if s.receiver == party and not s.name.endswith("public key")
    ]


def changed(made, party, column):
    frame = made[party].to_frame().reset_index(drop=True)
    frame.loc[7, column] += 1.0
    return {**made, party: PartyTable.from_frame(frame, party=party, id="id")}


@pytest.mark.parametrize(("party", "column"), [("B", "B0"), ("C", "C1")])
def test_the_key_holder_sees_nothing_of_a_cell(party, column):
    made, target = tables()
    before, after = views(made, target), views(changed(made, party, column), target)
    assert readable(before, "K") == readable(after, "K")


def test_the_key_holder_sees_nothing_of_a_label():
    made, target = tables()
    other = target.copy()
    other[3] += 5
    assert readable(views(made, target), "K") == readable(views(made, other), "K")


def test_a_feature_holder_reads_nothing_of_the_label_holder_but_steps():
    made, target = tables()
    other = target.copy()
    other[3] += 5
    before, after = (
        [line for line in readable(views(made, t), "B") if not line[1].endswith("/step")]
        for t in (target, other)
    )
    assert before == after


def test_every_message_has_its_declared_kind():
    made, target = tables()
    transcript = views(made, target)
    for entry in transcript.entries:
        declared = DISCLOSURES[entry.message].type
        assert entry.kind == getattr(declared, "kind", "plain")
    raw = {(e.sender, e.receiver, e.message) for e in transcript.entries if e.kind == "plain"}
    assert raw == {
        ("K", "B", "public key"),
        ("K", "C", "public key"),
        ("C", "B", "labelled rows"),
        ("B", "K", "columns"),
        ("C", "K", "columns"),
        ("B", "C", "columns"),
        ("C", "K", "another round"),
        ("C", "K", "rows"),
    }


def test_markers_never_cross():
    """Column names, categories, ids and a telling number stay at home, even without encryption."""
    made, target = tables()
    frame = made["B"].to_frame()
    frame = frame.rename(columns={"B0": "MARKER-COLUMN"})
    frame["B-group"] = frame["B-group"].replace({"x": "MARKER-CATEGORY"})
    made["B"] = PartyTable.from_frame(frame, party="B", id="id")
    cell = np.float64(frame["B1"].iloc[5]).tobytes()
    for sight in views(made, target).sights:
        for marker in (b"MARKER", b"person-", cell):
            assert marker not in sight.body


def test_prediction_opens_only_the_total():
    made, target = tables(parties=("B", "D"))
    roles = Roles("C", ("B", "D"), "K")
    parts, model = parts_of(made, target), LinearRegression()
    shares = train(model, parts, roles)
    transcript = Transcript()
    score(model, parts, shares, roles, transcript=transcript)
    opened = [e for e in transcript.entries if e.message == "opened total"]
    assert [(e.sender, e.receiver) for e in opened] == [("K", "C")]
    assert {e.kind for e in transcript.entries if e.sender in ("B", "D")} == {"ciphertext"}


# ---- faults --------------------------------------------------------------------------------------


def test_too_many_columns_for_the_rows_are_refused():
    made, target = tables(rows=40)
    with pytest.raises(DataError, match=r"6 encoded columns .* only 40 .* at least 60"):
        train(LinearRegression(), parts_of(made, target))


def test_too_few_labels_are_refused():
    made, target = tables()
    target[1:] = np.nan
    with pytest.raises(DataError, match="1 aligned rows with a known label"):
        train(LinearRegression(), parts_of(made, target))


def test_a_constant_target_and_constant_columns_are_defined():
    made, _ = tables()
    frame = made["B"].to_frame().assign(B0=1.0)
    made["B"] = PartyTable.from_frame(frame, party="B", id="id")
    parts, model = parts_of(made, np.full(240, 7.0)), LinearRegression()
    np.testing.assert_allclose(score(model, parts, train(model, parts)), 7.0, atol=1e-6)


def test_extreme_targets_are_refused_before_they_wrap():
    made, target = tables(rows=20_000)
    target = np.zeros(20_000)
    target[0] = 1e9  # 141 standard deviations: outside the fixed-point range
    with pytest.raises(BoundExceeded):
        train(LinearRegression(), parts_of(made, target))


@pytest.mark.parametrize(("name", "value"), [("l2", -1.0), ("max_rounds", 0), ("tolerance", -1.0)])
def test_parameters_are_checked(name, value):
    with pytest.raises(ConfigError, match=f"The {name} parameter of LinearRegression"):
        LinearRegression(**{name: value})._check()


def test_one_party_cannot_play_two_roles():
    with pytest.raises(ConfigError, match="a party of its own"):
        Roles("C", ("B",), "B")


def test_a_ciphertext_of_another_length_names_its_sender():
    from vfsl.crypto import scheme
    from vfsl.estimators.linear import _load

    public, _ = scheme("plain").generate()
    value = public.encrypt(np.arange(3)).to_wire()
    assert isinstance(value, Ciphertext)
    with pytest.raises(ProtocolError, match="'B' sent"):
        _load(public, value, "B", 4)
