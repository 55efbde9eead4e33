"""The largest of two holders' shared numbers, which nobody learns.

Holds, learns: as in session.py. `find_largest` opens how numbers compare, in an order that nobody
knows: `shuffle` moves them by a permutation of the first holder's stream and then by one of the
second's, of which each knows its own only. If all numbers are different, every outcome is equally
likely, so the comparisons tell nothing (Hamada, Kikuchi, Ikarashi, Chida and Takahashi,
"Practically Efficient Multi-party Sorting Protocols from Comparison Sort Algorithms"). The
permutations are those of shared_sums.py, after Chase, Ghosh and Poburinnaya.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from vfsl.crypto.comparing import multiply_terms
from vfsl.crypto.session import Exchange, Mask, no_bits
from vfsl.crypto.words import Bits, Words, lowest, pack, unpack
from vfsl.values import Array, Masked

_CHAIN = 6  # digits up to which one round is enough
_GROUP = 4  # digits that are joined in a round, where there are more
_STAGE = 100  # comparisons of a node that the rounds of a further stage are worth

# Public numbers, the dealer's numbers, how many bits they have and how many a digit has.
Comparison = tuple[Words, Callable[[], Words], int, int]


# ---- comparing -----------------------------------------------------------------------------------


def find_less(session: Exchange, jobs: Sequence[Comparison]) -> list[Bits]:
    """Pieces of the bits: whether public numbers are below the dealer's; all jobs in same rounds.

    As `comparing.compare`, with fewer bytes for short numbers.
    """
    state = [_look_up(session, *job) for job in jobs]
    while any(len(smaller) > 1 for smaller, _ in state):
        open_jobs = [at for at, (smaller, _) in enumerate(state) if len(smaller) > 1]
        terms, bits = zip(*(_plan_join(*state[at]) for at in open_jobs), strict=True)
        made = multiply_terms(session, [(b, t.all) for b, t in zip(bits, terms, strict=True)])
        for at, plan, products in zip(open_jobs, terms, made, strict=True):
            state[at] = plan.join(*state[at], products)
    return [np.asarray(smaller[0]) for smaller, _ in state]


def _look_up(
    session: Exchange, shown: Words, hidden: Callable[[], Words], length: int, base: int
) -> tuple[Bits, Bits]:
    """Whether each digit of the public numbers is below, and equal to, that of the dealer's."""
    digits, shape = -(-length // base), shown.shape
    values = np.arange(1 << base, dtype=np.uint64)

    def cut(numbers: Words) -> Words:
        parts = [(numbers >> np.uint64(base * i)) & lowest(base) for i in range(digits)]
        return np.stack(parts)

    def tabulate() -> Bits:
        theirs = cut(hidden())[..., None]
        # Whether the lowest digit is equal is never asked.
        return np.concatenate([values < theirs, (values == theirs)[1:]])

    table = session.deal_bits((2 * digits - 1, *shape, 1 << base), tabulate)
    if not session.holds:
        return no_bits((digits, *shape)), no_bits((digits, *shape))
    at = cut(shown)[..., None].astype(np.int64)
    places = np.concatenate([at, at[1:]])
    found = np.take_along_axis(table, places, -1)[..., 0]
    equal = np.concatenate([np.zeros_like(found[:1]), found[digits:]])
    return found[:digits], equal


class _Join:
    """How digits are joined in one round: which products are needed, and what to make of them."""

    def __init__(self, digits: int) -> None:
        step = digits if digits <= _CHAIN else _GROUP
        self._groups = [range(low, min(low + step, digits)) for low in range(0, digits, step)]
        self.all: list[tuple[int, ...]] = []
        self._less: list[list[int]] = []
        self._equal: list[int | None] = []
        for group in self._groups:
            last, parts = group[-1], []
            for at in group[:-1]:
                parts.append(len(self.all))
                self.all.append((at, *(digits + i for i in range(at + 1, last + 1))))
            self._less.append(parts)
            self._equal.append(None)
            if group[0] and len(group) > 1:
                self._equal[-1] = len(self.all)
                self.all.append(tuple(digits + i for i in group))

    def join(self, smaller: Bits, same: Bits, products: list[Bits]) -> tuple[Bits, Bits]:
        less, equal = [], []
        for group, parts, whole in zip(self._groups, self._less, self._equal, strict=True):
            bit = smaller[group[-1]]
            for part in parts:
                bit = bit ^ products[part]
            less.append(bit)
            # A digit by itself stays; of the lowest group equality is never asked.
            equal.append(same[group[0]] if whole is None else products[whole])
        return np.stack(less), np.stack(equal)


def _plan_join(smaller: Bits, equal: Bits) -> tuple[_Join, Bits]:
    return _Join(len(smaller)), np.concatenate([smaller, equal])


def find_signs(session: Exchange, words: Words, bits: int) -> Bits:
    """Pieces of the bits: whether shared numbers, below 2^bits in size, are negative."""
    width = -(-(bits + 1) // 8) * 8
    mask = session.draw(words.shape)
    piece = words + np.uint64(1 << bits) if session.leads else words
    (shown,) = session.reveal([(piece, width, mask)])
    top = deal_top(session, mask, bits)
    (less,) = find_less(
        session, [(shown & lowest(bits), lambda: hide(mask) & lowest(bits), bits, 4)]
    )
    return negate(session, shown, bits) ^ top ^ less


def hide(mask: Mask) -> Words:
    """What a shown word has less than the value, at the dealer: value = shown − hidden."""
    return np.uint64(0) - mask.total


def deal_top(session: Exchange, mask: Mask, bits: int) -> Bits:
    """Pieces of one bit of what was hidden."""
    return session.deal_bits(
        mask.own.shape, lambda: ((hide(mask) >> np.uint64(bits)) & np.uint64(1)).astype(np.uint8)
    )


def negate(session: Exchange, shown: Words, bits: int) -> Bits:
    """A piece of the opposite of a public bit."""
    if not session.leads:
        return np.zeros(shown.shape, dtype=np.uint8)
    return (1 - ((shown >> np.uint64(bits)) & np.uint64(1))).astype(np.uint8)


def open_bits(session: Exchange, bits: Bits) -> Bits:
    """Shared bits, known to all holders."""
    return session.reveal_bits(bits, Mask(no_bits(bits.shape), ()))


# ---- an order that nobody knows ------------------------------------------------------------------


def shuffle(session: Exchange, words: Words, width: int) -> Words:
    """Pieces of the same words (groups, items, k), the items of each group in a new order."""
    first, second = session.parties
    words = _permute(session, words, width, first, second)
    return _permute(session, words, width, second, first)


def _permute(session: Exchange, words: Words, width: int, mover: str, other: str) -> Words:
    """By an order of the mover's stream: the other sends its pieces masked, the dealer moves the
    masks alike."""
    mask, drawn = session.draw(words.shape, other), session.draw(words.shape[:2], mover)

    def move(values: Words) -> Words:
        keys = drawn.total if session.deals else drawn.own
        order = np.argsort(keys, axis=1, kind="stable")[:, :, None]
        return np.take_along_axis(values, order, axis=1)

    own = session.deal(words.shape, lambda: move(mask.total), width)
    if session.me == other:
        session.link.send(mover, "masked", Masked(pack(words - mask.own, width)))
    elif session.me == mover:
        came = session.receive_bytes(other, "masked", words.size * width // 8)
        own = own + move(words + unpack(came, width, words.shape))
    return own


# ---- the largest ---------------------------------------------------------------------------------


def find_largest(session: Exchange, keys: Words, bits: int) -> Array:
    """The place of the largest key of each group, (groups,), known to all holders.

    ``keys`` (groups, items) are different, not negative, below 2^bits, and shuffled. In each stage
    items are cut into small sets, in which all pairs are compared.
    """
    groups = len(keys)
    places = np.broadcast_to(np.arange(keys.shape[1]), keys.shape)
    for size in plan_stages(keys.shape[1]):
        count = places.shape[1]
        sets = [range(low, min(low + size, count)) for low in range(0, count, size)]
        pairs = np.array([pair for one in sets for pair in combinations(one, 2)], dtype=np.int64)
        one, two = (np.take_along_axis(keys, places[:, at], axis=1) for at in pairs.T)
        loses = open_bits(session, find_signs(session, one - two, bits)).astype(bool)
        wins = np.zeros((groups, count), dtype=np.int64)
        for at, (left, right) in enumerate(pairs):
            wins[:, right] += loses[:, at]
            wins[:, left] += ~loses[:, at]
        best = [wins[:, one.start : one.stop].argmax(axis=1) + one.start for one in sets]
        places = np.take_along_axis(places, np.stack(best, axis=1), axis=1)
    return np.asarray(places[:, 0])


@lru_cache(maxsize=64)
def plan_stages(items: int) -> tuple[int, ...]:
    """Sizes of the sets of each stage: few comparisons, in few stages."""

    def cost(sizes: tuple[int, ...]) -> int:
        left, total = items, 0
        for size in sizes:
            full, rest = divmod(left, size)
            total += full * size * (size - 1) // 2 + rest * (rest - 1) // 2
            left = full + bool(rest)
        return total + _STAGE * len(sizes) if left == 1 else 1 << 60

    if items < 2:
        return ()
    best: tuple[int, ...] = (items,)
    for size in range(2, min(items, 24)):
        best = min(best, (size, *plan_stages(-(-items // size))), key=cost)
    return best
