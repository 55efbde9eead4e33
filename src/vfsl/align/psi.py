"""Private set intersection: what a protocol provides, which ones there are, how a party takes part.

In a protocol of two parties the server holds a key k, and F_k(id) can be computed with k only. The
client blinds its ids, the server applies k, the client unblinds and has F_k of its own ids; the
server learns their number. Both hash F_k, together with what names this intersection and its two
parties, into tags of 128 bits. Equal ids give equal tags; the tag of an id that the client did not
ask about is a random number to it. With a helper (aided.py) there is neither server nor client.

Another package adds a protocol by an entry point in the group ``vfsl.psi`` that names a
:class:`PsiProtocol`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from cryptography.hazmat.primitives import serialization

from vfsl.align.ids import ByteRows, map_rows
from vfsl.align.state import Limits, PartyState
from vfsl.errors import ConfigError, StoreError
from vfsl.params import check_params, documented, param
from vfsl.progress import Event
from vfsl.registry import Registry

TAG_BYTES = 16
MAX_BATCH = 1 << 16


class BadElement(Exception):
    """What a peer sent is not an element that the protocol may work on; the text says why."""


class PsiServer(Protocol):
    """The key holder's side; also the key itself, so it can be kept between runs."""

    name: str  # of the protocol
    batch: int  # ids in one message
    width: int  # bytes of an element on the wire

    @classmethod
    def generate(cls, security: int = 128) -> Self:
        """A new key."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """The key of a file that :meth:`save` wrote."""

    def save(self, path: Path) -> None:
        """Write the key to a file that only its owner may read."""

    def check_security(self, security: int) -> None:
        """Refuse, with a ConfigError, to serve with a key below that security level."""

    @property
    def public(self) -> bytes:
        """The public key."""

    def proof(self) -> bytes:
        """What convinces a client that blinding hides its ids under this key."""

    def answer(self, elements: ByteRows) -> ByteRows:
        """The key applied to blinded elements; BadElement for what a client may not send."""

    def values(self, digests: ByteRows) -> ByteRows:
        """F_k of the server's own ids, 32 bytes each."""


class PsiClient(Protocol):
    """The client's side, for one public key."""

    batch: int
    width: int

    def blind(self, digests: ByteRows) -> tuple[ByteRows, Any]:
        """Blinded elements, and the secret that removes the blinding."""

    def values(self, digests: ByteRows, answers: ByteRows, secret: Any) -> ByteRows:
        """F_k of the client's ids; BadElement for what a server may not answer."""


@dataclass(frozen=True)
class PsiProtocol:
    """A protocol of private set intersection, and what others need to know about it.

    Attributes
    ----------
    name : str
        What jobs, records and files call it.
    about : str
        What a reader of a report is told, such as "elliptic curves".
    server : type of PsiServer, optional
        The key holder's side.
    client : callable, optional
        ``client(public, proof, security, pool)`` is the client's side for a server's public key;
        BadElement if the key is not acceptable. ``pool`` is what this client prepared ahead of
        time, or None.
    security : tuple of int
        The security levels in bits that can be asked for.
    ids_per_second : mapping of int to float
        By security level: how many ids of both lists two cores handle per second, for estimates.
        A level that nobody has measured is left out.
    helped : bool
        Whether a third party without ids compares tags, instead of a server and a client.
    """

    name: str
    about: str
    server: type[PsiServer] | None = None
    client: Callable[[bytes, bytes, int, Any], PsiClient] | None = None
    security: tuple[int, ...] = (128, 112)
    ids_per_second: Mapping[int, float] = field(default_factory=dict)
    helped: bool = False


PROTOCOLS: Registry[PsiProtocol] = Registry(
    "alignment protocol",
    "vfsl.psi",
    {
        "blind-rsa": "vfsl.align.blind_rsa:BLIND_RSA",
        "ecdh": "vfsl.align.ecdh:ECDH",
        "aided": "vfsl.align.aided:AIDED",
    },
)


@dataclass(frozen=True)
class Caution:
    """Something that a party should know about an alignment, as data for its report."""

    party: str
    peer: str
    text: str


@documented
@dataclass(frozen=True)
class Alignment:
    """How one party takes part in an alignment."""

    protocol: str = param(
        "blind-rsa",
        "How the common ids are found, such as 'blind-rsa', 'ecdh' or 'aided'; all parties must "
        "choose the same.",
    )
    security: int = param(
        128,
        "The least security of the server's key in bits. For blind RSA, 128 means a key of 3072 "
        "bits and 112 one of 2048; ecdh always has 128.",
    )
    limits: Limits = param(Limits(), "What the party allows its peers.", option=False)
    state: Path | str | None = param(
        None,
        "A private folder where the party keeps its key and finished values, so that a later run "
        "resumes and only works on new ids. Without it, each run starts afresh with a new key, and "
        "the count of questions ends with the run.",
    )
    lasting: bool = param(
        False,
        "Refuse to go without `state`, as between organisations: a count of questions that ends "
        "with the run would cap nobody.",
    )
    hide_sizes: bool = param(
        False,
        "With 'aided': fill lists up to a power of two and add decoys, so that the helper learns "
        "neither how long they are nor how many ids are common; all parties must choose the same.",
    )
    key: Any = param(
        None, "The server's key (a PsiServer), instead of the one in `state`.", option=False
    )
    pool: Any = param(
        None,
        "What the client prepared ahead of time, if the protocol knows such a thing: a "
        "BlindingPool for blind RSA.",
        option=False,
    )
    batch: int | None = param(
        None,
        "How many ids go into one message; by default 1,024 for blind RSA and 16,384 for ecdh.",
        ge=1,
        le=MAX_BATCH,
    )
    on_event: Callable[[Event | Caution], None] | None = param(
        None, "Receives progress events, and a `Caution` where one is due.", option=False
    )

    def __post_init__(self) -> None:
        check_params(self)
        levels = PROTOCOLS.find(self.protocol).security
        if self.security not in levels:
            raise ConfigError(
                f"The security parameter of {self.protocol} must be "
                f"{' or '.join(map(str, levels))}. Got {self.security!r} instead."
            )
        if self.hide_sizes and not self.helped:
            raise ConfigError(
                "Only alignment with a helper can hide sizes; choose the protocol 'aided' or "
                "leave hide_sizes out."
            )
        if self.lasting and self.state is None:
            raise ConfigError(
                "Between organisations a party aligns with a state folder only, or the ids that a "
                "peer asks about would be counted anew in each run; give Alignment a state."
            )
        if self.key is not None and self.key.name != self.protocol:
            raise ConfigError(
                f"The key parameter of Alignment must be a key for {self.protocol!r}. "
                f"Got one for {self.key.name!r} instead."
            )

    @property
    def helped(self) -> bool:
        """Whether the protocol needs a third party."""
        return PROTOCOLS.find(self.protocol).helped

    @property
    def party_state(self) -> PartyState:
        return PartyState(self.state)

    def report(self, event: Event | Caution) -> None:
        if self.on_event is not None:
            self.on_event(event)

    def server_key(self) -> PsiServer:
        """The given key, the kept one, or a new one, kept where there is a state folder."""
        kind = PROTOCOLS.find(self.protocol).server
        if kind is None:
            raise ConfigError(self._no_server())
        path = self.party_state.key_file(self.protocol)
        key: PsiServer
        if self.key is not None:
            key = self.key
        elif path is not None and path.exists():
            key = kind.load(path)
        else:
            key = kind.generate(self.security)
            if path is not None:
                key.save(path)
        key.check_security(self.security)
        return key

    def client(self, public: bytes, proof: bytes) -> PsiClient:
        """The client's side for a server's key; BadElement if the key is not acceptable."""
        side = PROTOCOLS.find(self.protocol).client
        if side is None:
            raise ConfigError(self._no_server())
        return side(public, proof, self.security, self.pool)

    def _no_server(self) -> str:
        return f"Alignment by {self.protocol!r} has no server and no client, but a helper."


# ---- what protocols share -------------------------------------------------------------------


def read_private_key(path: Path) -> Any:
    """The key in a PEM file, of whatever kind; the protocol says whether it is its own."""
    try:
        return serialization.load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist.") from None
    except ValueError:
        raise StoreError(f"{path} is damaged: it is not a key.") from None


def name_key(protocol: str, public: bytes) -> str:
    """The name of a public key, for files that belong to it."""
    return hashlib.sha256(b"vfsl-psi-key-v1" + _frame(protocol.encode(), public)).hexdigest()


def bind_tags(
    protocol: str, client: str, server: str, client_nonce: bytes, server_nonce: bytes, public: bytes
) -> bytes:
    """The context of one intersection of two parties: tags of two contexts are never equal."""
    names = protocol.encode(), client.encode(), server.encode()
    content = _frame(*names, client_nonce, server_nonce, public)
    return hashlib.sha256(b"vfsl-psi-run-v1" + content).digest()


def hash_element(protocol: bytes, digest: bytes, element: bytes) -> bytes:
    """F_k(id) from the unblinded element: 32 bytes, whatever the width of the group."""
    return hashlib.sha256(b"vfsl-psi-value-v1" + protocol + digest + element).digest()


def make_tags(values: ByteRows, context: bytes) -> ByteRows:
    """Tags of 128 bits: at a million ids on each side, a false match has a chance of 2^-88."""
    sha256, prefix = hashlib.sha256, b"vfsl-psi-tag-v1" + context
    return map_rows(lambda value: sha256(prefix + value).digest()[:TAG_BYTES], values, TAG_BYTES)


def _frame(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)
