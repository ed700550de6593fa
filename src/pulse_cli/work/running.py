"""Runs the handlers of an application, for all topics or for some."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import click

from pulse.supervision.ending import ended_if_frozen, ending_soon
from pulse_cli.failures import Misuse
from pulse_cli.work.logging_setup import configure_logging
from pulse_cli.work.options import RunOptions, WorkerOptions

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse


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
