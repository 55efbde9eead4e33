"""Submit, look up and fetch runs from a party's own folder."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vfsl.deploy.budget import near_limit
from vfsl.deploy.config import SUBMIT_FOLDER, load_party, load_project
from vfsl.deploy.engine import PARTY_CLASS, JobFacts, job_facts, session, write_job
from vfsl.deploy.job import job_hash, load_shared_job, opened_job, sealed_text
from vfsl.deploy.provision import PROJECT_FILE, submitter_name
from vfsl.deploy.runs import ENDED, RunFolder, Status, all_runs
from vfsl.errors import ConfigError, TimedOut, VfslError
from vfsl.job.schema import SharedJob
from vfsl.store import read_json, write_json

_SYNC_SECONDS = 120.0
_ASK_EVERY = 15.0  # seconds between two questions to the relay about a run that has not begun


def submit_job(folder: Path, job_file: Path, *, secure: bool = True) -> str:
    """Start a new run of a job; returns its name.

    Parameters
    ----------
    folder : Path
        The folder of the party that submits.
    job_file : Path
    secure : bool
        NVFlare's own encryption below ours; tests turn it off to see that ours is enough.
    """
    job = load_shared_job(job_file)
    run = time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)
    text = sealed_text(job)
    return _submit(folder, run, job, text, secure)


def resume_run(folder: Path, run: str, *, secure: bool = True) -> str:
    """Start a further attempt of a run that did not end well; returns its name."""
    kept = RunFolder(folder, run)
    path = kept.path / "job.json"
    if not path.exists():
        raise ConfigError(f"Run {run!r} was not submitted from {folder}.")
    state = kept.status().state if kept.path.joinpath("status.json").exists() else None
    if state == "finished":
        raise ConfigError(f"Run {run!r} has ended well; submit its job again for a new run.")
    if state == "running":
        raise ConfigError(
            f"Run {run!r} is still going, so it cannot be resumed; "
            f"see: vfsl deploy status {folder} {run}."
        )
    text = str(read_json(path)["text"])
    job = opened_job(text, job_hash(text), load_party(folder).party)
    if isinstance(job, str):
        raise ConfigError(f"This party {job}")
    return _submit(folder, run, job, text, secure)


def _submit(folder: Path, run: str, job: SharedJob, text: str, secure: bool) -> str:
    mine = load_party(folder)
    project = load_project(folder / PROJECT_FILE)
    for party in job.everyone:
        if party not in project.everyone:
            known = ", ".join(project.everyone)
            raise ConfigError(f"The project has no party {party!r}; it has {known}.")
    kept = RunFolder(folder, run)
    before = read_json(kept.path / "job.json") if (kept.path / "job.json").exists() else {}
    attempt = int(before.get("attempt", 0)) + 1
    content = {"text": text, "hash": job_hash(text), "attempt": attempt}
    write_json(kept.path / "job.json", content)
    kept.attempt = attempt
    kept.note("submitted", "The run waits for all parties to take part.")
    arguments = {
        "run": run,
        "attempt": attempt,
        "leader": mine.party,
        "parties": list(job.everyone),
        "job": job_hash(text),
        "secure": secure,
    }
    user = submitter_name(project.name, mine.party)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        made = write_job(place, f"vfsl-{run}", job.everyone, PARTY_CLASS, arguments, _SYNC_SECONDS)
        try:
            with session(folder / SUBMIT_FOLDER, user) as opened:
                engine_job = str(opened.submit_job(str(made)))
        except VfslError as error:
            kept.fail(error)
            raise
    write_json(kept.path / "job.json", content | {"engine job": engine_job})
    return run


def engine_state(folder: Path, run: str) -> str:
    """What the relay says of a run that was submitted from this folder."""
    return _engine_facts(folder, run).state


def _engine_facts(folder: Path, run: str) -> JobFacts:
    mine, project = load_party(folder), load_project(folder / PROJECT_FILE)
    content = read_json(RunFolder(folder, run).path / "job.json")
    user = submitter_name(project.name, mine.party)
    return job_facts(folder / SUBMIT_FOLDER, user, str(content["engine job"]))


def follow_engine(folder: Path, run: str) -> Status:
    """How a run stands; of one that has not begun, after a question to the relay.

    A run that the relay has given up has failed, and one that waits says for whom.
    """
    kept = RunFolder(folder, run)
    status = kept.status()
    content = read_json(kept.path / "job.json") if (kept.path / "job.json").exists() else {}
    if status.state != "submitted" or "engine job" not in content:
        return status
    try:
        facts = _engine_facts(folder, run)
    except VfslError as error:
        return replace(status, sentence=f"{status.sentence} The relay cannot be asked: {error}")
    parties = opened_job(str(content["text"]), str(content["hash"]), load_party(folder).party)
    everyone = () if isinstance(parties, str) else parties.everyone
    missing = [party for party in everyone if party not in facts.connected]
    status = kept.status()
    if status.state != "submitted":
        return status  # it has begun meanwhile
    said = judge_waiting(run, facts, missing)
    if facts.state.startswith("FINISHED"):
        kept.attempt = status.attempt
        kept.note("failed", said, missing[0] if missing else None)
        return kept.status()
    return replace(status, sentence=said, party=None)


def judge_waiting(run: str, facts: JobFacts, missing: list[str]) -> str:
    """Why a run has not begun, and what to do."""
    names = ", ".join(map(repr, missing))
    away = (
        f" Not connected to the relay: {names}; there, see that `vfsl deploy start` runs, and its "
        "engine.log for an expired or not yet valid certificate."
        if missing
        else ""
    )
    if facts.state.startswith("FINISHED"):
        tried = f" (last try: {facts.last_try})" if facts.last_try else ""
        return (
            f"The relay ended the run before it began: {facts.state}{tried}.{away} Then go on by: "
            f"vfsl deploy submit --resume {run}"
        )
    if missing:
        return f"The run waits.{away}"
    return f"The run waits for the relay to begin it; the relay says {facts.state}."


def wait_for(
    folder: Path, run: str, seconds: float, on_change: Callable[[Status], None] | None = None
) -> Status:
    """Wait until a run has ended at this party, well or not; TimedOut if it has not by then."""
    kept, deadline, last = RunFolder(folder, run), time.monotonic() + seconds, None
    asked = time.monotonic()
    while time.monotonic() < deadline:
        status = kept.status()
        if status.state == "submitted" and time.monotonic() - asked > _ASK_EVERY:
            status, asked = follow_engine(folder, run), time.monotonic()
        if status != last and on_change is not None:
            on_change(status)
        if status.state in ENDED:
            return status
        last = status
        time.sleep(0.3)
    sentence = "" if last is None else f" {last.sentence}"
    raise TimedOut(f"Run {run!r} has not ended after {seconds:g} s.{sentence}")


def status_lines(folder: Path, run: str | None = None) -> list[str]:
    """How this party's runs stand, one line each, and whose budget is nearly used up."""
    kept = all_runs(folder) if run is None else [RunFolder(folder, run)]
    return [*(_line(follow_engine(folder, one.name)) for one in kept), *near_limit(folder)]


def fetch_results(folder: Path, run: str, out: Path) -> list[str]:
    """Copy this party's own results of a run; there are no others here."""
    kept = RunFolder(folder, run)
    if kept.status().state == "finished":
        kept.publish()
    if not kept.results.is_dir():
        raise ConfigError(f"Run {run!r} has no results here: {_line(kept.status())}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"The output folder {out} exists and is not empty; choose another name.")
    shutil.copytree(kept.results, out, dirs_exist_ok=True)
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


def _line(status: Status) -> str:
    who = f" ({status.party} failed)" if status.party else ""
    return f"{status.run} attempt {status.attempt}: {status.state}{who}; {status.sentence}"
