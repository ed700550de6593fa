"""The processes of one run: started in a session of their own, and ended with all their children."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

Process = subprocess.Popen[bytes]

_GRACE_SECONDS = 8
_POLL_SECONDS = 0.005


async def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Return True once the condition holds, False when it does not within these seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        await asyncio.sleep(_POLL_SECONDS)
    return False


def start(
    command: Sequence[str | Path], *, folder: Path, log: Path, variables: Mapping[str, str] | None = None
) -> Process:
    """Start a command in the folder. Its output goes to the log."""
    with log.open("a") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


async def end(processes: Sequence[Process]) -> None:
    """Ask each process to stop. Kill processes that do not, and the children left behind."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, max(0.1, deadline - time.monotonic()))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the session that it was started in
        process.wait()
