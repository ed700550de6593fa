"""Runs a worker in its own process, and restarts it when a source file changes."""

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

_IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"})

Snapshot = Mapping[str, int]


def run_reloading(arguments: Sequence[str], directory: Path) -> int:
    """Run `pulse` with these arguments until SIGINT or SIGTERM. Returns the exit code of the last run."""
    signals = _Signals()
    process = _start(arguments)
    seen = snapshot(directory)
    ended_by_itself = False
    while not signals.to_stop:
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
            click.echo("The worker has exited. It starts again when a file changes.", err=True)
    # A terminal sends Ctrl-C to the worker too, and a second one would end its drain: pass on SIGTERM only.
    if signals.by is signal.SIGTERM and process.poll() is None:
        process.terminate()
    return process.wait()


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


class _Signals:
    """Records SIGINT and SIGTERM."""

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
    """Stop the worker: let it drain, then make it release its jobs, then kill it."""
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
