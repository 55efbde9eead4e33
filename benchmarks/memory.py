"""How much memory a measurement takes."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path
from types import TracebackType


class PeakMemory:
    """The most memory that this process and its workers held together inside a ``with`` block.

    Resident sizes are sampled; pages that processes share count for each of them. ``megabytes`` is
    None where the system has no /proc.
    """

    def __init__(self, interval: float = 0.05) -> None:
        self._interval = interval
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.megabytes: float | None = None

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(self._interval):
            workers = [child.pid for child in multiprocessing.active_children()]
            sizes = [_resident_megabytes(pid) for pid in (os.getpid(), *workers) if pid]
            known = [size for size in sizes if size is not None]
            if known:
                self.megabytes = max(self.megabytes or 0.0, sum(known))


def _resident_megabytes(process: int) -> float | None:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
