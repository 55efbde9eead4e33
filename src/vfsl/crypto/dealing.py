"""Random words from seeds: what the dealer and a data holder can both draw, and what it sends on.

The dealer gives each data holder a seed. A holder's stream is AES-256 in counter mode under a key
that HKDF makes of the seed, the job's step and the holder's name; the dealer draws the same
streams. Where the parties' words must fit together, all but the last holder take them from their
streams, and the dealer sends the last one what is missing. It sends in large chunks, ahead of the
holders, and need not be there when they use them.

A seed is drawn anew whenever a session begins, so no stream is ever used for two attempts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from vfsl.crypto.words import Bytes, unpack_bits
from vfsl.values import Array

SEED_BYTES = 32
CHUNK_BYTES = 1 << 20


class Stream:
    """Uniform words that depend on a seed and a purpose only."""

    def __init__(self, seed: bytes, purpose: str) -> None:
        key = HKDF(hashes.SHA256(), SEED_BYTES, b"vfsl shares", purpose.encode()).derive(seed)
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def draw(self, shape: tuple[int, ...], what: Literal["words", "bits"]) -> Array:
        if what == "words":
            content = self._cipher.update(bytes(8 * math.prod(shape)))
            return np.frombuffer(content, dtype="<u8").astype(np.uint64, copy=False).reshape(shape)
        content = self._cipher.update(bytes(-(-math.prod(shape) // 8)))
        return unpack_bits(np.frombuffer(content, dtype=np.uint8), shape)


class ZeroStream(Stream):
    """No randomness: the same computation without masks, for simulation and comparison."""

    def __init__(self) -> None:
        pass

    def draw(self, shape: tuple[int, ...], what: Literal["words", "bits"]) -> Array:
        return np.zeros(shape, dtype=np.uint64 if what == "words" else np.uint8)


class Outbox:
    """What the dealer sends to the last holder, collected in chunks."""

    def __init__(self, send: Callable[[Bytes], None]) -> None:
        self._send = send
        self._parts: list[Bytes] = []
        self._size = 0

    def add(self, content: Bytes) -> None:
        self._parts.append(content)
        self._size += len(content)
        if self._size >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._size:
            self._send(np.concatenate(self._parts))
            self._parts, self._size = [], 0


class Inbox:
    """The dealer's chunks at the last holder, read in the order in which they were dealt."""

    def __init__(self, receive: Callable[[], Bytes]) -> None:
        self._receive = receive
        self._content: Bytes = np.empty(0, dtype=np.uint8)

    @property
    def left(self) -> int:
        """Bytes that came and were not read."""
        return len(self._content)

    def take(self, size: int) -> Bytes:
        parts, missing = [], size
        while missing:
            if not len(self._content):
                self._content = self._receive()
            part = self._content[:missing]
            self._content = self._content[len(part) :]
            parts.append(part)
            missing -= len(part)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint8)
