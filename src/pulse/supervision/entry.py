"""The start of a process of `run_processes`."""

from __future__ import annotations

import asyncio
import inspect
import sys
from datetime import timedelta
from typing import Any, NoReturn

from pulse.errors import PulseError
from pulse.supervision import lifeline
from pulse.supervision.application import VARIABLE, Application, load_application
from pulse.supervision.ending import ending_soon
from pulse.supervision.frozen import ended_if_frozen
from pulse.supervision.worker_process import Command

# The path comes first: pulse itself may be found on the path of the program alone.
_START = f"""
import json, os, sys
sys.path[:] = json.loads(os.environ["{VARIABLE}"])["path"]
from pulse.supervision.entry import main
main()
"""


def command_for(application: Application) -> Command:
    """Return how a process that runs this application is started."""
    return Command([sys.executable, "-c", _START], application.environment(), is_detached=True)


def main() -> NoReturn:
    """Run the application's handlers until the supervisor or a signal stops them."""
    lifeline.hold()
    client, options = load_application()
    if "drain_seconds" in options:
        options["drain_timeout"] = timedelta(seconds=options.pop("drain_seconds"))
    try:
        if inspect.iscoroutinefunction(client.run):
            asyncio.run(_run(client, options))
        else:
            with ending_soon(), ended_if_frozen():
                client.run(**options)
    except PulseError as error:
        sys.exit(f"pulse: {error.message}")
    sys.exit(0)


async def _run(client: Any, options: dict[str, Any]) -> None:
    # Within: asyncio.run() waits for the threads of its executor.
    with ending_soon(), ended_if_frozen():
        await client.run(**options)
