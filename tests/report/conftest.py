"""A headless Chromium for the tests of the page, driven over its debugging pipe: no library."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

_SECONDS = 60


class Tab:
    """One page in the browser."""

    def __init__(self, browser, session):
        self._browser, self._session = browser, session
        self.errors = []
        self.call("Page.bringToFront")
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        return self._browser.call(method, params, self._session, self._hear)

    def open(self, path, width, height=900, dark=False):
        """Show a file at that width, as a phone would if it is narrow."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        look = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=look)
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        until = time.monotonic() + _SECONDS
        while (
            self.run("document.readyState") != "complete"
            or self.run("location.href") == "about:blank"
        ):
            if time.monotonic() > until:
                raise TimeoutError(f"{path} did not load.")
            time.sleep(0.05)

    def run(self, script):
        """The value of a JavaScript expression, once a promise is kept."""
        how = {"returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", expression=script, **how)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key, code=0, text=""):
        """A key, down and up."""
        down = {"type": "keyDown" if text else "rawKeyDown", "key": key, "text": text}
        self.call("Input.dispatchKeyEvent", **down, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def hover(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _hear(self, event):
        """Keep what a developer would see in red."""
        if event["method"] == "Runtime.exceptionThrown":
            self.errors.append(event["params"]["exceptionDetails"])
        if event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in (
            "error",
            "warning",
        ):
            self.errors.append(event["params"])
        if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in (
            "error",
            "warning",
        ):
            self.errors.append(event["params"]["entry"])


class Browser:
    """Chromium with a pipe: commands in, answers and events out, each ended by a zero byte."""

    def __init__(self, program, folder):
        read_ours, write_theirs = os.pipe()
        read_theirs, write_ours = os.pipe()
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        arguments += ["--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run"]
        # The pipe must be 3 and 4 in the child, whatever numbers it has here.
        command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        pipe = [str(read_theirs), str(write_theirs)]
        arguments += [f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, "-", *pipe, program, *arguments],
            pass_fds=(read_theirs, write_theirs),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_theirs)
        os.close(write_theirs)
        self._read, self._write = read_ours, write_ours
        self._buffer, self._number = b"", 0

    def tab(self):
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        return Tab(self, attached["sessionId"])

    def call(self, method, params, session=None, hear=lambda event: None):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                hear(answer)

    def _next(self):
        until = time.monotonic() + _SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, until - time.monotonic()))
            chunk = os.read(self._read, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError("The browser does not answer.")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def close(self):
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self.call("Browser.close", {})
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)


@pytest.fixture(scope="session")
def browser():
    """A browser of this machine; tests are skipped where there is none."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs chromium: apt-get install chromium")
    folder = tempfile.mkdtemp(prefix="vfsl-browser-")
    made = Browser(program, folder)
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


def made_record(columns=8, name=str, ways=True):
    """A run with every step that the page knows, in made-up numbers."""
    from vfsl.record import Flow, PartyFacts, RunRecord, StepRecord

    names = [name(place) for place in range(columns)]
    bank, shop = name("Bank"), name("Shop")
    settings = {"scheme": "bfv", "label_holder": bank}
    flows = tuple(
        Flow("vfpu", one, two, f"message {place}", kind, 3, 1000 * place + 7, f"fact {place}")
        for place, (one, two, kind) in enumerate(
            [(bank, shop, "ciphertext"), (shop, bank, "masked"), (shop, "K", "aggregate")]
            + [(bank, shop, "plain")] * 40
        )
    )
    rounds = tuple(
        {"epoch": at, "loss": 1 / at, "uncertainty": 0.5 / at, "kept": 900 - at, "left rows": [at]}
        | {"left with a true label": 0, "left with a pseudo label": 1}
        for at in range(1, 9)
    )
    scores = {
        "groups": ["others", "chosen"],
        "edges": [0.2, 0.5],
        "counts": [[40, 20, 0], [0, 0, 15]],
    }
    completion = {
        "given": bank,
        "missing": shop,
        "rows": 500,
        "routing": [
            {"column": one, "route": ("high", "low")[at % 2], "by": "skill"}
            | {"measure": 0.5 - at / 100, "threshold": 0.01}
            for at, one in enumerate(names)
        ],
        "quality": [
            {"column": one, "kind": "numeric", "route": "high", "model": "vfpu-m linear"}
            | {"skill": 0.5 - at / 4, "skill error": 0.02, "rmse / deviation": None}
            | {"coverage": 0.9, "verdict": ("use", "no better than mean")[at % 2]}
            for at, one in enumerate(names)
        ],
        "baselines": [{"method": "hot-deck", "skill": -1.0, "shape": 1.0}],
        "distributions": [
            {
                "column": one,
                "kind": "numeric",
                "edges": [1.0, 2.0],
                "counts": [[20, 30, 10], [0, 60, 0]],
            }
            if at % 2
            else {"column": one, "levels": [one, "all others"], "counts": [[20, 30], [10, 40]]}
            for at, one in enumerate(names[:60])
        ],
        "confidence": [{"round": "1", "cells": 90, "mean": 0.9, "low": 0.8, "high": 0.95}],
        "verdicts": {"use": 1, "no better than mean": 1},
    }
    compared = {
        "measure": "AUC",
        "rows": 300,
        "ways": [
            {"way": "own columns only", "score": 0.7, "low": 0.65, "high": 0.75},
            {"way": "blend", "score": 0.75, "low": 0.7, "high": 0.8}
            | {"gain": 0.05, "gain low": 0.01, "gain high": 0.09},
        ],
        "weights": {"own columns only": 1.0},
        "verdicts": [{"text": f"Learning with {shop} adds 0.050.", "low": 0.01, "high": 0.09}],
        "advice": "Use the blend.",
    }
    judged = {
        "metrics": [{"model": "risa", "measure": "AUC", "value": 0.8, "low": 0.7, "high": 0.9}],
        "gains": [
            {
                "model": "risa",
                "measure": "AUC",
                "over": "alone",
                "value": 0.01,
                "low": -0.1,
                "high": 0.1,
            }
        ],
        "verdict": "risa: AUC better by 0.010; that may be chance.",
    }
    steps = [
        StepRecord(
            "align",
            {"parties": [bank, shop]},
            1.0,
            {"overlap": 300, f"rest of {bank}": 500, f"rest of {shop}": 90},
        ),
        StepRecord("mark", {"positives": "P"}, 1.0, {"overlap": 300, "marked": 50}),
        StepRecord(
            "vfpu",
            settings,
            2.0,
            {
                "reliable positives": 15,
                "unlabelled": 250,
                "oob score": 0.8,
                "prior value": float("nan"),
            },
            ({"iteration": 1, "prior": 0.2},),
            "outer",
            ("a warning of vfpu",),
            flows,
            {"curve": [[0, 0], [20, 30], [50, 250]], "scores": scores}
            | {
                "columns": [
                    {
                        "column": names[0] if names else "c",
                        "size": 0.3,
                        "chance": 0.1,
                        "large": True,
                    }
                ]
            },
        ),
        StepRecord("shift", {}, 0.1, {"auc of common against remaining rows": 0.55}),
        StepRecord("completion", {}, 0.5, details=completion, notes=("a note of completion",)),
        StepRecord(
            "train risa",
            {},
            3.0,
            {"left": 8},
            rounds,
            "8 epochs done",
            details={"doubts": {**scores, "score": "uncertainty"}},
        ),
        StepRecord(
            "predict risa",
            {},
            0.1,
            details={"rows": 300, "uncertainty": {"edges": [0.5], "counts": [[200, 100]]}},
        ),
        StepRecord("evaluate", {}, 0.1, details=judged),
    ]
    if ways:
        steps.append(StepRecord("downstream", {}, 9.0, details=compared))
    parties = {bank: PartyFacts(800, 3, "ab"), shop: PartyFacts(390, columns, "cd")}
    made = "2026-01-01T00:00:00+00:00"
    return RunRecord("r1", made, 1, "auto", parties, tuple(steps), {"python": "3.11"})


@pytest.fixture(scope="session")
def record():
    """Makes records of runs with every step."""
    return made_record
