"""The settings of a worker, and its default name."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass

from pulse.errors import InvalidArgument

# An interpreter with the SDK takes more. A smaller limit is likely a number of megabytes, not
# bytes.
SMALLEST_MEMORY = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of `run()`, apart from the handlers."""

    concurrency: int
    drain_seconds: float
    worker_id: str | None
    # The number of lost slots at which the worker stops. None means half of them.
    lost_slots_exit: int | None = None
    max_jobs: int | None = None
    max_memory: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.concurrency, int) or not 1 <= self.concurrency <= 10_000:
            raise InvalidArgument(
                f"concurrency has to be between 1 and 10000, but {self.concurrency!r} was given."
            )
        if self.lost_slots_exit is not None and (
            not isinstance(self.lost_slots_exit, int) or self.lost_slots_exit < 1
        ):
            raise InvalidArgument(
                f"lost_slots_exit has to be a number from 1, or None for half of the slots, "
                f"but {self.lost_slots_exit!r} was given."
            )
        if self.max_jobs is not None and (not isinstance(self.max_jobs, int) or self.max_jobs < 1):
            raise InvalidArgument(f"max_jobs has to be at least 1, but {self.max_jobs!r} was given.")
        if self.max_memory is not None and (
            not isinstance(self.max_memory, int) or self.max_memory < SMALLEST_MEMORY
        ):
            raise InvalidArgument(
                f"max_memory is a number of bytes from {SMALLEST_MEMORY} on (16 MiB), "
                f"but {self.max_memory!r} was given."
            )


def worker_id_here(given: str | None, process_number: int) -> str:
    """Return the name of the worker. Processes of one supervisor never share one."""
    if given is None:
        return make_worker_id()
    if not process_number:
        return given
    # With the process id: a process works beside its successor for a while.
    return f"{given}-{process_number}-{os.getpid()}"


def make_worker_id() -> str:
    """Return a unique name with the host and the process."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:100] or "worker"
    return f"{host}-{os.getpid()}-{os.urandom(3).hex()}"
