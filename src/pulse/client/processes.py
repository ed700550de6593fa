"""Runs the handlers of a client in several processes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypedDict

from pulse.errors import InvalidArgument, PulseError
from pulse.supervision.application import find_application
from pulse.supervision.entry import command_for
from pulse.supervision.supervisor import Supervisor

# Each is an interpreter with a connection of its own. More is a typing error rather than a wish.
MOST_PROCESSES = 1_000


class RunOptions(TypedDict, total=False):
    """The options of `run` that `run_processes` passes to each process."""

    topics: Iterable[str] | None
    concurrency: int | None
    drain_timeout: timedelta | None
    max_jobs: int | None
    max_memory: int | None


async def run_in_processes(client: object, processes: int, options: RunOptions, handle_signals: bool) -> None:
    """Supervise processes that run the handlers of this client. Raises PulseError if none can be started."""
    if not isinstance(processes, int) or not 1 <= processes <= MOST_PROCESSES:
        raise InvalidArgument(
            f"processes has to be between 1 and {MOST_PROCESSES}, but {processes!r} was given."
        )
    command = command_for(find_application(client, _plain(options)))
    if code := await Supervisor(command, processes).run(handle_signals):
        raise PulseError(
            f"The worker processes ended with exit code {code}: see their errors, which they have printed."
        )


def _plain(options: RunOptions) -> dict[str, Any]:
    """Return the options as JSON can carry them."""
    plain: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if (topics := options.get("topics")) is not None:
        plain["topics"] = list(topics)
    if (drain_timeout := plain.pop("drain_timeout", None)) is not None:
        plain["drain_seconds"] = drain_timeout.total_seconds()
    return plain
