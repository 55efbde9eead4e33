"""All models of a VFPU task on shares: their systems, solutions and votes in one exchange.

Holds   the label holder: columns, labels, and for each model row weights and votes; each feature
        holder: columns; the dealer (the key holder): seeds, no data.
Learns  the label holder: for each row the sum of its voters' scores. Everybody: how many rows,
        columns, independent directions and models there are. Nobody learns weights, gradients,
        scores of single models, who is positive, who trains or who votes.

Model t minimises mean(v (x·w + c − y)²) + λ |w|², where the label holder alone knows the row
weights v, which average 1, and y. It therefore eliminates its own columns and the constant before
anything is exchanged: in coordinates z in which its own penalised block is the unit matrix,

    (A + λ − K Kᵀ) w = r,    A = mean(v x xᵀ),  K = mean(v x zᵀ),  r = mean(v x (y − own fit)),

are the weights of the feature holders' columns x; its own follow from K and w. A needs products of
columns of one holder times v, K and r need columns of one holder times columns v z of the other:
products of private matrices. Every row of x is scaled to |x|² ≤ 2 by public numbers, so that the
eigenvalues of A − K Kᵀ lie between 0 and 2 whatever the data are, and Chebyshev polynomials of the
matrix give the solution with coefficients that are known beforehand. T_2k = 2 T_k² − 1 makes ten
products enough for degree 1024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from operator import add

import numpy as np

from vfsl.crypto import products, shares
from vfsl.crypto.products import Encrypted
from vfsl.crypto.shares import Private, Session, Shared, concatenate
from vfsl.crypto.words import WIDEST, Bits, Words, pack, pack_bits, unpack, unpack_bits
from vfsl.pu.bag_plan import (
    LIFTED,
    MARGIN,
    POWER,
    SCORE_WIDTH,
    SPARE,
    TARGET,
    WEIGHTS,
    FeatureWords,
    LabelWords,
    Plan,
)
from vfsl.values import Disclosure, Disclosures, Integers, Masked

SUMS = "out-of-bag sums"
TOTALS = "total scores"
DISCLOSURES: Disclosures = {
    **shares.DISCLOSURES,
    **products.DISCLOSURES,
    SUMS: Disclosure(
        Masked, "one sum of total scores over its voters for each row, to the label holder"
    ),
}
SCORE_DISCLOSURES: Disclosures = {
    **shares.DISCLOSURES,
    TOTALS: Disclosure(Masked, "the total score of each row, to the label holder"),
}

_FACTOR = 26  # bits of the last factor
_BLOCK = 1 << 17  # rows that are scored in one round
_MODELS = 32  # whose columns are multiplied in one round


# ---- the program that all run --------------------------------------------------------------------


def train_models(
    session: Session, plan: Plan, features: Mapping[str, FeatureWords], label: LabelWords | None
) -> tuple[Shared, Shared]:
    """Weights of all models, (models, directions), and for each row the sum of its voters' scores.

    Every party gives what it has. The directions are those of the feature holders in order, then
    the label holder's and the constant; bits behind the point are those of ``plan.score_bits``.
    """
    gram, cross, right = form_systems(session, plan, features, label)
    solved = solve_systems(session, plan, gram, cross, right)
    weights = join_weights(session, plan, solved, cross, label)
    scored = {party: words.scored for party, words in features.items()}
    if label is not None:
        scored[plan.label_holder] = label.scored
    votes = None if label is None else label.votes
    return weights, sum_votes(session, plan, weights, scored, votes)


def form_systems(
    session: Session, plan: Plan, features: Mapping[str, FeatureWords], label: LabelWords | None
) -> tuple[Shared, Shared, Shared]:
    """A (models, size, size), K (models, size, own) and r (models, size, 1) on shares.

    K and r have `LIFTED` and ``plan.vector_bits`` bits behind the point, A twice `LIFTED`.
    """
    multiply = multiply_encrypted if plan.encrypted else multiply_masked
    blocks, cross = multiply(session, plan, features, label)
    pairs = multiply_pairs(session, plan, features, label)
    gram, bits = _free(concatenate(blocks, axis=1)), plan.gram_bits
    if gram.width < WIDEST:
        gram, bits = gram.truncate(bits - LIFTED), LIFTED
    gram = (1 << (2 * LIFTED - bits)) * gram
    if pairs:
        short = concatenate(pairs, axis=1).truncate(plan.pair_sum_bits - LIFTED)
        gram = concatenate([gram, (1 << LIFTED) * short], axis=1)
    right = cross[..., -1:].truncate(plan.cross_bits - plan.vector_bits)
    cross = cross[..., :-1].truncate(plan.cross_bits - LIFTED)
    return gram[:, find_places(plan)], _free(cross), _free(right)


def _free(value: Shared) -> Shared:
    """The same without a bound by sizes: from here on theory bounds values far better."""
    return replace(value, bound=None)


def multiply_masked(
    session: Session, plan: Plan, features: Mapping[str, FeatureWords], label: LabelWords | None
) -> tuple[list[Shared], Shared]:
    """Cells of A by feature holder, (models, cells), and K beside r, (models, size, own + 1).

    Every matrix crosses once, masked.
    """
    holder, columns = plan.label_holder, plan.models * (plan.own + 1)

    def private(owner: str, values: Integers | None, count: int) -> Private:
        return session.private(owner, values, (plan.rows, count), plan.gram_bits + MARGIN)

    weights = private(holder, None if label is None else label.weights, plan.models)
    weighted = None if label is None else label.columns.reshape(plan.rows, columns)
    theirs = private(holder, weighted, columns)
    blocks, crosses = [], []
    for party in plan.feature_holders:
        words, size = features.get(party), plan.directions[party]
        products = private(party, None if words is None else words.products, count_pairs(size))
        cells = private(party, None if words is None else words.cells, size)
        blocks.append((products.T @ weights).T)
        crosses.append(cells.T @ theirs)
    return blocks, _by_model(crosses, plan)


def multiply_encrypted(
    session: Session, plan: Plan, features: Mapping[str, FeatureWords], label: LabelWords | None
) -> tuple[list[Shared], Shared]:
    """The same by encrypted products: row weights and columns cross once, under their owners' keys.

    What multiplies them, by far the most columns, does not cross.
    """
    holder, blocks, crosses = plan.label_holder, [], []
    widest = max(plan.feature_holders, key=plan.directions.__getitem__)
    product_bits, product_norm = plan.bound_products(widest)
    weights = Encrypted.features(
        session,
        holder,
        None if label is None else label.weights,
        (plan.rows, plan.models),
        plan.bound_weights().bits,
        norm=plan.bound_weights().norm,
        plain_bits=product_bits,
        plain_norm=product_norm,
        plain_columns=count_pairs(plan.directions[widest]),
    )
    for party in (one for one in plan.feature_holders if plan.directions[one]):
        words, size = features.get(party), plan.directions[party]
        cells = Encrypted.features(
            session,
            party,
            None if words is None else words.cells,
            (plan.rows, size),
            plan.bound_cells(party).bits,
            norm=plan.bound_cells(party).norm,
            plain_bits=plan.bound_weighted().bits,
            plain_norm=plan.bound_weighted().norm,
            plain_columns=plan.models * (plan.own + 1),
            receivers=(holder,),
        )
        products = None if words is None else words.products
        product_bits, product_norm = plan.bound_products(party)
        blocks.append(
            weights.times(party, products, count_pairs(size), product_bits, norm=product_norm)
        )
        crosses.append(_multiply_weighted(cells, plan, label))
    return blocks, _by_model(crosses, plan)


def _multiply_weighted(cells: Encrypted, plan: Plan, label: LabelWords | None) -> Shared:
    """One holder's columns times those of all models, some models at a time: there are many."""
    bits, norm = plan.bound_weighted()
    found = []
    for start in range(0, plan.models, _MODELS):
        count = min(_MODELS, plan.models - start)
        theirs, columns = None, count * (plan.own + 1)
        if label is not None:
            theirs = label.columns[:, start : start + count].reshape(plan.rows, columns)
            theirs = theirs.astype(np.int64)
        found.append(cells.times(plan.label_holder, theirs, columns, bits, norm=norm))
    return concatenate(found, axis=1)


def _by_model(crosses: Sequence[Shared], plan: Plan) -> Shared:
    """Products with all models' columns, as (models, size, own + 1)."""
    joined = concatenate(crosses).reshape(plan.size, plan.models, plan.own + 1)
    return joined.map(lambda piece: piece.transpose(1, 0, 2))


def multiply_pairs(
    session: Session, plan: Plan, features: Mapping[str, FeatureWords], label: LabelWords | None
) -> list[Shared]:
    """Cells of A for every two feature holders, (models, cells): three factors at three parties.

    Products of two holders' cells are formed on shares, row by row, and row weights multiply these.
    """
    if len(plan.feature_holders) < 2:
        return []
    width = plan.pair_sum_bits + MARGIN
    theirs = None if label is None else label.pair_weights
    weights = session.private(plan.label_holder, theirs, (plan.rows, plan.models), width)
    cells = {}
    for party in plan.feature_holders:
        words, shape = features.get(party), (plan.rows, plan.directions[party])
        # The label holder multiplies no cells itself.
        cells[party] = session.private(
            party,
            None if words is None else words.pairs,
            shape,
            width,
            receivers=plan.feature_holders,
        )
    return [
        weights.T @ multiply_rows(session, cells[one], cells[other])
        for one, other in combinations(plan.feature_holders, 2)
    ]


def count_pairs(size: int) -> int:
    """Products of two of so many columns, or of one with itself."""
    return size * (size + 1) // 2


def find_places(plan: Plan) -> Integers:
    """Where in the list of all holders' products each cell of A is, (size, size)."""
    places = np.zeros((plan.size, plan.size), dtype=np.int64)
    starts, at, number = {}, 0, 0
    for party in plan.feature_holders:
        starts[party], size = at, plan.directions[party]
        one, other = np.triu_indices(size)
        places[at + one, at + other] = places[at + other, at + one] = number + np.arange(len(one))
        at, number = at + size, number + len(one)
    for one_party, other_party in combinations(plan.feature_holders, 2):
        shape = plan.directions[one_party], plan.directions[other_party]
        block = number + np.arange(math.prod(shape)).reshape(shape)
        lines = slice(starts[one_party], starts[one_party] + shape[0])
        columns = slice(starts[other_party], starts[other_party] + shape[1])
        places[lines, columns], places[columns, lines] = block, block.T
        number += math.prod(shape)
    return places


def multiply_rows(session: Session, one: Private, other: Private) -> Shared:
    """All products of two holders' cells of the same row, (rows, columns · columns), on shares.

    x y = x (y − b) at x's owner, (x − a) b at y's owner, a b at the dealer.
    """
    rows, shape = one.shape[0], (one.shape[0], one.shape[1] * other.shape[1])

    def times(x: Words, y: Words) -> Words:
        return np.asarray(x[:, :, None] * y[:, None, :]).reshape(rows, -1)

    if len(session.parties) == 1:
        return Shared(session, times(one.own, other.own), one.width)
    piece = session.deal(shape, lambda: times(one.mask, other.mask), one.width)
    if session.has(one.owner):
        piece = piece + times(one.own, other.masked)
    if session.has(other.owner):
        piece = piece + times(one.masked, other.mask)
    return Shared(session, piece, one.width)


def solve_systems(
    session: Session, plan: Plan, gram: Shared, cross: Shared, right: Shared
) -> Shared:
    """(A + λ − K Kᵀ)⁻¹ r for targets ±2, with `WEIGHTS` bits behind the point.

    With τ_k = T_k at 0, x_2k = 2 τ_k / τ_2k (τ_k + T_k) x_k solves the system up to T_2k / τ_2k.
    """
    size = plan.size
    one, other = np.triu_indices(size)
    unit = np.eye(size, dtype=np.int64)[one, other]
    bits = 2 * LIFTED
    rest = (gram - cross @ cross.T).limit(3 << bits)
    power = -rest[:, one, other].truncate(bits - POWER)
    power = _free(power) + unit * round((1 - SPARE * plan.penalty) * 2**POWER)
    vector = right[..., 0]
    for number, peak in enumerate(plan.peaks[:-1], 2):
        square, moved = multiply_symmetric(session, power, vector)
        moved = moved + round(peak * 2**POWER) * vector
        if number < len(plan.peaks):
            square = 2 * square - (unit << (2 * POWER))
            both = concatenate([square, moved], axis=-1).truncate(POWER)
            power, vector = both[:, : len(one)], both[:, len(one) :]
        else:
            vector = moved.truncate(POWER)
    factor = round(TARGET * plan.factors[-1] * 2**_FACTOR)
    solved: Shared = factor * vector
    return solved.truncate(plan.vector_bits + _FACTOR - WEIGHTS)[..., None]


def multiply_symmetric(session: Session, matrix: Shared, vector: Shared) -> tuple[Shared, Shared]:
    """M M and M x of symmetric matrices and vectors in one round.

    Of matrices only the upper triangles exist, (models, pairs), and M is masked once.
    """
    size = vector.shape[-1]
    one, other = np.triu_indices(size)
    places = np.zeros((size, size), dtype=np.int64)
    places[one, other] = places[other, one] = np.arange(len(one))
    a, b = session.draw(matrix.shape), session.draw(vector.shape)
    e, f = session.reveal([(matrix.piece, WIDEST, a), (vector.piece, WIDEST, b)])

    def times(x: Words, y: Words) -> Words:
        return np.asarray((x @ y)[:, one, other])

    def apply(x: Words, y: Words) -> Words:
        return np.asarray((x @ y[..., None])[..., 0])

    def square_mask() -> Words:
        mask = a.total[:, places]
        return times(mask, mask)

    square = session.deal(matrix.shape, square_mask)
    moved = session.deal(vector.shape, lambda: apply(a.total[:, places], b.total))
    if session.holds:
        shown, own = e[:, places], a.own[:, places]
        square = square + times(shown, own) + times(own, shown)
        moved = moved + apply(shown, b.own) + apply(own, f)
        if session.leads:
            square, moved = square + times(shown, shown), moved + apply(shown, f)
    return Shared(session, square), Shared(session, moved)


def join_weights(
    session: Session, plan: Plan, solved: Shared, cross: Shared, label: LabelWords | None
) -> Shared:
    """The weights of all scaled columns, (models, directions): the label holder's follow."""
    shape = (plan.models, plan.own, plan.own)
    own, back = (None, None) if label is None else (label.fit, label.back)
    fit = session.share(plan.label_holder, own, (*shape[:2], 1))
    fit = round(TARGET) * fit - (cross.T @ solved).truncate(LIFTED)
    theirs = session.share(plan.label_holder, back, shape) @ fit
    both = concatenate([(1 << WEIGHTS) * solved, theirs], axis=1)[..., 0]
    return both.truncate(2 * WEIGHTS - plan.score_bits[1])


# ---- scores and votes ----------------------------------------------------------------------------


def score_privately(
    session: Session, plan: Plan, weights: Shared, scored: Mapping[str, Integers], rows: slice
) -> Shared:
    """Total scores of some rows, (rows, models); ``scored`` are the columns that one has."""
    terms, at = [], 0
    count = len(range(*rows.indices(plan.rows)))
    for party in (*plan.feature_holders, plan.label_holder):
        size = plan.own if party == plan.label_holder else plan.directions[party]
        own = scored.get(party)
        columns = None if own is None else own[rows]
        matrix = session.private(party, columns, (count, size), SCORE_WIDTH)
        terms.append((matrix, weights.T[at : at + size].narrow(SCORE_WIDTH)))
        at += size
    return add_products(session, terms)


def add_products(session: Session, terms: Sequence[tuple[Private, Shared]]) -> Shared:
    """The sum of private matrices times shared arrays: the dealer's words are those of one."""
    found = session._multiply(terms)
    piece = np.asarray(reduce(add, (piece for piece, _, _ in found)))
    width = min(width for _, _, width in found)
    if len(session.parties) > 1:
        make = [make for _, make, _ in found]
        piece = piece + session.deal(
            piece.shape, lambda: np.asarray(reduce(add, (one() for one in make))), width
        )
    return Shared(session, piece, width)


def sum_votes(
    session: Session,
    plan: Plan,
    weights: Shared,
    scored: Mapping[str, Integers],
    votes: Bits | None,
) -> Shared:
    """For each row the sum of its voters' scores."""
    sums = []
    for start in range(0, plan.rows, _BLOCK):
        rows = slice(start, min(start + _BLOCK, plan.rows))
        scores = score_privately(session, plan, weights, scored, rows)
        chosen = None if votes is None else votes[rows]
        sums.append(choose(session, scores, plan.label_holder, chosen))
    return concatenate(sums)


def choose(session: Session, values: Shared, owner: str, bits: Bits | None) -> Shared:
    """Sums over the last axis of the values that a holder's private bits choose.

    The owner shows its bits c masked, m = c ⊕ a. Then c s = m s + a (1 − 2 m) s: the first term is
    known where s is, and for the second the others send (1 − 2 m) s − b to the owner; the dealer
    deals a b.
    """
    shape, width = values.shape, values.width
    if len(session.parties) == 1:
        return Shared(session, _add_up(values.piece * _to_words(bits)), width)
    others = [party for party in session.parties if party != owner]
    flip, masks = session.draw_bits(shape, owner), session.draw(shape, *others)
    dealt = session.deal(
        shape[:-1], lambda: _add_up(flip.parity.astype(np.uint64) * masks.total), width
    )
    if not session.holds:
        return Shared(session, dealt, width)
    if session.has(owner):
        shown: Bits = np.asarray(bits, dtype=np.uint8) ^ flip.own
        for party in others:
            session.link.send(party, "masked", Masked(pack_bits(shown)))
        piece = _add_up(values.piece * _to_words(bits))
        for party in others:
            came = session.receive_bytes(party, "masked", math.prod(shape) * width // 8)
            piece = piece + _add_up(unpack(came, width, shape) * _to_words(flip.own))
        return Shared(session, piece + dealt, width)
    content = session.receive_bytes(owner, "masked", -(-math.prod(shape) // 8))
    seen = unpack_bits(content, shape).astype(np.uint64)
    turned = (np.uint64(1) - (seen << np.uint64(1))) * values.piece
    session.link.send(owner, "masked", Masked(pack(turned - masks.own, width)))
    return Shared(session, _add_up(seen * values.piece) + dealt, width)


def _add_up(words: Words) -> Words:
    return np.asarray(words.sum(axis=-1, dtype=np.uint64))


def _to_words(bits: Bits | None) -> Words:
    return np.asarray(bits).astype(np.uint64)
