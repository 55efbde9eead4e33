"""What an evaluation says to people: does the partner help, does completion, and what to do next.

Every answer has the interval of a paired difference on the rows that it was measured on. A gain
does not help if its interval ends below the least gain that matters; else it helps if the whole
interval is above 0; else the rows cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vfsl.job.judging import RMSE, Interval, Scores

Verdict = Literal["helps", "hurts", "does not help", "cannot tell"]
LEAST_GAIN = 0.01  # of AUC or accuracy; of RMSE this fraction of what it is compared with
_WORDS: dict[Verdict, str] = {
    "helps": "yes",
    "hurts": "no, it harms",
    "does not help": "no",
    "cannot tell": "the rows cannot tell",
}


@dataclass(frozen=True)
class Way:
    """How a model was trained: its kind, and on which rows."""

    model: str
    rows: Literal["common", "completed", "all"]


@dataclass(frozen=True)
class Question:
    """What people want to know, and its answer.

    Attributes
    ----------
    asks : str
        "What do the other parties' columns add?"
    about, over : str
        The two that are compared.
    measure : str
    rows : int
        How many rows it was measured on.
    which : str
        Which rows these are.
    value, low, high : float
    verdict : str
    """

    asks: str
    about: str
    over: str
    measure: str
    rows: int
    which: str
    value: float
    low: float
    high: float
    verdict: Verdict

    @property
    def gain(self) -> str:
        return f"{self.measure} {self.value:+.3f} ({self.low:+.3f} to {self.high:+.3f})"

    @property
    def text(self) -> str:
        """The answer in a sentence."""
        return (
            f"{self.asks} {_WORDS[self.verdict].capitalize()}: {self.gain} on {self.rows:,} "
            f"{self.which} rows, “{self.about}” beside “{self.over}”."
        )

    def to_plain(self) -> dict[str, Any]:
        return {**asdict(self), "text": self.text}


def judge_gain(found: Interval, least: float) -> Verdict:
    """What the bounds of a gain say."""
    if found.high < 0:
        return "hurts"
    if found.high < least:
        return "does not help"
    return "helps" if found.low > 0 else "cannot tell"


def ask(
    asks: str, scores: Scores, about: str, over: str, measure: str, rows: int, which: str
) -> Question:
    """One question, answered."""
    found = scores.gain(about, over, measure)
    least = LEAST_GAIN
    if measure == RMSE:
        least *= scores.interval(over, measure).value
    return Question(
        asks,
        about,
        over,
        measure,
        rows,
        which,
        found.value,
        found.low,
        found.high,
        judge_gain(found, least),
    )


def ask_all(
    scores: Scores, ways: Mapping[str, Way], alone: Sequence[str], measure: str, rows: int
) -> list[Question]:
    """What the partners' columns add, what completed rows add, and what learning from all adds."""
    kinds = {
        kind: [name for name, way in ways.items() if way.rows == kind]
        for kind in ("common", "completed", "all")
    }
    best_alone = scores.best(alone, measure)
    held = "held-out"
    found = []
    first = scores.best(kinds["common"] or list(ways), measure)
    asks = "Do the other parties' columns help?"
    found.append(ask(asks, scores, first, best_alone, measure, rows, held))
    for name in kinds["completed"]:
        twins = [other for other in kinds["common"] if ways[other].model == ways[name].model]
        if twins:
            asks = "Do completed rows help?"
            found.append(ask(asks, scores, name, twins[0], measure, rows, held))
    for name in kinds["all"]:
        if kinds["common"]:
            best = scores.best(kinds["common"], measure)
            asks = f"Does {ways[name].model.upper()} help?"
            found.append(ask(asks, scores, name, best, measure, rows, held))
    return found


def give_headline(
    questions: Sequence[Question], scores: Scores, holder: str, measure: str
) -> tuple[str, Verdict]:
    """The best simple way and what to do next, in one or two sentences."""
    partner, *others = questions
    value = scores.interval(partner.about, measure).value
    if partner.verdict in ("hurts", "does not help"):
        text = (
            f"Stay with what {holder} has alone (“{partner.over}”): the other parties' columns add "
            f"{partner.gain}."
        )
        return text, partner.verdict
    chosen = partner.about
    for one in others:
        if one.over == chosen and one.verdict == "helps":
            chosen = one.about
    rest = [one for one in others if one.about != chosen]
    if partner.verdict == "cannot tell":
        text = (
            f"Hold out more rows before deciding: “{partner.about}” adds {partner.gain} to what "
            f"{holder} has alone, and {partner.rows:,} rows cannot tell whether that is chance."
        )
        return text, "cannot tell"
    value = scores.interval(chosen, measure).value
    text = (
        f"Use “{chosen}”: held-out {measure} {value:.3f}; the other parties' columns add "
        f"{partner.gain}."
    )
    for one in rest:
        words = "not worth it" if one.verdict != "cannot tell" else "not sure enough to use"
        if one.verdict == "helps":
            words = f"better than “{one.over}”, not than “{chosen}”"
        text += f" “{one.about}” adds {one.gain}: {words}."
    return text, "helps"
