"""Runs `pulse worker` in several processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys

from pulse.supervision.supervisor import Supervisor
from pulse.supervision.worker_process import Command
from pulse_cli.work.logging_setup import configure_logging
from pulse_cli.work.options import WorkerOptions


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
