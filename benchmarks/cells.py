"""Cells of an experiment: computed in separate processes, several at a time, and kept.

A cell is a function and a case: plain values that determine its result. Finished cells stay on
disk, so that an interrupted experiment continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from vfsl import store
from vfsl.parallel import call_each, call_each_apart

Say = Callable[[str], None]
Result = dict[str, Any]
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_workers = 1


@contextmanager
def workers(count: int) -> Iterator[None]:
    """Compute this many cells at a time."""
    global _workers
    before, _workers = _workers, count
    try:
        yield
    finally:
        _workers = before


@dataclass(frozen=True)
class Cells:
    """The cells of one experiment.

    ``edition`` is part of a cell's name: raise it when a change of code makes kept cells stale.
    Short cells may share ``lasting`` processes, if they measure no memory.
    """

    experiment: str
    edition: int
    say: Say
    keep: bool = True
    folder: Path | None = None
    lasting: bool = False

    def get(self, title: str, work: Callable[[Any], Result], case: Any) -> Result:
        """The result of one cell."""
        return self.all(work, {title: case})[0]

    def all(self, work: Callable[[Any], Result], cases: Mapping[str, Any]) -> list[Result]:
        """The results of these cells, in their order; kept ones are not computed again."""
        titles, paths = list(cases), [self._path(work, case) for case in cases.values()]
        found: list[Result | None] = [self._kept(path) for path in paths]
        missing = [place for place, result in enumerate(found) if result is None]
        with _environment(dict.fromkeys(_ONE_THREAD, "1")):
            waiting = [cases[titles[place]] for place in missing]
            if waiting:
                self.say(f"{titles[missing[0]]} (cell 1 of {len(missing)})")
            compute = call_each if self.lasting else call_each_apart
            begun = time.monotonic()
            for count, (index, result) in enumerate(compute(work, waiting, _workers), start=1):
                place = missing[index]
                found[place] = result
                if self.keep:
                    content = {"case": _plain(cases[titles[place]]), "result": result}
                    store.write_json(paths[place], content)
                left = describe_left(time.monotonic() - begun, count, len(missing))
                self.say(f"{titles[place]}: done, {count} of {len(missing)}{left}")
        return [result for result in found if result is not None]

    def _path(self, work: Callable[[Any], Result], case: Any) -> Path:
        key = json.dumps([self.edition, work.__name__, _plain(case)], sort_keys=True)
        name = hashlib.sha256(key.encode()).hexdigest()[:24]
        return (self.folder or kept_folder() / self.experiment) / f"{name}.json"

    def _kept(self, path: Path) -> Result | None:
        if not (self.keep and path.exists()):
            return None
        result: Result = store.read_json(path)["result"]
        return result


def describe_left(spent: float, done: int, of: int) -> str:
    """How long the others will take if they are like those that are done; nothing at the end."""
    if done >= of:
        return ""
    seconds = spent / done * (of - done)
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f", about {seconds / size:.1f} {unit} left"
    return f", about {seconds:.0f} s left"


def kept_folder() -> Path:
    """Where finished cells are: ``VFSL_BENCH_CACHE``, or the user's cache folder."""
    return Path(os.environ.get("VFSL_BENCH_CACHE", Path.home() / ".cache" / "vfsl" / "bench"))


def _plain(case: Any) -> Any:
    if is_dataclass(case) and not isinstance(case, type):
        return asdict(case)
    if isinstance(case, Sequence) and not isinstance(case, str):
        return [_plain(part) for part in case]
    return case


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that are started inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
