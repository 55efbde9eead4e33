"""Run records: what was run on what, how it ended, and what left each party. Kept as JSON."""

from __future__ import annotations

import hashlib
import hmac
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from vfsl import store
from vfsl.errors import StoreError

FORMAT = 1
FILE_NAME = "record.json"
_PACKAGES = ("vfsl", "numpy", "pandas", "scikit-learn", "scipy", "gmpy2", "cryptography", "torch")


@dataclass(frozen=True)
class Flow:
    """All messages of one name from one party to another in one step: a line of the ledger."""

    step: str
    sender: str
    receiver: str
    message: str
    kind: str
    messages: int
    bytes: int
    fact: str


@dataclass(frozen=True)
class Shown:
    """Numbers about one party's own rows that another party saw in one step.

    ``counted`` of the ``numbers`` go against the party's budget; the others follow from those, or
    have noise, which promises ``epsilon`` for a row.
    """

    step: str
    sender: str
    receiver: str
    what: str
    about: str
    numbers: int
    counted: int
    epsilon: float = 0.0


@dataclass(frozen=True)
class PartyFacts:
    """What the record says about a party's data: sizes, and a fingerprint only it can check."""

    rows: int
    columns: int
    fingerprint: str


@dataclass(frozen=True)
class StepRecord:
    """One step of a run.

    ``details`` is what the report page draws: plain JSON lists of aggregates, never ids, and never
    a number that stands for fewer than ten rows (`vfsl.data.aggregates`).
    """

    name: str
    settings: Mapping[str, Any]
    seconds: float
    metrics: Mapping[str, Any] = field(default_factory=dict)
    rounds: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str | None = None
    notes: tuple[str, ...] = ()
    flows: tuple[Flow, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    shown: tuple[Shown, ...] = ()

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> StepRecord:
        """The step whose ``asdict`` this is."""
        listed = {
            "rounds": tuple(content["rounds"]),
            "notes": tuple(content["notes"]),
            "flows": tuple(Flow(**flow) for flow in content["flows"]),
            # Records of earlier versions have none.
            "shown": tuple(Shown(**line) for line in content.get("shown", ())),
        }
        return cls(**{**content, **listed})


@dataclass(frozen=True)
class RunRecord:
    """A whole run."""

    run: str
    created: str
    seed: int
    scheme: str
    parties: Mapping[str, PartyFacts]
    steps: tuple[StepRecord, ...]
    versions: Mapping[str, str]
    private_draws: str = "not recorded"  # where the parties' private draws came from

    @property
    def ledger(self) -> tuple[Flow, ...]:
        """What left each party, step by step."""
        return tuple(flow for step in self.steps for flow in step.flows)

    @property
    def shown(self) -> tuple[Shown, ...]:
        """The exact numbers about each party's rows that others saw, step by step."""
        return tuple(line for step in self.steps for line in step.shown)

    def save(self, folder: Path) -> Path:
        path = folder / FILE_NAME
        store.write_json(path, {"format": FORMAT, **asdict(self)})
        return path

    @classmethod
    def load(cls, folder: Path) -> RunRecord:
        path = folder / FILE_NAME
        content = store.read_json(path)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise StoreError(f"{path} is not a run record of format {FORMAT}.")
        try:
            steps = tuple(StepRecord.from_dict(step) for step in content["steps"])
            parties = {name: PartyFacts(**facts) for name, facts in content["parties"].items()}
            rest = {key: content[key] for key in ("run", "created", "seed", "scheme", "versions")}
            if "private_draws" in content:
                rest["private_draws"] = content["private_draws"]
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{path} is damaged: {error}.") from None
        return cls(parties=parties, steps=steps, **rest)


def versions() -> dict[str, str]:
    """Versions that matter for repeating a run."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def fingerprint(key: bytes, *parts: bytes) -> str:
    """A keyed digest of data: nobody without the key can test guesses against it."""
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:32]
