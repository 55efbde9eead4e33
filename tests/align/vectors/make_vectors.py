"""Computes psi_blind_rsa.json and psi_ecdh.json from the formulas alone: plain integers, no vfsl.

Run by hand: python tests/align/vectors/make_vectors.py. RFC 7748's ladder and RFC 9380's map are
written out here a second time, so that the vectors do not come from the code that they test.
"""

import hashlib
import json
from pathlib import Path

HERE = Path(__file__).parent
E = 65537
# Two primes made once for this file; the key protects nothing.
RSA_P = int(
    "f00a87e65566dd3929c49a96a54b4b5c31e92e80204f82e3b9aabc99d0c4b319"
    "c85f144c8d0cfc3e89bda3d68a8515842b5229100a21575ced1fac437bff66dc"
    "60d2c51ffb1681b47baab4ef3e383d78f59815ca03f3f26aeba1b9fec71b2a61"
    "f92ca1db890e26e244fe1601e5f7500af490b08f62f68f429729b7a1ac315cc9",
    16,
)
RSA_Q = int(
    "eaa349acc858928d87c58b150be45feaf92dc6d048552b469e1ffc2f11dae1c1"
    "b00da9f43063491b70e8870ce8eb37dcab7243f0cd835a9768a107d691368a89"
    "41e9522b6a4f76f008debf2ca20ea346fd76f84fbb2ff0b7ecaae24410da59b8"
    "69bde4dac929fc6c6cd6f7230485d9daba3e0c36933f9f186c22b576c85814d3",
    16,
)
FIELD = 2**255 - 19
CURVE_A = 486662
DST = b"VFSL-PSI-V01-CS01-with-curve25519_XMD:SHA-512_ELL2_RO_"
IDS = ("", "007", "Zoë Müller", "id " * 40)
NONCES = bytes(range(16)), bytes(range(16, 32))


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def id_digest(text: str) -> bytes:
    return sha256(b"vfsl-id-v1" + (1).to_bytes(2, "little") + framed(text.encode()))


def context(method: str, public: bytes) -> bytes:
    parts = method.encode(), b"client C", b"server S", *NONCES, public
    return sha256(b"vfsl-psi-run-v1" + framed(*parts))


def value_and_tag(method: str, digest: bytes, element: bytes, public: bytes) -> dict[str, str]:
    value = sha256(b"vfsl-psi-value-v1" + method.encode() + digest + element)
    tag = sha256(b"vfsl-psi-tag-v1" + context(method, public) + value)[:16]
    return {"value": value.hex(), "tag": tag.hex()}


def blind_rsa() -> dict[str, object]:
    n, d = RSA_P * RSA_Q, pow(E, -1, (RSA_P - 1) * (RSA_Q - 1))
    public = n.to_bytes(256, "big")
    vectors = []
    for number, text in enumerate(IDS):
        digest = id_digest(text)
        stream = hashlib.shake_256(b"vfsl-psi-fdh-v1\x02id" + sha256(public) + digest)
        hashed = int.from_bytes(stream.digest(256 + 16), "big") % n
        r = int.from_bytes(hashlib.shake_256(b"r%d" % number).digest(255), "big")
        signature = pow(hashed, d, n)
        blinded = hashed * pow(r, E, n) % n
        answered = pow(blinded, d, n)
        if answered != signature * r % n:
            raise SystemExit("blinding does not cancel")
        numbers = {"hash": hashed, "r": r, "blinded": blinded, "answered": answered}
        vectors.append(
            {
                "id": text,
                "digest": digest.hex(),
                **{name: f"{number:0512x}" for name, number in numbers.items()},
                "signature": f"{signature:0512x}",
                **value_and_tag("blind-rsa", digest, signature.to_bytes(256, "big"), public),
            }
        )
    return {"p": f"{RSA_P:x}", "q": f"{RSA_Q:x}", "vectors": vectors}


def expand(message: bytes, length: int) -> bytes:
    tag = DST + bytes([len(DST)])
    b0 = hashlib.sha512(bytes(128) + message + length.to_bytes(2, "big") + b"\0" + tag).digest()
    blocks = [hashlib.sha512(b0 + b"\1" + tag).digest()]
    while 64 * len(blocks) < length:
        mixed = bytes(x ^ y for x, y in zip(b0, blocks[-1], strict=True))
        blocks.append(hashlib.sha512(mixed + bytes([len(blocks) + 1]) + tag).digest())
    return b"".join(blocks)[:length]


def elligator(u: int) -> tuple[int, int]:
    def g(x: int) -> int:
        return (x**3 + CURVE_A * x * x + x) % FIELD

    x1 = -CURVE_A * pow(1 + 2 * u * u, -1, FIELD) % FIELD
    square = pow(g(x1), (FIELD - 1) // 2, FIELD) in (0, 1)
    x = x1 if square else (-x1 - CURVE_A) % FIELD
    root = pow(g(x), (FIELD + 3) // 8, FIELD)
    if root * root % FIELD != g(x):
        root = root * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
    return x, root if root % 2 == square else FIELD - root


def hash_sum(digest: bytes) -> bytes:
    uniform = expand(digest, 96)
    (x1, y1), (x2, y2) = (
        elligator(int.from_bytes(part, "big") % FIELD) for part in (uniform[:48], uniform[48:])
    )
    slope = (y2 - y1) * pow(x2 - x1, -1, FIELD)
    return ((slope * slope - CURVE_A - x1 - x2) % FIELD).to_bytes(32, "little")


def x25519(scalar: bytes, point: bytes) -> bytes:
    k = int.from_bytes(scalar, "little") & ~7 & (2**254 - 1) | 2**254
    x1 = int.from_bytes(point, "little") % 2**255
    x2, z2, x3, z3 = 1, 0, x1, 1
    for bit in range(254, -1, -1):
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb = d * a, c * b
        x3, z3 = (da + cb) ** 2 % FIELD, x1 * (da - cb) ** 2 % FIELD
        aa, bb = a * a, b * b
        e = aa - bb
        x2, z2 = aa * bb % FIELD, e * (aa + 121665 * e) % FIELD
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, -1, FIELD) % FIELD).to_bytes(32, "little")


def ecdh() -> dict[str, object]:
    order = 2**252 + 27742317777372353535851937790883648493
    b = sha256(b"server scalar")
    for attempt in range(100):
        a = int.from_bytes(sha256(b"client scalar %d" % attempt), "little") & ~7 & (2**254 - 1)
        a |= 2**254
        eighth = pow(a, -1, order) * pow(8, -1, order) % order
        if 2**251 <= eighth < 2**252:
            break
    scalar, inverse = a.to_bytes(32, "little"), (8 * eighth).to_bytes(32, "little")
    public = x25519(b, (9).to_bytes(32, "little"))
    vectors = []
    for text in IDS:
        digest = id_digest(text)
        point = hash_sum(digest)
        blinded = x25519(scalar, point)
        answered = x25519(b, blinded)
        element = x25519(inverse, answered)
        if element != x25519(b, point):
            raise SystemExit("blinding does not cancel")
        names = {"point": point, "blinded": blinded, "answered": answered, "element": element}
        vectors.append(
            {
                "id": text,
                "digest": digest.hex(),
                **{name: value.hex() for name, value in names.items()},
                **value_and_tag("ecdh", digest, element, public),
            }
        )
    keys = {"scalar": scalar, "inverse": inverse, "key": b, "public": public}
    return {**{name: value.hex() for name, value in keys.items()}, "vectors": vectors}


if __name__ == "__main__":
    shared = {"client": "client C", "server": "server S", "nonces": [n.hex() for n in NONCES]}
    for name, content in (("psi_blind_rsa", blind_rsa()), ("psi_ecdh", ecdh())):
        text = json.dumps({**shared, **content}, indent=1, ensure_ascii=False)
        (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")
