"""Runs a worker in a process of its own, and starts it anew whenever a source file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import click

from pulse_cli import tuning

_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})

Snapshot = Mapping[str, int]


def run_reloading(arguments: Sequence[str], directory: Path) -> int:
    """Run `pulse` with these arguments until it is told to stop. Returns the exit code of the last run."""
    told = _Signals()
    process = _start(arguments)
    seen = snapshot(directory)
    ended_by_itself = False
    while not told.to_stop:
        time.sleep(tuning.RELOAD_POLL_SECONDS)
        current = snapshot(directory)
        if current != seen:
            click.echo(f"Reloading: {', '.join(sorted(changed(seen, current)))} changed.", err=True)
            seen = current
            _stop(process)
            process = _start(arguments)
            ended_by_itself = False
        elif not ended_by_itself and process.poll() is not None:
            ended_by_itself = True
            click.echo("The worker has ended; it starts again when a file changes.", err=True)
    # A terminal sends Ctrl-C to the worker too; a second one would hurry it, so only SIGTERM is passed on.
    if told.by is signal.SIGTERM and process.poll() is None:
        process.terminate()
    return process.wait()


def snapshot(directory: Path) -> Snapshot:
    """Return when each source file below the directory was last changed."""
    found: dict[str, int] = {}
    for path in _sources(directory):
        try:
            found[str(path.relative_to(directory))] = path.stat().st_mtime_ns
        except OSError:
            continue  # it went away while we looked; the next round sees that
    return found


def changed(before: Snapshot, after: Snapshot) -> set[str]:
    """Return the files that are new, gone or different."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _sources(directory: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        yield from (Path(here, name) for name in files if name.endswith(".py"))


class _Signals:
    """Remembers that we were told to stop."""

    def __init__(self) -> None:
        self.by: signal.Signals | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._remember)

    @property
    def to_stop(self) -> bool:
        return self.by is not None

    def _remember(self, number: int, _: FrameType | None) -> None:
        self.by = signal.Signals(number)


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "pulse_cli", *arguments])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the worker: let it finish, then have it hand back, then kill it."""
    for seconds in (tuning.RELOAD_GRACE_SECONDS, tuning.RELOAD_HURRY_SECONDS):
        if process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    if process.poll() is None:
        process.kill()
    process.wait()
