"""How long a run's messages would take over a slow network, from its transcript."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from vfsl.channel.transcript import Event, Transcript
from vfsl.errors import ChannelError


def count_rounds(transcript: Transcript) -> int:
    """The longest chain of messages, each sent after the one before had arrived.

    What a party could send ahead does not lengthen the chain: it is what a run waits for.
    """
    return round(_replay(transcript.events, latency=1.0, seconds_per_byte=0.0))


def estimate_seconds(
    transcript: Transcript, latency: float = 0.05, bits_per_second: float = 20e6
) -> float:
    """Seconds until the last message of a run has arrived, if computing took no time.

    Parameters
    ----------
    transcript : Transcript
        Of one or more runs in which every message was read.
    latency : float
        Seconds from the last bit that leaves until it arrives.
    bits_per_second : float
        Of each party's line, which carries its messages one after the other, to whomever.
    """
    return _replay(transcript.events, latency, 8 / bits_per_second)


def _replay(events: Iterable[Event], latency: float, seconds_per_byte: float) -> float:
    """When the last message arrives; the messages of a pair arrive in the order of sending."""
    left: dict[str, deque[Event]] = defaultdict(deque)
    for event in events:
        left[event.party].append(event)
    now: dict[str, float] = defaultdict(float)  # of each party
    free: dict[str, float] = defaultdict(float)  # when its line is
    on_the_way: dict[tuple[str, str], deque[float]] = defaultdict(deque)
    end, moving = 0.0, True
    while moving:
        moving = False
        for party, mine in left.items():
            while mine and (mine[0].sends or on_the_way[mine[0].peer, party]):
                event, moving = mine.popleft(), True
                if event.sends:
                    free[party] = max(now[party], free[party]) + event.bytes * seconds_per_byte
                    on_the_way[party, event.peer].append(free[party] + latency)
                    end = max(end, free[party] + latency)
                else:
                    came = on_the_way[event.peer, party].popleft()
                    now[party] = max(now[party], came)
    for party, mine in left.items():
        if mine:
            raise ChannelError(
                f"The transcript lacks a message that {party!r} took from {mine[0].peer!r}: it has "
                "to hold all parties' messages.",
                mine[0].peer,
            )
    return end
