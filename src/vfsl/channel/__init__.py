"""Messages between parties: one channel over interchangeable transports."""

from vfsl.channel.base import About, Budget, Channel, PartyChannel
from vfsl.channel.expect import expect_array, expect_integer
from vfsl.channel.run import Player, run_together
from vfsl.channel.sealing import Attempt, seal
from vfsl.channel.transcript import Entry, Transcript
from vfsl.channel.transport import Transport

__all__ = [
    "About",
    "Attempt",
    "Budget",
    "Channel",
    "Entry",
    "PartyChannel",
    "Player",
    "Transcript",
    "Transport",
    "expect_array",
    "expect_integer",
    "run_together",
    "seal",
]
