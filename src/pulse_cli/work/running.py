"""Runs the handlers of an application, for all topics or for some."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pulse_cli.failures import Misuse
from pulse_cli.work.logging_setup import configure_logging

if TYPE_CHECKING:
    from pulse import Pulse, SyncPulse


def run_app(app: Pulse | SyncPulse, name: str, concurrency: int | None, topics: Sequence[str]) -> None:
    """Run handlers until SIGTERM or SIGINT; drain, then return."""
    import pulse

    served = topics or app.handled_topics
    if unknown := [topic for topic in served if topic not in app.handled_topics]:
        known = ", ".join(app.handled_topics) or "none"
        raise Misuse(f"The application has no handler for {', '.join(unknown)}; it has: {known}.")
    configure_logging()
    click.echo(
        f"Running {name} against {app.address}: {', '.join(served)}. Ctrl-C drains and stops.", err=True
    )
    if isinstance(app, pulse.Pulse):
        asyncio.run(_run(app, topics or None, concurrency))
    else:
        app.run(topics=topics or None, concurrency=concurrency)


async def _run(app: Pulse, topics: Sequence[str] | None, concurrency: int | None) -> None:
    async with app:
        await app.run(topics=topics, concurrency=concurrency)
