"""Starts the worker of an application: in this process, in several, or again for each change of a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulse.supervision import supervised
from pulse.supervision.processes import Command, first_of, stop_signals
from pulse.supervision.supervisor import WorkerProcess
from pulse_cli import tuning
from pulse_cli.failures import Misuse
from pulse_cli.work.options import WorkerOptions

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse


# ---------------------------------------------------------------- reloading
# Runs a worker in its own process, and restarts it when a source file changes.

_IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})

Snapshot = Mapping[str, int]


def run_reloading(command: Command, directory: Path) -> int:
    """Run this command until SIGINT or SIGTERM. Returns the exit code of the last run."""
    return asyncio.run(_Reloader(command, directory).run())


def snapshot(directory: Path) -> Snapshot:
    """Return the modification time of each source file below the directory."""
    found: dict[str, int] = {}
    for path in _sources(directory):
        try:
            found[str(path.relative_to(directory))] = path.stat().st_mtime_ns
        except OSError:
            continue  # deleted during the scan; the next scan sees that
    return found


def changed(before: Snapshot, after: Snapshot) -> set[str]:
    """Return the files that were added, removed or changed."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _sources(directory: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _IGNORED]
        yield from (Path(here, name) for name in files if name.endswith(".py"))


class _Reloader:
    """Runs a worker process, and another when a file has changed."""

    def __init__(self, command: Command, directory: Path) -> None:
        self._command = command
        self._directory = directory
        self._process: WorkerProcess | None = None
        self._stop = asyncio.Event()

    async def run(self) -> int:
        with stop_signals(self._stop_or_hurry, replace_all=lambda: None):
            process = self._process = await WorkerProcess.start(self._command)
            seen = snapshot(self._directory)
            has_reported = False
            while not await self._stops_within(tuning.RELOAD_POLL_SECONDS):
                current = snapshot(self._directory)
                if current != seen:
                    click.echo(f"Reloading: {', '.join(sorted(changed(seen, current)))} changed.", err=True)
                    seen = current
                    await _end(process)
                    process = self._process = await WorkerProcess.start(self._command)
                    has_reported = False
                elif process.ended.is_set() and not has_reported:
                    has_reported = True
                    click.echo("The worker has exited. It starts again when a file changes.", err=True)
            process.stop()
            await process.ended.wait()
            # A worker that was still importing its application ends by SIGTERM.
            return 0 if process.exit_code == -signal.SIGTERM else process.exit_code

    def _stop_or_hurry(self) -> None:
        if self._stop.is_set() and self._process is not None:
            self._process.hurry()
        self._stop.set()

    async def _stops_within(self, seconds: float) -> bool:
        await first_of(self._stop.wait(), asyncio.sleep(seconds))
        return self._stop.is_set()


async def _end(process: WorkerProcess) -> None:
    """Stop the worker: let it drain, then make it release its jobs, then kill it."""
    for ask, seconds in (
        (partial(process.stop, tuning.RELOAD_GRACE_SECONDS), tuning.RELOAD_GRACE_SECONDS),
        (process.hurry, tuning.RELOAD_HURRY_SECONDS),
        (process.kill, tuning.RELOAD_HURRY_SECONDS),
    ):
        ask()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.ended.wait(), seconds)
            return


# ---------------------------------------------------------------- starting


def start(
    options: WorkerOptions,
    command: Command,
    load: Callable[[], Pulse | SyncPulse],
    *,
    processes: int | None,
    reload: bool,
) -> int:
    """Run handlers until SIGTERM or SIGINT. Returns the exit code.

    `command` starts a process that runs one worker with these options. `load` returns the client, in this
    process.
    """
    if reload:
        if processes is not None or options.max_jobs is not None or options.max_memory is not None:
            raise Misuse("--reload is for development: leave out --processes, --max-jobs and --max-memory.")
        return run_reloading(command, Path.cwd())
    if processes is not None:
        from pulse_cli.work.running import run_supervised

        return run_supervised(command, processes, options.log_format)
    from pulse_cli.work.running import run_app

    held = supervised.lifeline_here()
    run_app(load(), options, held.number if held is not None else 0)
    return 0
