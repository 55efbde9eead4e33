"""Linear models: what each party sees, by changing cells and planting markers."""

import numpy as np
import pytest

from tests.estimators.linear_cases import (
    PAILLIER,
    PLAIN,
    LinearInRounds,
    LogisticInRounds,
    classes,
    parts_of,
    scores,
    tables,
    train,
)
from vfsl.channel import Transcript, wire
from vfsl.crypto import make_scheme
from vfsl.data import PartyTable
from vfsl.errors import ProtocolError
from vfsl.estimators import (
    Roles,
    exchange,
    least_squares,
    linear,
)
from vfsl.estimators.exchange import SCORE_BITS, load_array


def views(made, target, model=None, roles=PLAIN, weights=None):
    transcript = Transcript(keep_views=True)
    model = model or LinearInRounds(max_rounds=3, tolerance=0.0)
    parts = parts_of(made, target, weights=weights)
    shares = train(model, parts, roles, transcript=transcript)
    scores(model, parts, shares, roles, transcript=transcript)
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


def open_plain(body):
    """The numbers of a message that the plain scheme does not hide."""
    return np.asarray(wire.decode(body)[1].payload["values"], dtype=np.float64)


def changed(made, party, column):
    frame = made[party].to_frame().reset_index(drop=True)
    frame.loc[7, column] += 1.0
    return {**made, party: PartyTable.from_frame(frame, party=party, id="id")}


@pytest.mark.parametrize(("party", "column"), [("B", "B0"), ("C", "C1")])
def test_the_key_holder_sees_nothing_of_a_cell(party, column):
    made, target = tables()
    before, after = views(made, target), views(changed(made, party, column), target)
    assert readable(before, "K") == readable(after, "K")


def test_the_key_holder_sees_nothing_of_a_label_or_weight():
    made, target = tables()
    other, weights, heavier = target.copy(), np.ones(240), np.ones(240)
    other[3] += 5
    heavier[5] = 2.0
    one = views(made, target, weights=weights)
    for two in (views(made, other, weights=weights), views(made, target, weights=heavier)):
        assert readable(one, "K") == readable(two, "K")


def test_a_feature_holder_reads_nothing_of_labels_and_weights_but_steps():
    """Not even which or how many rows have weight: bags stay at the label holder."""
    made, target = tables()
    label = classes(target)
    model = LogisticInRounds(refine=0, max_rounds=3, tolerance=0.0)
    bag, other_bag = np.zeros(240), np.zeros(240)
    bag[:120], other_bag[60:200] = 1.0, 2.0  # other rows, and another number of them
    first = views(made, label, model, weights=bag)
    for second in (
        views(made, label, model, weights=other_bag),
        views(made, 1 - label, model, weights=bag),
    ):
        seen = [
            [line for line in readable(view, "B") if not line[1].endswith("/step")]
            for view in (first, second)
        ]
        assert seen[0] == seen[1]


def test_refinement_is_the_only_time_the_label_holder_sees_scores():
    made, target = tables()
    label = classes(target)
    strict = views(made, label, LogisticInRounds(refine=0, max_rounds=3))
    refined = views(made, label, LogisticInRounds(refine=2, max_rounds=6))
    opened = [
        sum(e.message == "opened total" and "/fit/" in e.name for e in view.entries)
        for view in (strict, refined)
    ]
    assert opened == [0, 2]


@pytest.mark.parametrize(("noise", "words"), [(0.1, "with noise of 0.1 logits"), (0.0, "exact")])
def test_the_ledger_says_how_exact_a_look_is(noise, words):
    made, target = tables()
    model = LogisticInRounds(refine=1, max_rounds=4, look_noise=noise)
    view = views(made, classes(target), model)
    facts = {e.fact for e in view.entries if e.message == "opened total" and "/fit/" in e.name}
    (fact,) = facts
    assert fact.startswith("the total score of each row")
    assert words in fact


def test_feature_holders_add_the_noise_of_a_look_themselves():
    """What leaves B is its score and noise: without encryption the label holder reads no more."""
    made, target = tables()
    found = {}
    for noise in (0.0, 0.1):
        model = LogisticInRounds(refine=1, max_rounds=4, look_noise=noise, label_noise=0.0)
        sights = views(made, classes(target), model).sights
        (body,) = [s.body for s in sights if s.name.endswith("fit/stage 0/scores")]
        found[noise] = open_plain(body) / 2**SCORE_BITS
    difference = found[0.1] - found[0.0]
    assert 0.08 < difference.std() < 0.12
    assert abs(difference.mean()) < 0.03


def test_every_message_has_its_declared_kind():
    made, target = tables()
    transcript = views(made, target)
    declared = linear.DISCLOSURES | exchange.TOTALS | least_squares.DISCLOSURES
    for entry in transcript.entries:
        assert entry.kind == getattr(declared[entry.message].type, "kind", "plain")
    raw = {(e.sender, e.receiver, e.message) for e in transcript.entries if e.kind == "plain"}
    to_all = {
        ("C", to, name) for to in ("B", "K") for name in ("models", "weighted", "another round")
    }
    assert raw == to_all | {
        ("K", "B", "public key"),
        ("K", "C", "public key"),
        ("C", "B", "labelled rows"),
        ("B", "K", "columns"),
        ("C", "K", "columns"),
        ("B", "C", "columns"),
        ("C", "B", "columns"),
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
    roles = Roles("C", ("B", "D"), "K", "plain")
    parts, model = parts_of(made, target), LinearInRounds()
    shares = train(model, parts, roles)
    transcript = Transcript()
    scores(model, parts, shares, roles, transcript=transcript)
    opened = [e for e in transcript.entries if e.message == "opened total"]
    assert [(e.sender, e.receiver) for e in opened] == [("K", "C")]
    assert {e.kind for e in transcript.entries if e.sender in ("B", "D")} == {"ciphertext"}


@pytest.mark.parametrize("roles", [PLAIN, PAILLIER], ids=["plain", "paillier"])
def test_the_key_holder_opens_uniform_values(roles):
    """Chi-square over the low byte of everything it returns, in many rounds of one gradient."""
    made, target = tables(rows=130)
    transcript = views(made, target, LinearInRounds(max_rounds=6, tolerance=0.0), roles)
    bodies = [s.body for s in transcript.sights if s.sender == "K" and s.kind == "masked"]
    # The masked numbers fill the tail of each message; its last eight bytes are one of them.
    tail = np.array([list(body[-8:-1]) for body in bodies]).ravel()
    assert len(tail) > 80
    counts = np.bincount(tail // 32, minlength=8)
    statistic = ((counts - len(tail) / 8) ** 2 / (len(tail) / 8)).sum()
    assert statistic < 40  # 7 degrees of freedom: p < 1e-5 beyond this


def test_a_ciphertext_of_another_shape_names_its_sender():
    public, _ = make_scheme("plain").generate()
    value = public.encrypt(np.arange(3)).to_wire()
    with pytest.raises(ProtocolError, match="'B' sent"):
        load_array(public, value, "B", (4,))
