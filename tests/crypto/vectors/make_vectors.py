"""Write the test vectors with plain Python only, from the textbook definitions.

Run by hand; the tests read the files. Nothing of vfsl is imported, so the vectors are independent.
"""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from math import lcm
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

HERE = Path(__file__).parent


def textbook(p: int, q: int, messages: list[int]) -> dict[str, object]:
    n = p * q
    square = n * n
    secret = lcm(p - 1, q - 1)
    cases = []
    for message in messages:
        seed = hashlib.shake_256(f"{n} {message}".encode()).digest(n.bit_length() // 8 + 8)
        random = int.from_bytes(seed, "big") % (n - 1) + 1
        ciphertext = pow(n + 1, message % n, square) * pow(random, n, square) % square
        opened = (pow(ciphertext, secret, square) - 1) // n * pow(secret, -1, n) % n
        if opened != message % n:
            raise SystemExit("the textbook decryption disagrees")
        cases.append({"m": hex(message), "r": hex(random), "c": hex(ciphertext)})
    return {"p": hex(p), "q": hex(q), "cases": cases}


def fixed_cases() -> list[dict[str, object]]:
    cases = []
    for real in (0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.1, -3.75, 1e-9, 12345.678, -7.0 / 3.0):
        for bits in (0, 1, 8, 24, 40):
            # round() of a Fraction is exact and rounds half to even.
            cases.append({"x": real.hex(), "bits": bits, "ints": round(Fraction(real) * 2**bits)})
    return cases


def negacyclic(a: list[int], b: list[int]) -> list[int]:
    """The product of two polynomials modulo X^N + 1, by the definition."""
    degree = len(a)
    result = [0] * degree
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            sign = 1 if i + j < degree else -1
            result[(i + j) % degree] += sign * x * y
    return result


def packing_cases() -> list[dict[str, object]]:
    """Polynomials laid out by hand: X^(a·kb·r + i) against X^(b·r + r−1−i), for N = 32."""
    cases = []
    degree = 32
    for ka, kb, rows in ((1, 1, 32), (1, 4, 8), (2, 4, 4), (3, 2, 5), (2, 2, 7)):
        r = degree // (ka * kb)
        left = [[(7 * i + 3 * a) % 11 - 5 for a in range(ka)] for i in range(rows)]
        right = [[(5 * i + 2 * b) % 13 - 6 for b in range(kb)] for i in range(rows)]
        encrypted, plain = [0] * degree, [0] * degree
        for i in range(rows):
            for a in range(ka):
                encrypted[a * kb * r + i] = left[i][a]
            for b in range(kb):
                plain[b * r + r - 1 - i] = right[i][b]
        inner = [
            [sum(left[i][a] * right[i][b] for i in range(rows)) for b in range(kb)]
            for a in range(ka)
        ]
        cases.append(
            {"degree": degree, "ka": ka, "kb": kb, "left": left, "right": right, "inner": inner}
            | {"encrypted": encrypted, "plain": plain, "product": negacyclic(encrypted, plain)}
        )
    return cases


def main() -> None:
    numbers = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_numbers()
    messages = [0, 1, -1, 2**20, -(2**40), 2**500 + 12345, -(2**2000)]
    keys = [
        textbook(1009, 1013, [0, 1, -1, 500, -500, 511058]),
        textbook(numbers.p, numbers.q, messages),
    ]
    (HERE / "paillier.json").write_text(json.dumps(keys, indent=1) + "\n")
    (HERE / "packing.json").write_text(json.dumps(packing_cases()) + "\n")
    (HERE / "fixed.json").write_text(json.dumps(fixed_cases(), indent=1) + "\n")


if __name__ == "__main__":
    main()
