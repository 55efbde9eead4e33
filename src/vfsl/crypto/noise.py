"""Worst-case noise of BFV ciphertexts, and the flooding that drowns it, in exact integers.

A ciphertext with c0 + c1·s = (q/t)·m + v mod q decrypts to m if |v| < q/(2t). Bounds here are
worst cases, with |s| ≤ 1, |u| ≤ 1 and |e| ≤ 21 for every coefficient (SEAL's centred binomial
distribution has 21 coins). q/(8t) is the limit, which leaves room for SEAL's approximate rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

ERROR_BOUND = 21
STATISTICAL_BITS = 40
# Of values carried on to another product: so many of its results, times blocks of rows, can leave.
ONWARD_BITS = 22


@dataclass(frozen=True)
class Exit:
    """How ciphertexts leave: noise uniform in ±2**flood_bits at the top level, then fewer limbs."""

    flood_bits: int
    limbs: int


class Noise:
    """Bounds for one ring: degree N, plaintext modulus t, data primes, the encryption's prime."""

    def __init__(self, degree: int, t: int, primes: tuple[int, ...], special: int) -> None:
        self.degree = degree
        self.t = t
        self.primes = primes
        self.special = special

    @property
    def top(self) -> int:
        """The limbs of a fresh ciphertext."""
        return len(self.primes)

    @property
    def fresh_noise(self) -> int:
        """Public-key encryption: −e·u + e0 + e1·s at the key level, divided by the last prime.

        Rounding both halves adds ½ + N/2, scaling the message by q/t at most ½.
        """
        key_level = ERROR_BOUND * (2 * self.degree + 1)
        return key_level // self.special + 1 + self.degree // 2 + 1

    def modulus(self, limbs: int) -> int:
        product = 1
        for prime in self.primes[:limbs]:
            product *= prime
        return product

    def limit(self, limbs: int) -> int:
        """Largest noise that surely decrypts at this level."""
        return self.modulus(limbs) // (8 * self.t)

    def dropped(self, limbs: int, start: int | None = None) -> int:
        """What switching from ``start`` limbs (default: all) down to ``limbs`` divides noise by."""
        return self.modulus(self.top if start is None else start) // self.modulus(limbs)

    def switched_noise(self, noise: int, limbs: int, start: int | None = None) -> int:
        """Noise at level ``limbs`` of a ciphertext that had ``noise`` at ``start`` (the top)."""
        # Each prime that goes adds rounding of both halves, (N + 1)/2; earlier ones shrink again.
        return noise // self.dropped(limbs, start) + 1 + self.degree

    def cover_noise(self, flood_bits: int) -> int:
        """A flooded encryption."""
        return (1 << flood_bits) + self.fresh_noise + 1

    @property
    def slot_norm(self) -> int:
        """Largest L1 norm of a plaintext: that of any values in slots, as centred coefficients."""
        return self.degree * (self.t // 2)

    def flood_bits(self, out: Exit, limbs: int) -> int:
        """The bits of flooding at level ``limbs`` that come to those of an exit at the top."""
        return out.flood_bits - (self.dropped(limbs) - 1).bit_length()

    def drowns(self, out: Exit, own: int, limbs: int, coefficients: int) -> bool:
        """Whether an exit hides ``own`` noise of so many coefficients at level ``limbs``."""
        return needed_bits(own, coefficients) <= self.flood_bits(out, limbs)

    @cached_property
    def last(self) -> Exit:
        """With as much flooding as there is room for: seven of them fit the limit.

        Afterwards the fewest limbs that still hold it are enough.
        """
        bits = (self.modulus(self.top) // (64 * self.t)).bit_length() - 1
        limbs = self.top
        while limbs > 1 and 3 * self.switched_noise(1 << bits, limbs - 1) <= self.limit(limbs - 1):
            limbs -= 1
        return Exit(bits, limbs)

    @cached_property
    def onward(self) -> Exit:
        """With so little flooding that whoever receives it can multiply by values in slots again.

        What that product leaves with must be drowned by the last exit. Where the modulus has no
        room for it, this is the last exit itself.
        """
        # Noise is stated in whole bits, so it may be received as twice what it was.
        bits = self.last.flood_bits - needed_bits(2 * self.slot_norm, 1 << ONWARD_BITS)
        if bits <= self.fresh_noise.bit_length():
            return self.last
        limbs = self.top

        def fits(fewer: int) -> bool:
            received = (1 << self.switched_noise(1 << bits, fewer).bit_length()) - 1
            return self.drowns(self.last, received * self.slot_norm, fewer, 1 << ONWARD_BITS)

        while limbs > 1 and fits(limbs - 1):
            limbs -= 1
        return Exit(bits, limbs)

    @property
    def levels(self) -> tuple[int, ...]:
        """The limbs that ciphertexts between parties may have."""
        return (self.top, self.onward.limbs, self.last.limbs)


def needed_bits(own: int, coefficients: int) -> int:
    """Bits of flooding that hide noise up to ``own`` in so many coefficients."""
    return (max(own * coefficients, 1) - 1).bit_length() + STATISTICAL_BITS
