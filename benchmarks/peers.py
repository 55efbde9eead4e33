"""Other libraries for comparison, each in its own environment: never dependencies of vfsl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from vfsl.errors import VfslError


class PeerMissing(VfslError):
    """A peer cannot be installed or run here; the text is what pip or the peer said."""


def peer_python(name: str, *packages: str) -> Path:
    """The interpreter of an environment with these packages, made on first use."""
    home = Path(os.environ.get("VFSL_PEERS", Path.home() / ".cache" / "vfsl" / "peers")) / name
    python = home / "bin" / "python"
    ready = home / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise PeerMissing(f"pip install {' '.join(packages)}: {' '.join(lines[-2:])}")
        ready.touch()
    return python


def run_peer(python: Path | str, code: str, **inputs: Any) -> dict[str, Any]:
    """Run code with ``inputs`` (a dict) in a peer's environment; it prints one line of JSON."""
    program = f"import json, sys\ninputs = json.loads(sys.argv[1])\n{code}"
    command = [str(python), "-c", program, json.dumps(inputs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PeerMissing(f"the peer failed: {last}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer
