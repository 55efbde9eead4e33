"""Probes that count: the view budget, draws that public facts repeat, ids that were asked about."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from vfsl.align import Alignment, CurveKey, Limits, intersect_client, intersect_server, prepare_ids
from vfsl.audit.findings import Change, Control, Finding, Marks, at_chance, open_door
from vfsl.audit.probe import Probe
from vfsl.audit.views import Case
from vfsl.channel import Channel, run_together, wire
from vfsl.data import Kind
from vfsl.draws import PrivateSeed, public_rng
from vfsl.errors import LimitReached
from vfsl.record import Shown

_BITS = 32  # of a number
_FIRST = 4  # draws of a generator that are compared


# ---- the view budget ----------------------------------------------------------------------------


def attack_budget(case: Case, probe: Probe) -> Iterator[Finding]:
    """Exact numbers that one party has seen of another, in bits, over all that is unknown."""
    shown = [one for scene in case.scenes for record in scene.records for one in record.shown]
    pairs = [(a, t) for a in case.parties for t in case.parties if a != t]
    for attacker, target in pairs:
        for about in ("columns", "label"):
            hidden = _hidden_bits(case, target, about)
            bits, told = count_bits(shown, attacker, target, about)
            if not hidden or (about == "label" and not bits):
                continue
            yield probe.finding(
                attacker,
                target,
                bits / hidden,
                0.0,
                _budget_controls(hidden, attacker, target, about, probe.marks),
                line=told or "no exact numbers",
                change=Change(
                    "show fewer results, or set limits.numbers in party.toml: a party refuses what "
                    "goes beyond"
                )
                if bits
                else None,
                note=f"about {about}: {bits // _BITS:,} numbers",
            )


def count_bits(shown: Iterable[Shown], attacker: str, target: str, about: str) -> tuple[int, str]:
    """Bits that one party saw of another's columns or label, and in which lines of the ledger."""
    mine = [
        one
        for one in shown
        if (one.receiver, one.sender, one.about) == (attacker, target, about) and one.counted
    ]
    lines = sorted({f"{one.step}: {one.what}" for one in mine})
    return sum(one.counted for one in mine) * _BITS, "; ".join(lines)


def _hidden_bits(case: Case, party: str, about: str) -> float:
    """Bits of a table that nobody else knows: 32 per number, log2 of a category's levels."""
    table = case.tables[party]
    labels = [name for name in table.columns if table.kinds[name] is Kind.LABEL]
    names = labels if about == "label" else list(table.features)
    bits = 0.0
    for name in names:
        cells = table.column(name)
        levels = max(int(cells.nunique()), 2)
        number = table.kinds[name] is Kind.NUMERIC
        bits += int(cells.notna().sum()) * (_BITS if number else math.log2(levels))
    return bits


def _budget_controls(
    hidden: float, attacker: str, target: str, about: str, marks: Marks
) -> list[Control]:
    """As many numbers as twice the table, shown to the attacker, and shown to somebody else."""
    count = 2 * math.ceil(hidden / _BITS)
    ratios = [
        count_bits(
            [Shown("a step", target, receiver, "cells", about, count, count)],
            attacker,
            target,
            about,
        )[0]
        / hidden
        for receiver in (attacker, f"not {attacker}")
    ]
    return [
        open_door("the table itself, twice", ratios[0], marks),
        at_chance("the same, shown to another party", ratios[1], marks),
    ]


# ---- draws --------------------------------------------------------------------------------------


def attack_seed(case: Case, probe: Probe) -> Iterator[Finding]:
    """Private draws of a party that follow from the job's seed, which everybody knows."""
    for target, site in case.sites.items():
        purposes = sorted(site.standing.drawn)
        seed = site.terms.seed
        for attacker in [party for party in case.parties if party != target][:1]:
            matched = [one for one in purposes if _repeats(site.private, one, target, seed)]
            simulated = PrivateSeed.of_simulation(target, seed)
            drawn = PrivateSeed.from_system(target)
            some = purposes or ["a draw"]
            yield probe.finding(
                "anybody" if len(case.parties) > 2 else attacker,
                target,
                len(matched),
                0.0,
                [
                    open_door(
                        "draws of a simulation",
                        sum(_repeats(simulated, one, target, seed) for one in some),
                        probe.marks,
                    ),
                    at_chance(
                        "draws of the operating system",
                        sum(_repeats(drawn, one, target, seed) for one in some),
                        probe.marks,
                    ),
                ],
                line=f"private draws of {target}: {', '.join(matched)}"
                if matched
                else "no message",
                change=Change(
                    'draw from the operating system: private_draws = "system" under [run]; between '
                    "companies it is always so"
                )
                if matched
                else None,
                note=f"{len(purposes)} kinds of private draws",
            )


def _repeats(private: PrivateSeed, purpose: str, party: str, seed: int) -> bool:
    """Whether generators that anybody can make draw what the party drew."""
    drawn = private.rng(purpose).integers(0, 1 << 62, _FIRST)
    guesses = (
        PrivateSeed.of_simulation(party, seed).rng(purpose),
        public_rng(seed, purpose),
        public_rng(seed, f"{purpose} {party}"),
        np.random.default_rng(seed),
    )
    return any((guess.integers(0, 1 << 62, _FIRST) == drawn).all() for guess in guesses)


# ---- set intersection ---------------------------------------------------------------------------


def attack_ids(case: Case, probe: Probe) -> Iterator[Finding]:
    """How many ids one party asked another about, over the other's own list."""
    asked: dict[tuple[str, str], int] = defaultdict(int)
    sizes: dict[str, int] = {}
    for scene in case.scenes:
        for sight in scene.transcript.sights:
            what = sight.name.rpartition("/")[2]
            if what in ("asked", "list"):
                _note_asked(case, sight.receiver, sight.sender, sight.body, asked)
    controls = probe_ids(probe.marks)
    for (attacker, target), count in asked.items():
        sizes[target] = len(case.tables[target])
        yield probe.finding(
            attacker,
            target,
            count / max(sizes[target], 1),
            0.0,
            controls,
            line=f"align: {attacker} → {target}: asked ({count:,} ids)",
            change=Change(
                "set limits.asked in party.toml of the party that answers; by default a deployment "
                "refuses more than three times its own list"
            )
            if count > 2 * sizes[target]
            else None,
            note=f"{count:,} ids against a list of {sizes[target]:,}",
        )


def _note_asked(
    case: Case, target: str, attacker: str, body: bytes, asked: dict[tuple[str, str], int]
) -> None:
    if target in case.tables and attacker in case.tables:
        asked[attacker, target] += int(wire.decode(body)[1]["ids"])


def probe_ids(marks: Marks) -> list[Control]:
    """The attack itself, small: all numbers of a block, with and without a party's cap."""
    block = [f"+86 139 0000 {number:04d}" for number in range(240)]
    customers = sorted(np.random.default_rng(7).choice(block, 20, replace=False).tolist())
    found = ask_about(block, customers, Limits(asked=len(block)))
    try:
        refused = ask_about(block, customers, Limits())
    except LimitReached:
        refused = 0
    ratio = len(block) / len(customers)
    return [
        open_door("a block of guesses, no cap", ratio * found / len(customers), marks),
        at_chance(
            "the same block at a party with its cap", ratio * refused / len(customers), marks
        ),
    ]


def ask_about(guesses: list[str], customers: list[str], limits: Limits) -> int:
    """How many customers a client finds by one set intersection with these guesses."""
    server = Alignment(protocol="ecdh", key=CurveKey.generate(), limits=limits)
    client = Alignment(protocol="ecdh", limits=Limits(minimum=0))
    roles: dict[str, Callable[[Channel], Any]] = {
        "attacker": partial(
            intersect_client, server="server", ids=prepare_ids("attacker", guesses), how=client
        ),
        "server": partial(
            intersect_server, client="attacker", ids=prepare_ids("server", customers), how=server
        ),
    }
    return len(run_together(roles)["attacker"].numbers)


BUDGET = Probe(
    "view-budget",
    "How much of the other's table do all exact numbers that it saw add up to?",
    "bits seen over bits unknown",
    Marks(0.1, 1.0),
    attack_budget,
)
SEED = Probe(
    "seed-replay",
    "Could anybody who knows the job repeat a party's private draws?",
    "kinds of private draws matched",
    Marks(0.0, 0.5),
    attack_seed,
)
IDS = Probe(
    "psi-probing",
    "Did it ask about more people than the other has, to find out who is a customer?",
    "ids asked over the other's list",
    Marks(2.0, 10.0),
    attack_ids,
)
