"""Every error that vfsl raises on purpose, in one tree.

VfslError
├── InputError                what the user gave cannot be used (exit code 2)
│   ├── DataError             a table, a column, an id
│   └── ConfigError           a job file, a parameter, a name
├── ChannelError              a message did not make it; names the party
│   ├── WireError             bytes that are not a message of ours
│   ├── UnsupportedValue      a value that may not cross a channel, or is too large
│   ├── UndeclaredMessage     a name or type that the protocol never declared
│   ├── NameMismatch          another message came than the one waited for
│   ├── PeerClosed            the peer ended without sending
│   ├── PeerFailed            the peer raised an error
│   ├── Deadlock              parties wait for each other
│   ├── TimedOut              nothing came before the deadline
│   └── Unauthentic           sealing refused; vague on purpose
├── ProtocolError             a peer sent a well-formed message that the protocol forbids
│   └── LimitReached          a peer would ask or see more than a party allows
├── CryptoError
│   ├── BoundExceeded         a value could leave the plaintext space
│   ├── KeyMismatch           ciphertexts of different keys, or an unusable key
│   └── QueryRefused          the key holder was asked what the job did not declare
└── StoreError                a file of ours is missing, damaged or of another run
"""


class VfslError(Exception):
    """Base of all errors that vfsl raises on purpose."""


class InputError(VfslError):
    """What the user gave cannot be used."""


class DataError(InputError):
    """A table, a column or an id cannot be used."""


class ConfigError(InputError):
    """A job file, a parameter or a name cannot be used."""


class ChannelError(VfslError):
    """A message did not make it; ``party`` is the peer that it concerns."""

    def __init__(self, message: str, party: str | None = None) -> None:
        super().__init__(message)
        self.party = party


class WireError(ChannelError):
    """Bytes that are not a message of ours."""


class UnsupportedValue(ChannelError):
    """A value that may not cross a channel, or is too large."""


class UndeclaredMessage(ChannelError):
    """A message name or type that the protocol never declared."""


class NameMismatch(ChannelError):
    """Another message came than the one waited for."""


class PeerClosed(ChannelError):
    """The peer ended without sending what was waited for."""


class PeerFailed(ChannelError):
    """The peer raised an error; its text stays with it, since it may quote data."""


class Deadlock(ChannelError):
    """Parties wait for each other."""


class TimedOut(ChannelError):
    """Nothing came before the deadline."""


class Unauthentic(ChannelError):
    """Sealing refused a message or a handshake; vague on purpose."""


class ProtocolError(VfslError):
    """A peer sent a well-formed message that the protocol forbids."""

    def __init__(self, message: str, party: str | None = None) -> None:
        super().__init__(message)
        self.party = party


class LimitReached(ProtocolError):
    """A peer would ask about more ids, or see more numbers, than a party allows."""


class CryptoError(VfslError):
    """Something about keys or ciphertexts is wrong."""


class BoundExceeded(CryptoError):
    """A value could leave the plaintext space."""


class KeyMismatch(CryptoError):
    """Ciphertexts of different keys, or an unusable key."""


class QueryRefused(CryptoError):
    """The key holder was asked for something that the job did not declare."""


class StoreError(VfslError):
    """A file of ours is missing, damaged or belongs to another run."""
