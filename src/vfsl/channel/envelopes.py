"""Envelopes of a relayed transport: parts of frames and notes, each with a header.

A frame is cut into parts of about as many bytes as the line carries in a second, so that signs of
life pass between them. A part says where in the frame it begins: what is carried again, perhaps in
smaller parts, may overlap with what has come.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from dataclasses import dataclass

import numpy as np

from vfsl.channel import wire
from vfsl.channel.notes import Ended, Note
from vfsl.errors import WireError
from vfsl.values import Array

# The engine carries arrays faster than bytes from about here on (measured).
ARRAY_FROM = 10_000_000
DATA, SEALED_NOTE, OPEN_NOTE = range(3)
VERSION = 3
HEADER = struct.Struct("<2sBB16sQII")  # magic, version, kind, session, number, start, total
_MAGIC = b"VE"
_FRAME_LIMIT = wire.MAX_BYTES + (1 << 16)

Envelope = bytes | Array


class OtherVersion(WireError):
    """An envelope of another version of this file; ``version`` is the one that came."""

    def __init__(self, version: int) -> None:
        super().__init__(f"An envelope has version {version}; this vfsl reads {VERSION}.")
        self.version = version


@dataclass(frozen=True)
class Opened:
    """What an envelope says: of a part, which frame it belongs to and where it begins there."""

    kind: int
    number: int
    start: int
    total: int
    content: bytes


def make_envelope(
    kind: int, session: bytes, number: int, content: bytes, start: int = 0, total: int | None = None
) -> Envelope:
    """An envelope as the engine likes it: bytes while small, an array of bytes when large."""
    total = len(content) if total is None else total
    whole = HEADER.pack(_MAGIC, VERSION, kind, session, number, start, total) + content
    return np.frombuffer(whole, dtype=np.uint8) if len(whole) >= ARRAY_FROM else whole


def open_envelope(envelope: Envelope) -> Opened:
    data = envelope.tobytes() if isinstance(envelope, np.ndarray) else bytes(envelope)
    if len(data) < HEADER.size:
        raise WireError("An envelope is too short.")
    magic, version, kind, _, number, start, total = HEADER.unpack_from(data)
    if magic == _MAGIC and version != VERSION:
        raise OtherVersion(version)
    if magic != _MAGIC or kind > OPEN_NOTE:
        raise WireError("An envelope is not one of ours.")
    return Opened(kind, number, start, total, data[HEADER.size :])


def session_of(envelope: Envelope) -> bytes:
    """The session of an envelope; it is at the same place in every version."""
    start = bytes(envelope[: HEADER.size])
    return start[4:20]


class Incoming:
    """The parts of the next frame of one sender, until it is whole."""

    def __init__(self) -> None:
        self.number = 0
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def between_frames(self) -> bool:
        return self._size == 0

    def add(self, part: Opened) -> bytes | None:
        """The frame, if this part makes it whole; a part that was carried twice counts once."""
        if part.number < self.number:
            return None
        end = part.start + len(part.content)
        if part.number > self.number or part.start > self._size or end > part.total:
            raise WireError("Envelopes do not follow each other.")
        if part.total > _FRAME_LIMIT:
            raise WireError(f"A frame of {part.total} bytes is refused.")
        new = part.content[self._size - part.start :]
        self._parts.append(new)
        self._size += len(new)
        if self._size < part.total:
            return None
        frame = b"".join(self._parts) if len(self._parts) > 1 else self._parts[0]
        self.number, self._parts, self._size = self.number + 1, [], 0
        return frame


class Pace:
    """How many bytes a part has: what the line to a peer carries in about a second."""

    seconds = 1.0
    least, most = 1 << 14, 32 << 20

    def __init__(self) -> None:
        self.size = min(self.most, 1 << 18)

    def learn(self, carried: int, seconds: float) -> None:
        """A part was carried; a short one tells nothing unless it took long."""
        if 2 * carried >= self.size or seconds > self.seconds:
            factor = min(2.0, max(0.5, self.seconds / max(seconds, 1e-9)))
            self._resize(self.size * factor)

    def slow_down(self) -> None:
        """A part was not carried in time."""
        self._resize(self.size / 2)

    def _resize(self, size: float) -> None:
        self.size = round(min(self.most, max(self.least, size)))


class Outbox:
    """What waits to be carried to one peer: frames in order; notes before and between them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._notes: deque[Note] = deque()
        self._frames: deque[tuple[int, bytes] | Ended] = deque()
        self._closed = False

    def put(self, number: int, frame: bytes) -> None:
        with self._changed:
            self._frames.append((number, frame))
            self._changed.notify_all()

    def tell(self, note: Note) -> None:
        """A note overtakes frames, except that of the end, which counts them."""
        with self._changed:
            if isinstance(note, Ended):
                self._frames.append(note)
            else:
                self._notes.append(note)
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more comes; what waits is still carried."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def waiting_frames(self) -> int:
        return len(self._frames)

    def next_note(self) -> Note | None:
        """A note that waits, if any."""
        with self._changed:
            return self._notes.popleft() if self._notes else None

    def get(self) -> Note | tuple[int, bytes] | None:
        """What is to be carried next; None when closed and empty."""
        with self._changed:
            while not self._notes and not self._frames:
                if self._closed:
                    return None
                self._changed.wait()
            return self._notes.popleft() if self._notes else self._frames.popleft()
