"""pulsed as a process that serves the tests of a whole run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cli.command_line import SOURCES


@contextmanager
def serving(dsn: str, **variables: str) -> Iterator[str]:
    """Run pulsed for the length of a block, which gets its address."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "DB_", "PG"))
    }
    settings = {"PULSE_GRPC_ADDR": "127.0.0.1:0", "DB_HOST": dsn, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(
        [sys.executable, "-m", "pulse_server.main"],
        env=inherited | settings | variables,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield _address(process)
        finally:
            process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "serving":
            # Keep reading: a server whose pipe is full blocks.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return str(event["address"])
    raise AssertionError(f"pulsed ended before it served: {''.join(lines)}")
