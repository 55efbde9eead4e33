"""The laws of opinions, their fusion and the loss, in numpy and in torch; trust in parties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vfsl.errors import ConfigError
from vfsl.evidence.opinion import (
    FUSIONS,
    Opinion,
    choose_trust,
    conflict,
    discount,
    evidence_of,
    first_trust,
    fuse,
    fuse_two,
    known_fraction,
    losses,
    opinion_of,
    plausibility,
    probability,
)

torch = pytest.importorskip("torch")
QUICK = settings(max_examples=60, deadline=None)


def evidences(parties=2):
    """Evidence of some parties for the same rows, from none to a lot."""
    shapes = st.tuples(st.just(parties), st.integers(1, 4), st.integers(2, 6))
    cells = st.one_of(st.just(0.0), st.floats(1e-6, 2.2e4))
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=cells))


def opinions_of(evidence):
    return [opinion_of(one) for one in evidence]


@QUICK
@given(evidences(3), st.sampled_from(FUSIONS))
def test_masses_are_a_distribution(evidence, how):
    for opinion in [*opinions_of(evidence), fuse(opinions_of(evidence), how)]:
        assert (opinion.belief >= 0).all()
        assert (opinion.uncertainty > 0).all()
        assert opinion.belief.sum(axis=1) + opinion.uncertainty == pytest.approx(1, abs=1e-12)


@QUICK
@given(evidences(2), st.sampled_from(FUSIONS))
def test_a_vacuous_opinion_is_neutral(evidence, how):
    own = opinion_of(evidence[0])
    empty = opinion_of(np.zeros_like(evidence[0]))
    assert empty.uncertainty == pytest.approx(1)
    for fused in (fuse([own, empty], how), fuse([empty, own], how)):
        assert fused.belief == pytest.approx(own.belief, abs=1e-15)
        assert fused.uncertainty == pytest.approx(own.uncertainty, abs=1e-12)


@QUICK
@given(evidences(2))
def test_two_parties_fuse_alike_in_both_orders_and_both_rules(evidence):
    first, second = opinions_of(evidence)
    one = fuse_two(first, second)
    for other in (fuse_two(second, first), fuse([second, first], "symmetric")):
        assert one.belief == pytest.approx(other.belief, abs=1e-12)
        assert one.uncertainty == pytest.approx(other.uncertainty, abs=1e-12)


def test_full_conflict_is_full_uncertainty():
    sure = np.array([[1e9, 0.0, 0.0]])
    fused = fuse_two(opinion_of(sure), opinion_of(sure[:, ::-1].copy()))
    assert fused.uncertainty == pytest.approx(1, abs=1e-8)
    assert conflict(opinion_of(sure), opinion_of(sure)) == pytest.approx(0, abs=1e-12)


def test_a_fusion_by_hand():
    # e = (2, 0) and (0, 1), K = 2: b¹ = (1/2, 0), u¹ = 1/2; b² = (0, 1/3), u² = 2/3.
    fused = fuse_two(opinion_of(np.array([[2.0, 0.0]])), opinion_of(np.array([[0.0, 1.0]])))
    assert fused.belief[0] == pytest.approx([1 / 3, 1 / 6])
    assert fused.uncertainty[0] == pytest.approx(1 / 2)  # 1/3 of ignorance and 1/6 of conflict
    assert probability(fused)[0] == pytest.approx([7 / 12, 5 / 12])
    assert losses(fused, np.array([0]))[0] == pytest.approx(np.log(12 / 7))


def test_dempster_by_hand():
    # The same opinions: 1/3 and 1/6 of belief, 1/3 of ignorance; 1/6 of conflict is divided away.
    pair = [opinion_of(np.array([[2.0, 0.0]])), opinion_of(np.array([[0.0, 1.0]]))]
    fused = fuse(pair, "dempster")
    assert fused.belief[0] == pytest.approx([2 / 5, 1 / 5])
    assert fused.uncertainty[0] == pytest.approx(2 / 5)
    # Three: (2/5, 1/5; 2/5) with (1/2, 0; 1/2) agree on 1/5 + 1/5 + 1/5, 1/10 and 1/5; in all 9/10.
    three = fuse([*pair, pair[0]], "dempster")
    assert three.belief[0] == pytest.approx([6 / 9, 1 / 9])
    assert three.uncertainty[0] == pytest.approx(2 / 9)


def test_in_strong_conflict_dempster_is_sure_of_what_nobody_believes():
    """Zadeh's case, for which the paper replaces Dempster's rule: two parties are nearly sure.

    One says class 0, the other class 2, and both give class 1 one percent.
    """
    first = Opinion(np.array([[0.99, 0.01, 0.0]]), np.array([0.0]))
    second = Opinion(np.array([[0.0, 0.01, 0.99]]), np.array([0.0]))
    wrong = fuse([first, second], "dempster")
    assert wrong.belief[0] == pytest.approx([0, 1, 0])
    assert wrong.uncertainty[0] == pytest.approx(0)
    for how in ("sequence", "symmetric"):
        right = fuse([first, second], how)
        assert right.belief[0] == pytest.approx([0, 0.0001, 0])
        assert right.uncertainty[0] == pytest.approx(0.9999)
        assert probability(right)[0] == pytest.approx([1 / 3] * 3, abs=1e-4)
    # Of evidence, with a little ignorance left, both keep a doubt; Yager's is the larger by far.
    sure = [opinion_of(np.array([row])) for row in ([9900.0, 100, 0], [0, 100.0, 9900])]
    dempster, yager = (fuse(sure, how) for how in ("dempster", "sequence"))
    assert dempster.uncertainty[0] < 1e-3
    assert yager.uncertainty[0] > 0.99
    assert dempster.belief[0].sum() > 0.999


def test_without_conflict_both_rules_agree():
    pair = [opinion_of(np.array([[4.0, 0.0]])), opinion_of(np.array([[1.0, 0.0]]))]
    one, other = (fuse(pair, how) for how in ("dempster", "sequence"))
    assert one.belief == pytest.approx(other.belief)
    assert one.uncertainty == pytest.approx(other.uncertainty)


@QUICK
@given(evidences(3))
def test_dempster_depends_on_no_order(evidence):
    three = opinions_of(evidence)
    turned = fuse([three[2], three[0], three[1]], "dempster")
    nested = fuse([fuse(three[:2], "dempster"), three[2]], "dempster")
    for other in (turned, nested):
        assert fuse(three, "dempster").belief == pytest.approx(other.belief, abs=1e-9)


def test_three_opinions_depend_on_the_order_unless_fused_symmetrically():
    rng = np.random.default_rng(0)
    three = opinions_of(rng.exponential(5, (3, 400, 10)))
    turned = [three[2], three[0], three[1]]
    order = [probability(fuse(these)).argmax(1) for these in (three, turned)]
    assert (order[0] != order[1]).mean() > 0.2
    even = [probability(fuse(these, "symmetric")) for these in (three, turned)]
    assert even[0] == pytest.approx(even[1], abs=1e-12)


@QUICK
@given(evidences(3), st.sampled_from(FUSIONS))
def test_probability_is_the_mean_of_the_dirichlet(evidence, how):
    fused = fuse(opinions_of(evidence), how)
    classes = evidence.shape[2]
    alpha = fused.belief * (classes / fused.uncertainty)[:, None] + 1  # b S + 1 with S = K / u
    assert probability(fused) == pytest.approx(alpha / alpha.sum(axis=1, keepdims=True), rel=1e-9)
    # Σ_k y_k (log S − log α_k), the loss as the paper writes it, with S = K / u.
    literal = np.log(classes / fused.uncertainty) - np.log(alpha[:, 0])
    assert losses(fused, np.zeros(len(alpha), dtype=int)) == pytest.approx(literal, abs=1e-8)


def test_discounting_ends_in_a_vacuous_opinion():
    opinion = opinion_of(np.array([[3.0, 1.0]]))
    assert discount(opinion, 1.0).belief == pytest.approx(opinion.belief)
    half = discount(opinion, 0.5)
    assert half.belief.sum() + half.uncertainty[0] == pytest.approx(1)
    assert discount(opinion, 0.0).uncertainty[0] == 1


@pytest.mark.parametrize("form", ["exp", "softplus", "relu"])
def test_evidence_is_not_negative_and_finite_also_for_wild_outputs(form):
    wild = np.array([-1e30, -3.0, 0.0, 2.0, 1e4])
    made = evidence_of(wild, form)
    assert (made >= 0).all()
    assert np.isfinite(made).all()
    assert np.allclose(made, evidence_of(torch.tensor(wild), form).numpy())


def test_exp_evidence_is_clamped():
    assert evidence_of(np.array([50.0]))[0] == pytest.approx(np.exp(10))


def test_unknown_forms_are_refused():
    with pytest.raises(ConfigError, match="evidence parameter of RISA must be one of exp"):
        evidence_of(np.zeros(2), "square")
    with pytest.raises(ConfigError, match="fusion parameter of RISA must be one of sequence"):
        fuse([Opinion(np.zeros((1, 2)), np.ones(1))], "random")


@QUICK
@given(evidences(3), st.sampled_from(FUSIONS))
def test_torch_and_numpy_agree(evidence, how):
    fused = fuse(opinions_of(evidence), how)
    in_torch = fuse([opinion_of(torch.tensor(one)) for one in evidence], how)
    assert np.allclose(fused.belief, in_torch.belief.numpy(), atol=1e-12)
    assert np.allclose(fused.uncertainty, in_torch.uncertainty.numpy(), atol=1e-12)


def _loss(logits, labels, how):
    fused = fuse([opinion_of(evidence_of(one)) for one in logits], how)
    return losses(fused, labels).sum()


@pytest.mark.parametrize("how", FUSIONS)
def test_the_gradient_of_the_loss_equals_finite_differences(how):
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 2, (3, 5, 4))
    labels = rng.integers(0, 4, 5)
    tensor = torch.tensor(logits, requires_grad=True)
    _loss(tensor, torch.tensor(labels), how).backward()
    step = 1e-6
    for place in np.ndindex(logits.shape):
        moved = [logits.copy(), logits.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        slope = (_loss(moved[0], labels, how) - _loss(moved[1], labels, how)) / (2 * step)
        assert tensor.grad[place].item() == pytest.approx(slope, abs=1e-6)


def test_extreme_evidence_keeps_loss_and_gradient_finite():
    logits = torch.tensor([[[10.0, -10.0]], [[-10.0, 10.0]]], requires_grad=True)
    loss = _loss(logits, torch.tensor([1]), "sequence")
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


# ---- trust ---------------------------------------------------------------------------------------


def _opinions(labels, right, rng, strength=8.0, classes=3):
    """Opinions of a party that is right about that fraction of rows."""
    said = np.where(rng.random(len(labels)) < right, labels, rng.integers(0, classes, len(labels)))
    return opinion_of(strength * np.eye(classes)[said])


def test_a_party_that_hurts_is_discounted_and_one_that_helps_is_not():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    good, also = _opinions(labels, 0.9, rng), _opinions(labels, 0.85, rng)
    noise = _opinions(labels, 0.0, rng)
    assert choose_trust([good, also], labels) == [1.0, 1.0]
    trust = choose_trust([good, noise], labels)
    assert trust[0] == 1.0
    assert trust[1] <= 0.25
    turned = choose_trust([noise, good], labels)
    assert turned[1] == 1.0
    assert turned[0] <= 0.25
    four = choose_trust([good, noise, also, noise], labels)
    assert four[0] == 1.0
    assert max(four[1], four[3]) < four[2]


def test_trust_in_another_party_must_be_earned_by_more_than_a_few_rows():
    rng = np.random.default_rng(0)
    labels = np.array([0, 1])
    trust = choose_trust([_opinions(labels, 1.0, rng), _opinions(labels, 1.0, rng)], labels)
    assert trust == [1.0, 0.5]


def test_trust_begins_with_what_a_party_knows_alone():
    labels = np.array([0, 1])
    # b = (1/2, 0), u = 1/2: plausible 1 against 1/2, and 4/5 against 1/5 at temperature 1/2.
    said = opinion_of(np.array([[2.0, 0.0], [0.0, 2.0]]))
    fraction = 1 - np.log(5 / 4) / np.log(2)
    assert known_fraction(said, labels) == pytest.approx(fraction)
    silent = opinion_of(np.zeros((2, 2)))
    assert known_fraction(silent, labels) == pytest.approx(0)
    assert known_fraction(said, labels[::-1]) == 0
    # Two rows of the twelve that count: a sixth of twice the fraction beyond a quarter.
    begin = first_trust([silent, said, silent], labels)
    assert begin == pytest.approx([1.0, 0.25 + fraction / 3, 0.25])


def test_plausibility_by_hand():
    # b = (1/2, 0), u = 1/2 and b = (0, 1/3), u = 2/3: plausible 1·2/3 against 1/2·1.
    said = [opinion_of(np.array([[2.0, 0.0]])), opinion_of(np.array([[0.0, 1.0]]))]
    assert plausibility(said, [1.0, 1.0])[0] == pytest.approx([4 / 7, 3 / 7])
    assert plausibility(said, [1.0, 0.0])[0] == pytest.approx([2 / 3, 1 / 3])
