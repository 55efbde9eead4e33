"""What parties of linear protocols have opened, as they see it, and tables to attack."""

import threading

import numpy as np
import pandas as pd

import vfsl
from vfsl.crypto.session import Exchange
from vfsl.crypto.shares import Session, Shared
from vfsl.crypto.words import to_signed, unpack
from vfsl.estimators import exchange, least_squares


class Opened:
    """Collects what each party has opened, by its scope: the attacker's own unmasked numbers."""

    def __init__(self, monkeypatch):
        self.gradients, self.scores = [], []
        self._lock = threading.Lock()
        self._listen(monkeypatch, least_squares, "open_masked", self.gradients)
        for module in (least_squares, exchange):
            self._listen(monkeypatch, module, "open_total", self.scores)

    def _listen(self, monkeypatch, module, name, kept):
        opened = getattr(module, name)

        def listen(channel, *rest):
            answer = opened(channel, *rest)
            with self._lock:
                kept.append((channel.me, channel.scope, answer))
            return answer

        monkeypatch.setattr(module, name, listen)

    def gradients_of(self, party):
        return [(scope, values) for me, scope, values in self.gradients if me == party]

    def scores_of(self, party):
        return [(scope, values) for me, scope, values in self.scores if me == party]


def people(rows, columns=10, seed=0, rest=60):
    """A's columns, and B's: two binary ones that A's columns only hint at, and numbers."""
    rng = np.random.default_rng(seed)
    total = rows + rest
    a = rng.normal(size=(total, columns))
    hint = a[:, 0] + a[:, 1]
    b = pd.DataFrame(
        {
            "married": np.where(0.5 * hint + rng.normal(size=total) > 0.1, "yes", "no"),
            "sex": np.where(rng.random(total) < 0.45, "f", "m"),
            "income": hint + rng.normal(size=total),
        }
    )
    ids = [f"person-{row}" for row in range(total)]
    a = pd.DataFrame(a, columns=[f"a{j}" for j in range(columns)])
    a.insert(0, "id", ids)
    b.insert(0, "id", ids)
    return a, b


def federation(a, b, common, scheme="plain", **how):
    fed = vfsl.simulate({"A": a, "B": b.iloc[:common]}, id="id", scheme=scheme, **how)
    fed.align("A", "B", protocol="ecdh")
    return fed


class Words:
    """All that each party is sent and shown while the parties compute on shares.

    ``hide=False`` takes the masks away: the same messages, as a broken protocol would send them.
    """

    def __init__(self, monkeypatch, hide=True):
        self.seen, self.opened = [], []
        self._lock = threading.Lock()
        join, receive, show = Session.join, Exchange.receive_bytes, Shared.open

        def listen(session, sender, name, size=None):
            content = receive(session, sender, name, size)
            with self._lock:
                self.seen.append((session.me, content))
            return content

        def watch(shared, to=None, *, name, about=()):
            answer = show(shared, to, name=name, about=about)
            if answer is not None:
                with self._lock:
                    self.opened.append((shared.session.me, name, answer))
            return answer

        def enter(*given, **how):
            return join(*given, **{**how, "hide": hide})

        monkeypatch.setattr(Session, "join", enter)
        monkeypatch.setattr(Exchange, "receive_bytes", listen)
        monkeypatch.setattr(Shared, "open", watch)

    def opened_to(self, party, name):
        return [values for me, what, values in self.opened if me == party and what == name]

    def columns(self, party, rows):
        """Everything that a party was sent and that has numbers for so many rows, as columns."""
        found = []
        for me, content in self.seen:
            if me != party:
                continue
            for width in (24, 32, 40, 48, 56, 64):
                count, left = divmod(len(content) * 8, width * rows)
                if count and not left:
                    words = unpack(content, width, (rows, count))
                    found.append(to_signed(words, width).astype(float))
        return np.hstack(found)
