"""Sums of a feature holder's candidates in shares, and how they reach the label holder nameless.

Holds   a feature holder: columns, a key of its own; the label holder: (g, h) of all rows, the
        feature holder's runs of bins under that key; the dealer, who is the key holder: seeds, and
        how runs add up to candidates, no data.
Learns  the label holder: for each node the sums of (g, h) of nameless candidates of at least ten
        rows, in an order that is drawn anew for each node. The feature holder: nothing. The dealer:
        how many rows, bins and nodes there are, and the order in which candidates are shown.

A run is a 0/1 column: which rows lie in consecutive bins of one column. All runs are encrypted once
per training. For each node the label holder multiplies them by its plain (g, h) of the node's rows
(crypto/products.py): both hold random words that add up to the exact sums. The sums of a sibling
are those of the parent less those of the child, word by word.

A candidate sends one run to the left, and missing cells perhaps. To show candidates in an order
that only the feature holder knows, the label holder sends its words masked; the feature holder adds
them to its own, adds runs up, permutes, and returns what may be seen; the dealer has permuted the
masks alike. That is the share translation of Chase, Ghosh and Poburinnaya, "Secret-Shared Shuffle",
with a dealer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.crypto import products, shares
from vfsl.crypto.products import Encrypted
from vfsl.crypto.session import absent
from vfsl.crypto.shares import Session
from vfsl.crypto.words import Words, pack, to_signed, unpack
from vfsl.errors import ProtocolError
from vfsl.estimators.exchange import receive_count
from vfsl.estimators.trees.protocol import MOST_NODES, MOST_TREES, NO_MORE
from vfsl.estimators.trees.splits import Candidates, row_limit
from vfsl.parts import Roles
from vfsl.values import Array, Disclosure, Disclosures, Integers, Masked

DISCLOSURES: Disclosures = {
    **shares.DISCLOSURES,
    **products.DISCLOSURES,
    "sizes": Disclosure(
        dict, "how many rows, columns, bins and candidates the sender has, or plain columns at once"
    ),
    "runs": Disclosure(
        np.ndarray,
        "to the dealer, or where no sums are shown to the label holder: how many bins and "
        "candidates columns have",
    ),
    "best": Disclosure(
        Masked, "for each node how good the sender's best candidate is, not which one it is"
    ),
    "chosen candidates": Disclosure(
        Masked, "which of the receiver's own candidates split the chosen nodes"
    ),
    "shown": Disclosure(
        Masked,
        "sums of (g, h) over at least ten rows for each nameless, shuffled candidate",
    ),
}

WIDTH = 32  # bits of a word that crosses: sums have 29, see splits.FOLD_BITS
_CELLS_AT_ONCE = 1 << 23  # of plain columns that are multiplied together
MOST_RUNS = 1 << 24
NONE = -1


# ---- runs: the 0/1 columns that are encrypted ----------------------------------------------------


@dataclass(frozen=True)
class Runs:
    """How candidates are made of runs of bins: the sum of a candidate is that of one run or two.

    ``column``, ``low`` and ``high`` say which codes of which column make a run; ``parts`` are the
    places of each candidate's runs, (candidates, 2), the second NONE if there is one only.
    """

    column: Array
    low: Array
    high: Array
    parts: Array

    @classmethod
    def of(cls, candidates: Candidates) -> Runs:
        width, column = candidates.bins.width, candidates.column
        base = column * width
        left = np.stack([column, candidates.start - base, candidates.stop - base], axis=1)
        gap = candidates.extra - base
        missing = np.stack([column, gap, gap + 1], axis=1)
        extra = candidates.extra >= 0
        distinct, places = np.unique(
            np.concatenate([left, missing[extra]]), axis=0, return_inverse=True
        )
        parts = np.full((len(left), 2), NONE, dtype=np.int64)
        parts[:, 0] = places.reshape(-1)[: len(left)]
        parts[extra, 1] = places.reshape(-1)[len(left) :]
        of, low, high = distinct.T
        return cls(of, low, high, parts)

    def __len__(self) -> int:
        return len(self.column)

    def find(self, codes: Array) -> Integers:
        """Which rows lie in which run, (rows, runs)."""
        cells = codes[:, self.column]
        inside = (cells >= self.low.astype(codes.dtype)) & (cells < self.high)
        return inside.astype(np.int64)


def add_runs(words: Words, parts: Array) -> Words:
    """Words of candidates (nodes, candidates, 2) from those of runs (nodes, runs, 2)."""
    more = parts[:, 1] != NONE
    summed = words[:, parts[:, 0]]
    summed[:, more] += words[:, parts[more, 1]]
    return summed


def read_parts(value: object, sender: str, runs: int, candidates: int) -> Array:
    """How a feature holder's runs add up, checked by the dealer."""
    parts = expect_array(value, sender=sender, name="runs", holds="integer", shape=(candidates, 2))
    if (parts < NONE).any() or (parts >= runs).any() or (parts[:, 0] == NONE).any():
        raise ProtocolError(f"Party {sender!r} has candidates of no known runs.", sender)
    return parts


# ---- one feature holder and the label holder -----------------------------------------------------


@dataclass(frozen=True, eq=False)
class PairSums:
    """One side of summing a feature holder's candidates with the label holder's (g, h).

    The label holder, the feature holder ``owner`` and the dealer run the same steps.
    """

    session: Session
    owner: str
    columns: int
    shape: tuple[int, int]  # how many runs and candidates
    parts: Array | None  # not at the label holder
    encrypted: Encrypted | None  # None where there are no columns
    bits: int = 1  # of plain values

    @classmethod
    def begin(
        cls,
        session: Session,
        *,
        codes: Array | None = None,
        candidates: Candidates | None = None,
        rows: int = 0,
        plain_columns: int = 0,
        row_bits: Callable[[int], int] | None = None,
    ) -> PairSums:
        """Exchange sizes and encrypt the runs.

        The feature holder gives codes and candidates; the label holder how many rows it has and
        about how many plain columns it will multiply by. ``row_bits`` says how many bits plain
        values have; without it sums are to be shown, and the dealer learns how runs add up.
        """
        leader, owner = session.parties
        runs = None if candidates is None else Runs.of(candidates)
        sizes = {"rows": rows, "plain columns": plain_columns}
        if codes is not None and candidates is not None and runs is not None:
            sizes = {"rows": len(codes), "columns": codes.shape[1]}
            sizes |= {"runs": len(runs), "candidates": len(candidates)}
        told = session.agree(sizes if session.holds else None)
        rows, columns, count, offered = (
            told[owner].get(name, 0) for name in ("rows", "columns", "runs", "candidates")
        )
        if told[leader].get("rows") != rows or max(count, offered) > MOST_RUNS:
            raise ProtocolError(
                f"Party {owner!r} has {rows} rows and {count} runs, party {leader!r} "
                f"{told[leader].get('rows')} rows.",
                owner,
            )
        if not count:
            return cls(session, owner, columns, (0, 0), None, None)
        parts = None if runs is None else runs.parts
        bits = row_limit(rows).bit_length() if row_bits is None else row_bits(rows)
        if row_bits is not None:
            pass
        elif session.me == owner:
            session.link.send(session.dealer, "runs", parts)
        elif session.deals:
            parts = read_parts(session.link.receive(owner, "runs"), owner, count, offered)
        encrypted = Encrypted.features(
            session,
            owner,
            None if runs is None or codes is None else runs.find(codes),
            (rows, count),
            1,
            plain_bits=bits,
            plain_columns=max(told[leader].get("plain columns", 0), 1),
        )
        # The owner's columns stay in its table; only its key is needed from here on.
        encrypted = replace(encrypted, own=None)
        return cls(session, owner, columns, (count, offered), parts, encrypted, bits)

    @cached_property
    def rows(self) -> int:
        return 0 if self.encrypted is None else self.encrypted.layout.rows

    def sum(
        self, count: int, make: Callable[[slice], Integers] | None = None, width: int = WIDTH
    ) -> Words:
        """One's words of the sums of that many nodes, (nodes, runs, 2).

        ``make`` gives the label holder's plain columns of some of the nodes, (rows, 2 · nodes).
        """
        if self.encrypted is None:
            return absent((count, 0, 2))
        leader, bits = self.session.parties[0], self.bits
        step, made = max(_CELLS_AT_ONCE // (2 * self.rows), 1), []
        for start in range(0, count, step):
            nodes = slice(start, min(start + step, count))
            size = nodes.stop - nodes.start
            plain = None if make is None else make(nodes)
            words = self.encrypted.times(leader, plain, 2 * size, bits, width=width).piece
            made.append(words.reshape(-1, size, 2).swapaxes(0, 1))
        return np.concatenate(made) if made else absent((0, self.shape[0], 2))

    def shuffle(self, words: Words) -> tuple[Words, Array]:
        """One's words of all candidates in an order drawn for each node, (nodes, candidates, 2).

        ``words`` are those of runs. The order, (nodes, candidates), is the feature holder's and the
        dealer's; the label holder gets an empty one.
        """
        session, nodes, (runs, candidates) = self.session, len(words), self.shape
        leader = session.parties[0]
        mask = session.draw((nodes, runs, 2), leader)
        drawn = session.draw((nodes, candidates), self.owner)
        order = np.zeros((0, candidates), dtype=np.int64)
        if session.me != leader:
            keys = drawn.total if session.deals else drawn.own
            order = np.argsort(keys, axis=1, kind="stable")
        own = session.deal((nodes, candidates, 2), lambda: self._reorder(mask.total, order), WIDTH)
        if session.me == leader:
            session.link.send(self.owner, "masked", Masked(pack(words - mask.own, WIDTH)))
        elif session.me == self.owner:
            size = words.size * WIDTH // 8
            came = unpack(session.receive_bytes(leader, "masked", size), WIDTH, words.shape)
            own = own + self._reorder(words + came, order)
        return own, order

    def _reorder(self, words: Words, order: Array) -> Words:
        if self.parts is None:
            raise ProtocolError("Only the feature holder and the dealer know what runs add up to.")
        return np.take_along_axis(add_runs(words, self.parts), order[:, :, None], axis=1)

    def show(self, words: Words, seen: Array) -> None:
        """The feature holder lets the label holder see some of the shuffled sums."""
        content = {"seen": np.packbits(seen), "words": pack(words[seen], WIDTH)}
        self.session.link.send(self.session.parties[0], "shown", Masked(content))

    def read(self, words: Words) -> list[Integers]:
        """The same at the label holder: sums of each node, (candidates shown, 2)."""
        nodes, candidates = words.shape[:2]
        payload = self.session.link.receive(self.owner, "shown").payload
        content = payload if isinstance(payload, dict) else {}
        size = nodes * candidates
        bits, came = (
            expect_array(
                content.get(name), sender=self.owner, name="shown", holds="bytes", shape=shape
            )
            for name, shape in (("seen", (-(-size // 8),)), ("words", (None,)))
        )
        seen = np.unpackbits(bits, count=size).astype(bool).reshape(nodes, candidates)
        shape = (int(seen.sum()), 2)
        if len(came) != shape[0] * 2 * WIDTH // 8:
            raise ProtocolError(f"Party {self.owner!r} shows other sums than it says.", self.owner)
        sums = to_signed(words[seen] + unpack(came, WIDTH, shape), WIDTH)
        return np.split(sums, np.cumsum(seen.sum(axis=1))[:-1])


@contextmanager
def join_pairs(
    channel: Channel, roles: Roles, rng: np.random.Generator | None
) -> Iterator[Mapping[str, Session]]:
    """Sessions of the label holder with each feature holder, those that one takes part in."""
    leader = roles.label_holder
    with ExitStack() as stack:
        sessions = {}
        for party in roles.feature_holders:
            if channel.me in (leader, party, roles.key_holder):
                inner = channel.within(f"sums of {party}", DISCLOSURES)
                joined = Session.join(inner, (leader, party), roles.key_holder, rng=rng)
                sessions[party] = stack.enter_context(joined)
        yield sessions


# ---- the dealer ----------------------------------------------------------------------------------


def deal_sums(channel: Channel, roles: Roles, rng: np.random.Generator | None) -> None:
    """The dealer's side of a training: as many sums as the label holder announces."""
    leader = roles.label_holder
    with join_pairs(channel, roles, rng) as sessions:
        pairs = [PairSums.begin(session) for session in sessions.values()]
        asked = [pair for pair in pairs if pair.columns]
        batch = 0
        while _receive_count(channel, pairs, leader, "trees", 0, MOST_TREES):
            level = 0
            while True:
                here = channel.within(f"trees {batch}").within(f"level {level}")
                nodes = _receive_count(here, pairs, leader, "nodes", NO_MORE, MOST_NODES)
                if nodes == NO_MORE:
                    break
                if nodes:
                    sums = receive_count(here, leader, "sums", 1, MOST_NODES)
                    for pair in asked:
                        pair.sum(sums)
                        pair.shuffle(absent((nodes, pair.shape[0], 2)))
                level += 1
            batch += 1


def _receive_count(
    channel: Channel, pairs: Sequence[PairSums], sender: str, name: str, low: int, high: int
) -> int:
    """A number to wait for; whoever has to send it may need what was dealt so far."""
    for pair in pairs:
        pair.session.flush()
    return receive_count(channel, sender, name, low, high)
