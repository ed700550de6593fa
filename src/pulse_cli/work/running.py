"""Runs the handlers of an application, in one process or in several, and configures the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from pulse.supervision.ending import ended_if_frozen, ending_soon
from pulse.supervision.processes import Command
from pulse.supervision.supervisor import Supervisor
from pulse_cli.failures import Misuse
from pulse_cli.work.options import WorkerOptions
from pulse_text import printable

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse
    from pulse.client.work import RunOptions


def run_app(app: Pulse | SyncPulse, options: WorkerOptions, number: int = 0) -> None:
    """Run handlers until SIGTERM or SIGINT; drain, then return. `number` is of one process of several."""
    import pulse

    served = options.topics or app.handled_topics
    if unknown := [topic for topic in served if topic not in app.handled_topics]:
        known = ", ".join(app.handled_topics) or "none"
        raise Misuse(f"The application has no handler for {', '.join(unknown)}; it has: {known}.")
    configure_logging(several=bool(number))
    if number < 2:  # once is enough
        with contextlib.suppress(OSError):  # its reader may be gone
            click.echo(
                f"Running {options.target} against {app.address}: {', '.join(served)}. "
                "Ctrl-C drains and stops.",
                err=True,
            )
    if isinstance(app, pulse.Pulse):
        asyncio.run(_run(app, options.run_options()))
    else:
        with ending_soon(), ended_if_frozen():
            app.run(**options.run_options())


async def _run(app: Pulse, options: RunOptions) -> None:
    # Within: asyncio.run() waits for the threads of its executor.
    with ending_soon(), ended_if_frozen():
        async with app:
            await app.run(**options)


_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# One log for all processes: the name has the number of the process.
_FORMAT_OF_SEVERAL = "%(asctime)s %(processName)s %(levelname)s %(name)s: %(message)s"
# Enough for the frames and the message of any ordinary error.
_EXCEPTION_CHARACTERS = 64 * 1024
# Sentences of the worker name their job themselves.
_WORKER = "pulse.worker"


def configure_logging(*, several: bool = False) -> None:
    """Log to standard error. An application that logs has configured it when it was imported."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JobFormatter(_FORMAT_OF_SEVERAL if several else _FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class JobFormatter(logging.Formatter):
    """Adds the job to a handler's records. Shortens errors and escapes control characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of logging
        line = super().formatMessage(record)
        return line if record.name == _WORKER else line + getattr(record, "pulse_job", "")

    def formatException(self, ei: Any) -> str:  # noqa: N802 - a name of logging
        text = super().formatException(ei)
        left_out = len(text) - _EXCEPTION_CHARACTERS
        if left_out <= 0:
            return text
        half = _EXCEPTION_CHARACTERS // 2
        return f"{text[:half]}\n… {left_out:,} characters are left out …\n{text[-half:]}"

    def format(self, record: logging.LogRecord) -> str:
        return printable.lines(super().format(record))


def run_supervised(options: WorkerOptions, processes: int) -> int:
    """Run worker processes until SIGINT or SIGTERM. Returns the exit code.

    This process does not import the application: it stays small, and nothing of the application can end it.
    """
    multiprocessing.current_process().name = "supervisor"
    configure_logging(several=True)
    command = Command([sys.executable, "-m", "pulse_cli", *options.arguments()], is_detached=True)
    return asyncio.run(_supervise(command, processes))


async def _supervise(command: Command, processes: int) -> int:
    return await Supervisor(command, processes, reaps=os.getpid() == 1).run()
