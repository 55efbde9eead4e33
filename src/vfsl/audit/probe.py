"""What a probe is, and how a pair of parties becomes a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from vfsl.audit.findings import INVALID, Change, Control, Finding, Marks
from vfsl.audit.views import Case

NOTHING = "no message of this kind"


@dataclass(frozen=True)
class Probe:
    """One attack, run for every pair of parties that it could concern.

    Attributes
    ----------
    name : str
        As --probe and --skip take it.
    asks : str
        The question that it answers, in words for everybody.
    number : str
        What is measured.
    marks : Marks
    attack : callable
        ``attack(case, probe)`` gives findings.
    """

    name: str
    asks: str
    number: str
    marks: Marks
    attack: Callable[[Case, Probe], Iterator[Finding]]

    def finding(
        self,
        attacker: str,
        target: str,
        value: float,
        baseline: float,
        controls: Sequence[Control],
        *,
        line: str = NOTHING,
        change: Change | None = None,
        advantage: float | None = None,
        mark: str | None = None,
        low: float | None = None,
        high: float | None = None,
        note: str = "",
    ) -> Finding:
        """A finding with its mark; "not valid" where a control fails."""
        gain = value - baseline if advantage is None else advantage
        made = Finding(
            self.name,
            attacker,
            target,
            float(value),
            float(baseline),
            float(gain),
            mark or self.marks.judge(gain),
            line,
            change or Change(""),
            tuple(controls),
            low,
            high,
            note,
        )
        return made if made.valid else _spoilt(made)


def _spoilt(finding: Finding) -> Finding:
    failed = [one.says for one in finding.controls if not one.passed]
    return replace(finding, mark=INVALID, note=f"A control failed: {'; '.join(failed) or 'none'}.")


def pairs_of(case: Case) -> Iterator[tuple[str, str]]:
    """Attacker and target: parties with columns that were aligned with each other in some step."""
    seen = set()
    for scene in case.scenes:
        aligned = [p for p in case.parties if scene.standing[p].rows is not None]
        for attacker in aligned:
            for target in aligned:
                if attacker != target and (attacker, target) not in seen:
                    seen.add((attacker, target))
                    yield attacker, target
