"""Opening under Paillier: masks over packed numbers, and the secret key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import gmpy2
import numpy as np

from vfsl.crypto import wire
from vfsl.crypto.integers import from_matrix, to_matrix
from vfsl.crypto.opening import Mask, SecretKey
from vfsl.crypto.residues import Residue
from vfsl.crypto.runs import RUNS_A_VALUE
from vfsl.crypto.slots import Slots, cut
from vfsl.crypto.work import pieces, shared
from vfsl.errors import ProtocolError
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.crypto.paillier import PaillierArray, PaillierPublicKey
    from vfsl.crypto.scheme import EncryptedArray

# Rough costs on a current core, to decide about worker processes only.
SECONDS_A_DECRYPTION = {3072: 9.5e-3, 2048: 3.5e-3}


class PaillierMask(Mask):
    """One uniform residue mod n for every number of the request."""

    key: PaillierPublicKey

    def __init__(
        self,
        key: PaillierPublicKey,
        shape: tuple[int, ...],
        bound: int,
        masks: list[int],
        slots: Slots,
        together: int,
    ) -> None:
        super().__init__(key, shape, bound)
        self._masks = masks
        self._slots = slots
        self._together = together

    def _remove(self, payload: dict[str, Any]) -> Array:
        key, n = self.key, int(self.key.n)
        matrix = wire.array_field(payload, "residues", np.uint8, 2)
        expected = (len(self._masks), (key.bits + 7) // 8)
        if matrix.shape != expected:
            raise ProtocolError(
                f"An answer of {expected} bytes was expected. Got {matrix.shape} instead."
            )
        numbers = [
            key.centred((residue - mask) % n)
            for residue, mask in zip(from_matrix(matrix), self._masks, strict=True)
        ]
        slots = self._slots
        if slots.count * self._together == 1:
            return slots.unpack(numbers, self.shape)
        digits = cut(numbers, slots.count * self._together).reshape(-1, slots.count)
        count = int(np.prod(slots.numbers_shape(self.shape), dtype=np.int64))
        return slots.from_digits(digits[:count], self.shape)

    def _fields(self) -> dict[str, Any]:
        return {
            "numbers": to_matrix(self._masks, (self.key.bits + 7) // 8),
            "slots": self._slots.count,
            "axis": self._slots.axis,
            "together": self._together,
        }


class PaillierSecretKey(SecretKey):
    """The primes; decrypts modulo p² and q² apart, four times faster than modulo n²."""

    public: PaillierPublicKey

    def __init__(self, public: PaillierPublicKey, p: int, q: int) -> None:
        super().__init__(public)
        self._primes = (gmpy2.mpz(p), gmpy2.mpz(q))

    def _decrypt(self, array: EncryptedArray) -> Array:
        held = cast("PaillierArray", array)  # no other array has this key's fingerprint
        residues = self._residues(held._numbers)
        numbers = [self.public.centred(residue) for residue in residues]
        return held._slots.unpack(numbers, held.shape)

    def _open(self, payload: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        # Packing makes requests smaller than their shape, never larger.
        return self._opened(payload, shape, 1, int(np.prod(shape, dtype=np.int64)))

    def _open_runs(self, payload: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        most = RUNS_A_VALUE * int(np.prod(shape, dtype=np.int64))
        return self._opened(payload, shape, 0, most)

    def _opened(
        self, payload: dict[str, Any], shape: tuple[int, ...], least: int, most: int
    ) -> dict[str, Any]:
        count = len(wire.array_field(payload, "numbers", np.uint8, 2))
        if not least <= count <= most:
            raise ProtocolError(
                f"A masked request of shape {shape} was expected. Got {count} numbers instead."
            )
        residues = self._residues(self.public.read_numbers(payload, count))
        return {"residues": to_matrix(residues, (self.public.bits + 7) // 8)}

    def _residues(self, numbers: list[Residue]) -> list[int]:
        seconds = len(numbers) * SECONDS_A_DECRYPTION.get(self.public.bits, 9.5e-3)
        # The primes go to worker processes of this machine and party, nowhere else.
        tasks = [(*self._primes, numbers[piece]) for piece in pieces(len(numbers), seconds)]
        return [residue for part in shared(decrypt_with, tasks, seconds) for residue in part]


def decrypt_with(task: tuple[Residue, Residue, list[Residue]]) -> list[int]:
    """Residues mod n = p·q behind ciphertexts.

    Ciphertexts arrive re-randomised, which blinds the exponentiation: its timing belongs to a
    number that nobody chose.
    """
    p, q, numbers = task
    p_square, q_square = p * p, q * q
    # L((1 + n)^(p−1) mod p²) = (p − 1)·q = −q mod p, and likewise for q.
    p_factor, q_factor = gmpy2.invert(-q, p), gmpy2.invert(-p, q)
    p_inverse = gmpy2.invert(p, q)
    residues = []
    for number in numbers:
        in_p = (gmpy2.powmod(number, p - 1, p_square) - 1) // p * p_factor % p
        in_q = (gmpy2.powmod(number, q - 1, q_square) - 1) // q * q_factor % q
        residues.append(int(in_p + p * ((in_q - in_p) * p_inverse % q)))
    return residues
