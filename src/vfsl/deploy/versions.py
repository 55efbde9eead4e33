"""Which vfsl each party of a run has: said openly before the handshake, compared by everybody.

Learns  the peers and the relay: the sender's versions. A relay that changes them stops the run and
        gets nothing: nothing is negotiated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from vfsl import __version__
from vfsl.channel import wire
from vfsl.channel.transport import Transport
from vfsl.errors import ConfigError, ProtocolError

_LIMIT = 1000


@dataclass(frozen=True)
class Versions:
    """Of vfsl, and of the messages that it writes."""

    vfsl: str = __version__
    wire: int = wire.VERSION

    @property
    def line(self) -> tuple[int, ...]:
        """What must be the same at all parties: steps change with the second number."""
        return (self.wire, *(int(part) for part in self.vfsl.split(".")[:2]))


class OtherVersions(ConfigError):
    """The parties have versions of vfsl that do not work together; peers may know ``public``."""

    def __init__(self, message: str, public: str) -> None:
        super().__init__(message)
        self.public = public


def exchange_versions(transport: Transport, timeout: float) -> dict[str, Versions]:
    """Tell all peers the own versions; returns those of everybody."""
    mine = Versions()
    for peer in transport.peers:
        transport.post(peer, json.dumps(asdict(mine)).encode())
    found = {transport.me: mine}
    for peer in transport.peers:
        found[peer] = _read(peer, transport.take(peer, "versions", timeout))
    return found


def check_versions(found: Mapping[str, Versions]) -> None:
    """Refuse versions that do not work together, naming them and who must upgrade."""
    newest = max(found.values(), key=lambda one: one.line)
    older = sorted(party for party, one in found.items() if one.line != newest.line)
    if older:
        said = "; ".join(
            f"{party!r} has vfsl {one.vfsl} (messages of version {one.wire})"
            for party, one in sorted(found.items())
        )
        must = f"Must upgrade to vfsl {newest.vfsl}: {', '.join(map(repr, older))}"
        others = ", ".join(sorted({found[party].vfsl for party in older}))
        public = f"vfsl {others} does not work with vfsl {newest.vfsl}. {must}"
        raise OtherVersions(f"{said}. {must}.", public)


def _read(peer: str, frame: bytes) -> Versions:
    try:
        if len(frame) > _LIMIT:
            raise ValueError("too long")
        content = json.loads(frame)  # of a later version it may have further fields
        one = Versions(str(content["vfsl"]), int(content["wire"]))
        one.line  # noqa: B018  (its numbers can be read)
        return one
    except (ValueError, KeyError, TypeError):
        raise ProtocolError(f"Party {peer!r} did not say which vfsl it has.", peer) from None
