"""How one party takes part in an alignment, and what it reports while it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from vfsl.align.blind_rsa import BlindingPool, RsaClient, RsaKey
from vfsl.align.ecdh import CurveClient, CurveKey
from vfsl.align.limits import Limits
from vfsl.align.methods import ClientMethod, ServerMethod
from vfsl.align.modular import modulus_bits
from vfsl.align.state import PartyState
from vfsl.errors import ConfigError

PROTOCOLS = ("blind-rsa", "ecdh")
MAX_BATCH = 1 << 16


@dataclass(frozen=True)
class Progress:
    """One step of an alignment: ``done`` of ``total`` ids in a stage."""

    party: str
    peer: str
    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class Caution:
    """Something that a party should know about an alignment, as data for its report."""

    party: str
    peer: str
    text: str


OnEvent = Callable[[Progress | Caution], None]


@dataclass(frozen=True)
class Alignment:
    """How one party takes part in an alignment.

    Parameters
    ----------
    protocol : {"blind-rsa", "ecdh"}
        The method; all parties must choose the same.
    security : {128, 112}
        Least security in bits of the server's key: 3072 or 2048 bits for blind RSA; ecdh has 128.
    limits : Limits
        What the party allows its peers.
    state : path, optional
        A private folder where the party keeps its key and finished values, so that a later run
        resumes and only works on new ids. Without it, each run starts afresh with a new key, and
        the count of questions ends with the run.
    lasting : bool
        Refuse to go without ``state``, as between organisations: a count of questions that ends
        with the run would cap nobody.
    key : ServerMethod, optional
        The server's key, instead of the one in ``state``.
    pool : BlindingPool, optional
        Blinding factors that the client made ahead (blind RSA).
    batch : int, optional
        Ids in one message; by default 1,024 for blind RSA and 16,384 for ecdh.
    on_event : callable, optional
        Receives :class:`Progress` and :class:`Caution`.
    """

    protocol: str = "blind-rsa"
    security: int = 128
    limits: Limits = field(default_factory=Limits)
    state: Path | str | None = None
    lasting: bool = False
    key: ServerMethod | None = None
    pool: BlindingPool | None = None
    batch: int | None = None
    on_event: OnEvent | None = None

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            allowed = ", ".join(map(repr, PROTOCOLS))
            raise ConfigError(
                f"The protocol parameter of Alignment must be one of {allowed}. "
                f"Got {self.protocol!r} instead."
            )
        modulus_bits(self.security)
        if self.lasting and self.state is None:
            raise ConfigError(
                "Between organisations a party aligns with a state folder only, or the ids that a "
                "peer asks about would be counted anew in each run; give Alignment a state."
            )
        if self.batch is not None and not 1 <= self.batch <= MAX_BATCH:
            raise ConfigError(
                f"The batch parameter of Alignment must be from 1 to {MAX_BATCH}. "
                f"Got {self.batch!r} instead."
            )
        if self.key is not None and self.key.name != self.protocol:
            raise ConfigError(
                f"The key parameter of Alignment must be a key for {self.protocol!r}. "
                f"Got one for {self.key.name!r} instead."
            )

    @property
    def party_state(self) -> PartyState:
        return PartyState(self.state)

    def report(self, event: Progress | Caution) -> None:
        if self.on_event is not None:
            self.on_event(event)

    def server_key(self) -> ServerMethod:
        """The given key, the kept one, or a new one, kept where there is a state folder."""
        kind: type[RsaKey] | type[CurveKey] = RsaKey if self.protocol == "blind-rsa" else CurveKey
        path = self.party_state.key_file(self.protocol)
        if self.key is not None:
            key = self.key
        elif path is not None and path.exists():
            key = kind.load(path)
        else:
            key = kind.generate(self.security)
            if path is not None:
                key.save(path)
        if isinstance(key, RsaKey) and 8 * key.width < modulus_bits(self.security):
            raise ConfigError(
                f"The server's blind-rsa key has {8 * key.width} bits, but security "
                f"{self.security} needs {modulus_bits(self.security)}; give another key or choose "
                "security=112."
            )
        return key

    def client(self, public: bytes, proof: bytes) -> ClientMethod:
        """The client side for a server's key; BadElement if the key is not acceptable."""
        if self.protocol == "ecdh":
            return CurveClient(public, proof)
        return RsaClient(public, proof, self.security, self.pool)
