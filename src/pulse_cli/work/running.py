"""Runs the handlers of an application, in one process or in several, and configures the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from pulse.error_text import BoundedFormatter, JsonFormatter
from pulse.handlers.registry import matching_topics
from pulse.supervision.processes import Command
from pulse.supervision.supervised import ended_if_frozen, ending_soon
from pulse.supervision.supervisor import Supervisor
from pulse_cli.failures import Misuse
from pulse_cli.work.options import WorkerOptions
from pulse_text import printable

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse
    from pulse.client import RunOptions


def run_app(app: Pulse | SyncPulse, options: WorkerOptions, number: int = 0) -> None:
    """Run handlers until SIGTERM or SIGINT; drain, then return. `number` is of one process of several."""
    import pulse

    known = app.handled_topics
    matches = {name: matching_topics(name, known) for name in options.topics or known}
    if unknown := [name for name, found in matches.items() if not found]:
        raise Misuse(
            f"The application has no handler for {', '.join(unknown)}; it has: {', '.join(known) or 'none'}."
        )
    served = dict.fromkeys(topic for found in matches.values() for topic in found)
    configure_logging(options.log_format, several=bool(number))
    if number < 2:  # once is enough
        _show_begin(
            f"Running {options.target} against {app.address}: {', '.join(served)}. Ctrl-C drains and stops.",
            options.log_format,
        )
    if isinstance(app, pulse.Pulse):
        asyncio.run(_run(app, options.run_options()))
    else:
        with ending_soon(), ended_if_frozen():
            app.run(**options.run_options())


def _show_begin(line: str, log_format: str) -> None:
    if log_format == "json":
        logging.getLogger(_WORKER).info(line)
        return
    with contextlib.suppress(OSError):  # its reader may be gone
        click.echo(line, err=True)


async def _run(app: Pulse, options: RunOptions) -> None:
    # Within: asyncio.run() waits for the threads of its executor.
    with ending_soon(), ended_if_frozen():
        async with app:
            await app.run(**options)


_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# One log for all processes: the name has the number of the process.
_FORMAT_OF_SEVERAL = "%(asctime)s %(processName)s %(levelname)s %(name)s: %(message)s"
# Sentences of the worker name their job themselves.
_WORKER = "pulse.worker"


def configure_logging(log_format: str = "text", *, several: bool = False) -> None:
    """Log to standard error. An application that logs has configured it when it was imported."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    text = JobFormatter(_FORMAT_OF_SEVERAL if several else _FORMAT)
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class JobFormatter(BoundedFormatter):
    """Adds the job to a handler's records. Shortens errors and escapes control characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of logging
        line = super().formatMessage(record)
        return line if record.name == _WORKER else line + getattr(record, "pulse_job", "")

    def format(self, record: logging.LogRecord) -> str:
        return printable.lines(super().format(record))


def run_supervised(command: Command, processes: int, log_format: str) -> int:
    """Run worker processes, each by this command, until SIGINT or SIGTERM. Returns the exit code.

    This process does not import the application: it stays small, and nothing of the application can end it.
    """
    multiprocessing.current_process().name = "supervisor"
    configure_logging(log_format, several=True)
    return asyncio.run(_supervise(replace(command, is_detached=True), processes))


async def _supervise(command: Command, processes: int) -> int:
    return await Supervisor(command, processes, reaps=os.getpid() == 1).run()
