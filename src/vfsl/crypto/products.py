"""Exact shares of X.T @ P: one party's columns, encrypted once, times another's plain columns.

Holds   the owner: small integers X (rows × columns), a key of its own. Another holder: small
        integers P (rows × plain columns), X under the owner's key. The dealer: random bits.
Learns  nobody anything. Encrypted columns and the answer's second half are pseudorandom (ring-LWE);
        what the owner opens is uniform over the whole wire modulus, noise included; masked bits are
        uniform. docs/security-products.md derives this, the bounds, and what collusion loses.

Columns cross once. A product takes two rounds: the answer and two masked bits per value to the
owner, two masked bits per value back. The pieces add up to the exact integers modulo 2^64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vfsl.crypto import wire
from vfsl.crypto.products_kernel import (
    Answer,
    Bound,
    ColumnKey,
    EncryptedMatrix,
    Layout,
    Product,
    apply_corrections,
    join_digits,
    plan_columns,
    split_mask,
    split_opened,
)
from vfsl.crypto.products_ring import MODULUS_BITS, pack_words, unpack_words
from vfsl.crypto.session import Shape, absent
from vfsl.crypto.shares import Session, Shared
from vfsl.crypto.words import (
    WIDEST,
    Bits,
    Words,
    matmul,
    pack_bits,
    to_words,
    unpack_bits,
)
from vfsl.errors import BoundExceeded, ConfigError
from vfsl.values import Ciphertext, Disclosure, Disclosures, Integers, Masked

__all__ = ["DISCLOSURES", "Encrypted", "bit_products"]

# Besides those of shares.py.
DISCLOSURES: Disclosures = {
    "columns": Disclosure(Ciphertext, "nothing: columns under their owner's key"),
    "answer": Disclosure(Masked, "nothing: products under a mask as wide as their modulus"),
}


@dataclass(frozen=True, eq=False)
class Encrypted:
    """Columns of one holder, which the others have under its key; to be multiplied many times.

    ``own`` are the columns at their owner, ``key`` its key, ``matrix`` what the others hold.
    """

    session: Session
    owner: str
    layout: Layout
    own: Integers | None
    key: ColumnKey | None
    matrix: EncryptedMatrix | None

    @classmethod
    def features(
        cls,
        session: Session,
        owner: str,
        x: Integers | None,
        shape: Shape,
        bits: int,
        *,
        norm: float | None = None,
        plain_bits: int = 8,
        plain_norm: float | None = None,
        plain_columns: int = 1,
        receivers: Sequence[str] | None = None,
    ) -> Encrypted:
        """Encrypt a holder's columns and send them to those who will multiply.

        Everything but ``x`` is public and the same at all parties.

        Parameters
        ----------
        x : int64 matrix of that shape
            At its owner (and in one place), None elsewhere.
        bits : int
            Values are below 2^bits in size.
        norm : float, optional
            No column is longer than this (2-norm), the same float at all parties. A bound below
            √rows · 2^bits, as standardised columns have, leaves room for wider plain columns.
        plain_bits, plain_norm, plain_columns
            What they will mostly be multiplied by, and how many plain columns in all. The best
            parameters depend on it; products with others are possible, with more digits.
        receivers : sequence of str, optional
            All other holders by default.
        """
        rows, columns = shape
        others = [party for party in session.parties if party != owner]
        receivers = others if receivers is None else list(receivers)
        values, plain = Bound.of(rows, bits, norm), Bound.of(rows, plain_bits, plain_norm)
        layout = plan_columns(rows, columns, values, plain, plain_columns, max(len(receivers), 1))
        own, key, matrix = None, None, None
        if session.has(owner):
            own = _expect(x, shape, owner)
            values.check(own, f"Columns of {owner!r}")
            if len(session.parties) > 1:
                key = ColumnKey(layout)
                seed, words = key.encrypt(own)
                content = {"seed": seed, "words": pack_words(words, MODULUS_BITS)}
                for party in receivers:
                    session.link.send(party, "columns", Ciphertext(content))
        elif session.me in receivers:
            came = session.link.receive(owner, "columns")
            content = wire.read_content(came, Ciphertext, "A message of encrypted columns")
            packed = wire.read_array(content, "words", np.uint8, 1)
            words = unpack_words(packed, (layout.words, columns), MODULUS_BITS)
            matrix = EncryptedMatrix(layout, wire.read_field(content, "seed", bytes), words)
        return cls(session, owner, layout, own, key, matrix)

    def times(
        self,
        other: str,
        p: Integers | None,
        columns: int,
        bits: int,
        *,
        norm: float | None = None,
        width: int = WIDEST,
    ) -> Shared:
        """X.T @ P, of shape (columns of X, columns of P), exactly.

        Parameters
        ----------
        other : str
            The holder of P.
        p : int64 matrix (rows, columns)
            At its holder (and in one place), None elsewhere.
        bits, norm
            Public bounds of P, as in :meth:`features`.
        width : int
            The pieces add up modulo 2^width; fewer bits, fewer dealt bytes.
        """
        layout, session = self.layout, self.session
        bound = Bound.of(layout.rows, bits, norm)
        product = layout.plan(bound)
        if product is None:
            raise BoundExceeded(
                f"Plain columns of {bits} bits leave no room for noise over {layout.rows} rows; "
                "use fewer bits, or state them when the columns are encrypted."
            )
        if session.has(other):
            p = _expect(p, (layout.rows, columns), other)
            bound.check(p, f"Plain columns of {other!r}")
        shape, most = (layout.columns, columns), layout.bound_products(bound)
        if self.owner == other or len(session.parties) == 1:
            piece = absent(shape)
            if self.own is not None and p is not None and session.has(other):
                piece = matmul(to_words(self.own.T), to_words(p))
            return Shared(session, piece, width, most)
        words, own, others = self._exchange(other, p, columns, product)
        both = bit_products(session, self.owner, own, other, others, (2, *words.shape), width)
        piece = absent(shape)
        if session.holds:
            piece = join_digits(apply_corrections(words, both.piece, layout), product)
        return Shared(session, piece, width, most)

    def _exchange(
        self, other: str, p: Integers | None, columns: int, product: Product
    ) -> tuple[Words, Bits | None, Bits | None]:
        """This party's words before they are corrected; the owner's bits, the other's bits."""
        session, layout = self.session, self.layout
        if session.has(other) and p is not None:
            if self.matrix is None:
                raise ConfigError(f"Party {other!r} did not receive the columns of {self.owner!r}.")
            answer, mask = self.matrix.multiply(p, product)
            session.link.send(self.owner, "answer", Masked(answer.to_bytes(product)))
            words, bits = split_mask(mask, layout, product)
            return words, None, bits
        if self.key is not None:
            size = layout.count_answer_bytes(product, columns)
            data = session.receive_bytes(other, "answer", size)
            opened = self.key.open(Answer.from_bytes(data, layout, product, columns), product)
            words, bits = split_opened(opened, layout, product)
            return words, bits, None
        return absent((layout.columns, product.digits * columns)), None, None


def bit_products(
    session: Session,
    one: str,
    bits: Bits | None,
    other: str,
    bits_of_other: Bits | None,
    shape: Shape,
    width: int = WIDEST,
) -> Shared:
    """Products of two holders' private bits, as shared numbers 0 and 1; one round.

    With masks a and b of the two, both show their bits masked, x = x' ⊕ a and y = y' ⊕ b, and the
    dealer deals a · b. Then x y = x' y' + x' (1 − 2 y') b + y' (1 − 2 x') a
    + (1 − 2 x') (1 − 2 y') a b: each summand is known to one party, or shared.
    """
    a, b = session.draw_bits(shape, one), session.draw_bits(shape, other)
    x = y = absent(shape)
    if session.holds:  # before what is dealt, which may take longer
        x = _show(session, one, bits, a.own, shape)
        y = _show(session, other, bits_of_other, b.own, shape)
    piece = session.deal(shape, lambda: (a.parity & b.parity).astype(np.uint64), width)
    if session.holds:
        flip_x, flip_y = np.uint64(1) - (x << np.uint64(1)), np.uint64(1) - (y << np.uint64(1))
        piece = flip_x * flip_y * piece
        if session.has(one):
            piece = piece + x * y + y * flip_x * a.own
        if session.has(other):
            piece = piece + x * flip_y * b.own
    return Shared(session, piece, width, 1)


def _show(session: Session, owner: str, bits: Bits | None, mask: Bits, shape: Shape) -> Words:
    """A holder's bits, masked, at all holders."""
    if session.has(owner):
        if bits is None:
            raise ConfigError(f"Party {owner!r} must give its bits.")
        shown = bits ^ mask
        for party in session.list_others() if len(session.parties) > 1 else ():
            session.link.send(party, "masked", Masked(pack_bits(shown)))
    else:
        size = -(-int(np.prod(shape)) // 8)
        shown = unpack_bits(session.receive_bytes(owner, "masked", size), shape)
    return shown.astype(np.uint64)


def _expect(values: Integers | None, shape: Shape, owner: str) -> Integers:
    if values is None or np.shape(values) != tuple(shape):
        raise ConfigError(
            f"Party {owner!r} must give its matrix of shape {tuple(shape)}. "
            f"Got {None if values is None else np.shape(values)} instead."
        )
    return np.asarray(values, dtype=np.int64)
