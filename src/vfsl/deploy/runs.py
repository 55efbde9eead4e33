"""A party's own folder of one run: attempts, progress, checkpoints, results.

runs/RUN/attempt.json   the last attempt; an older or repeated one is refused
         status.json    what became of it, in one sentence
         spare          while it runs: room for the last word on a full disk
         job.json       at the leader: the job that it submitted
         private.json   the party's private seed of this run; it stays when the run has ended
         state/         finished steps of an unfinished run; no keys, no masks
         results/       appears as a whole when the run has ended well
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vfsl.errors import ChannelError, ConfigError, ProtocolError, StoreError
from vfsl.record import StepRecord
from vfsl.store import Checkpoints, is_full, read_json, write_bytes, write_json

RUNS = "runs"
_SPARE_BYTES = 1 << 14
ENDED = ("finished", "failed", "refused", "interrupted")
_SAME_START = 1.0  # seconds by which two readings of when a process began may differ


@dataclass(frozen=True)
class Status:
    """How a run stands at one party."""

    run: str
    attempt: int
    state: str  # "submitted", "running", or one of ENDED
    sentence: str
    party: str | None  # who failed, where one did
    finished_steps: int
    time: str
    process: tuple[int, float] | None = None  # of a running attempt: its number, when it began


class RunFolder:
    """Everything that one party keeps of one run.

    Parameters
    ----------
    folder : Path
        The party's own folder.
    run : str
    """

    def __init__(self, folder: Path, run: str) -> None:
        if not run or not all(c.isalnum() or c in "-_" for c in run):
            raise ConfigError(
                f"The name of a run must be letters, digits, - and _. Got {run!r} instead."
            )
        self.name = run
        self.path = folder / RUNS / run
        self.results = self.path / "results"
        self.state = self.path / "state"
        self.private_seed = self.path / "private.json"
        self._prepared = self.path / ".results"
        self._spare = self.path / "spare"  # room for the last word, should the disk be full
        self.attempt = 0
        self.finished = 0  # steps
        self._knows_why = False

    def begin(self, attempt: int, job: str) -> None:
        """Note a new attempt; one that is not newer than the last could be a repeated message."""
        last = self.last_attempt()
        if attempt <= last:
            raise ProtocolError(
                f"Attempt {attempt} of run {self.name!r} is refused: attempt {last} was seen here."
            )
        self.attempt = attempt
        write_bytes(self._spare, bytes(_SPARE_BYTES))
        write_json(self.path / "attempt.json", {"attempt": attempt, "job": job})
        self.note("running", "The run has begun.")

    def last_attempt(self) -> int:
        path = self.path / "attempt.json"
        return int(read_json(path)["attempt"]) if path.exists() else 0

    def note(self, state: str, sentence: str, party: str | None = None) -> None:
        """Write down how the run stands; whoever looks sees the old or the new, never half."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        process = identify_process(os.getpid()) if state == "running" else None
        if state != "running":
            self._spare.unlink(missing_ok=True)
        status = Status(
            self.name, self.attempt, state, sentence, party, self.finished, now, process
        )
        write_json(self.path / "status.json", asdict(status))

    def status(self) -> Status:
        """How the run stands; a run whose process has gone without a word is interrupted."""
        content = read_json(self.path / "status.json")
        try:
            status = Status(**content)
        except TypeError:
            raise StoreError(f"{self.path / 'status.json'} is damaged.") from None
        if status.state == "running" and status.process is not None:
            number, began = status.process
            now = identify_process(number)
            if now is None or abs(now[1] - began) > _SAME_START:
                gone = (
                    f"Its process on this machine has ended without a word. {status.sentence} "
                    "To go on, the party that submitted it runs: vfsl deploy submit --resume "
                    f"{self.name}"
                )
                return replace(status, state="interrupted", sentence=gone)
        return status

    def fail(self, error: BaseException) -> None:
        """Note why an attempt ended; the text of an own error stays in this folder."""
        party = getattr(error, "party", None) if isinstance(error, ChannelError) else None
        state = "refused" if isinstance(error, Refused) else "failed"
        self._knows_why = True
        sentence = f"{type(error).__name__}: {error}"
        if is_full(error):
            sentence = (
                f"No space left in {self.path.parent}. Free some, then the party that submitted "
                f"the run goes on by: vfsl deploy submit --resume {self.name}"
            )
        self.note(state, sentence, party)

    def note_failure(self, party: str, reason: str) -> None:
        """Note that another party failed, even while this one still computes."""
        if not self._knows_why:
            self.note("failed", f"Party {party!r} failed ({reason}).", party)

    # ---- finished steps -----------------------------------------------------------------------

    def checkpoints(self, job: str) -> Checkpoints:
        return Checkpoints(self.state, job)

    def finished_steps(self, job: str) -> int:
        """How many steps from the first on this party has finished."""
        kept, number = self.checkpoints(job), 0
        while kept.load(f"step-{number + 1}") is not None:
            number += 1
        return number

    def keep(
        self, job: str, number: int, records: Sequence[StepRecord], standing: Mapping[str, Any]
    ) -> None:
        """A step is finished: the records so far, and what later steps go on from."""
        content = {"records": [asdict(one) for one in records], "standing": dict(standing)}
        self.checkpoints(job).save(f"step-{number}", content)

    def records(self, job: str, number: int) -> list[StepRecord]:
        """The records of all steps up to a finished one."""
        content = self.checkpoints(job).load(f"step-{number}")
        return [StepRecord.from_dict(one) for one in content["records"]] if content else []

    def standing(self, job: str, number: int) -> dict[str, Any]:
        """How this party stood after a finished step; empty before the first."""
        content = self.checkpoints(job).load(f"step-{number}")
        return dict(content["standing"]) if content else {}

    def forget_from(self, job: str, number: int, most: int) -> None:
        """Steps that another party has not finished are done again by all."""
        for later in range(number, most + 1):
            self.checkpoints(job).forget(f"step-{later}")

    def prepare(self) -> None:
        """Put the results together beside their place, before the others are told of the end."""
        shutil.rmtree(self._prepared, ignore_errors=True)
        shutil.copytree(self.state / "work", self._prepared)

    def publish(self) -> None:
        """The prepared results take their place; the run is finished, so nobody goes on from it.

        Does what is left to do of it, so that it may be called again after a crash.
        """
        if self._prepared.exists():
            shutil.rmtree(self.results, ignore_errors=True)
            self._prepared.replace(self.results)
        shutil.rmtree(self.state, ignore_errors=True)


def identify_process(number: int) -> tuple[int, float] | None:
    """A process and when it began, since numbers are used again; None if there is none."""
    import psutil  # comes with the engine

    try:
        process = psutil.Process(number)
        return None if process.status() == psutil.STATUS_ZOMBIE else (number, process.create_time())
    except psutil.NoSuchProcess:
        return None


class Refused(ProtocolError):
    """A party did not agree to a job."""


def all_runs(folder: Path) -> list[RunFolder]:
    """The runs of a party, oldest first."""
    places = [path for path in (folder / RUNS).glob("*") if (path / "status.json").exists()]
    places.sort(key=lambda path: (path / "status.json").stat().st_mtime)
    return [RunFolder(folder, path.name) for path in places]
