"""What a worker is told when it is made, and what it is called if nobody says."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass

from pulse.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What `run()` needs to know beside the handlers."""

    concurrency: int
    drain_seconds: float
    worker_id: str | None

    def __post_init__(self) -> None:
        if not isinstance(self.concurrency, int) or not 1 <= self.concurrency <= 10_000:
            raise InvalidArgument(
                f"concurrency has to be between 1 and 10000, but {self.concurrency!r} was given."
            )


def make_worker_id() -> str:
    """Return a name that tells host and process, and that no other worker has."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:100] or "worker"
    return f"{host}-{os.getpid()}-{os.urandom(3).hex()}"
