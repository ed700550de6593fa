"""The settings of a worker, and its default name."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass

from pulse.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of `run()`, apart from the handlers."""

    concurrency: int
    drain_seconds: float
    worker_id: str | None
    # The number of lost slots at which the worker stops. None means half of them.
    lost_slots_exit: int | None = None

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


def make_worker_id() -> str:
    """Return a unique name with the host and the process."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:100] or "worker"
    return f"{host}-{os.getpid()}-{os.urandom(3).hex()}"
