"""The supervisor alone, with programs that only speak to it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pulse.supervision.supervisor import Supervisor
from pulse.supervision.worker_process import Command

PATIENCE_SECONDS = 30

CONNECTS = """#!{python}
import os, sys, time
sys.path[:0] = {path!r}
from pulse.supervision import lifeline
lifeline.hold().connected()
with open({pids!r}, "a") as pids:
    print(os.getpid(), file=pids)
time.sleep(600)
"""


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110 - it is another process that makes it so
            await asyncio.sleep(0.02)


async def test_process_that_the_system_cannot_start_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pulse.supervisor")
    program, pids = tmp_path / "program", tmp_path / "pids"
    program.write_text(CONNECTS.format(python=sys.executable, path=sys.path, pids=str(pids)))
    program.chmod(0o755)

    def started() -> list[int]:
        return [int(pid) for pid in pids.read_text().split()] if pids.exists() else []

    supervisor = Supervisor(Command([str(program)]), 1)
    running = asyncio.create_task(supervisor.run(handle_signals=False))
    try:
        await until(lambda: bool(started()))
        program.rename(tmp_path / "elsewhere")  # as if there were no memory for another
        os.kill(started()[0], signal.SIGKILL)
        await until(lambda: "Process 1 cannot be started: " in caplog.text)
        (tmp_path / "elsewhere").rename(program)
        await until(lambda: len(started()) == 2)
    finally:
        supervisor.stop()
        assert await asyncio.wait_for(running, PATIENCE_SECONDS) == 0
    assert "was killed by SIGKILL" in caplog.text
