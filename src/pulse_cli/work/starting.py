"""Starts the worker of an application: in this process, in several, or again for each change of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pulse.supervision import lifeline
from pulse.supervision.processes import Command
from pulse_cli.failures import Misuse
from pulse_cli.work.options import WorkerOptions

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse


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
        from pulse_cli.work.reloading import run_reloading

        return run_reloading(command, Path.cwd())
    if processes is not None:
        from pulse_cli.work.running import run_supervised

        return run_supervised(command, processes, options.log_format)
    from pulse_cli.work.running import run_app

    held = lifeline.held()
    run_app(load(), options, held.number if held is not None else 0)
    return 0
