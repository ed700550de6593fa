"""An embedded Postgres seen from outside: its processes, and its rows."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg


def await_fact(is_so: Callable[[], bool], sentence: str) -> None:
    """Poll until it is so; fail with the sentence after a minute."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, f"this never happened: {sentence}"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Return whether the process has ended, even if its parent has not reaped it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return Path("/proc/self").exists()


def processes_that_mention(path: Path) -> list[int]:
    """Return the processes with the path in their command line (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.fsencode(path) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def run_sql(dsn: str, statement: str) -> Any:
    """Run a statement. Returns the first value of its answer."""

    async def run() -> Any:
        connection = await asyncpg.connect(dsn, timeout=60)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(run())
