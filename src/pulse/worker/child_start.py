"""The start of a child process: it ends with its worker, and logs as the worker does."""

from __future__ import annotations

import fcntl
import logging
import multiprocessing
import os
import signal
import sys

from pulse.handlers.log_records import add_job_to_log_records
from pulse.worker.child_messages import Load

_PR_SET_PDEATHSIG = 1


def configure_logging(first: Load) -> None:
    """Log as the worker does, unless the application has configured its log."""
    multiprocessing.current_process().name = first.process_name
    add_job_to_log_records()
    if logging.getLogger().handlers:
        return  # an application that logs has configured it when it was imported
    handler = logging.StreamHandler()
    name = "" if first.process_name == "MainProcess" else "%(processName)s "
    line = f"%(asctime)s {name}%(levelname)s %(name)s: %(message)s%(pulse_job)s"
    handler.setFormatter(logging.Formatter(line, defaults={"pulse_job": ""}))
    logging.basicConfig(level=first.log_level, handlers=[handler])


def die_with(lifeline: int, worker_pid: int) -> None:
    """Have the kernel kill this process and all that handlers start when the worker is gone.

    Elsewhere than on Linux the closed pipe does it, unless a handler keeps the interpreter's lock.
    """
    if sys.platform == "linux":
        try:
            # The pipe closes with the worker: a signal for its readers, here one for the process group. The
            # signal of a parent's death would reach this process alone, and before it could kill the others.
            fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        except OSError:  # a sandbox that does not know it
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker_pid:
        os._exit(1)
