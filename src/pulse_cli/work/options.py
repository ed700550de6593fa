"""The options of `pulse worker` that concern one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse_text.times import format_exact

if TYPE_CHECKING:
    from pulse.client import RunOptions


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The application and the options of a worker process. None means the application's setting."""

    target: str
    topics: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    concurrency: int | None = None
    drain_timeout: timedelta | None = None
    max_jobs: int | None = None
    max_memory: int | None = None
    log_format: str = "text"

    def run_options(self) -> RunOptions:
        """Return the options for `run()`."""
        return {
            "topics": list(self.topics) or None,
            "concurrency": self.concurrency,
            "drain_timeout": self.drain_timeout,
            "max_jobs": self.max_jobs,
            "max_memory": self.max_memory,
        }

    def flags(self) -> Iterator[str]:
        """Yield the options as a command line has them, for a process that runs one worker with them."""
        if self.topics:
            yield from ("--topics", ",".join(self.topics))
        if self.include:
            yield from ("--include", ",".join(self.include))
        if self.concurrency is not None:
            yield from ("--concurrency", str(self.concurrency))
        if self.drain_timeout is not None:
            yield from ("--drain-timeout", format_exact(self.drain_timeout))
        if self.max_jobs is not None:
            yield from ("--max-jobs", str(self.max_jobs))
        if self.max_memory is not None:
            yield from ("--max-memory", f"{self.max_memory // 1024}K")
        if self.log_format != "text":
            yield from ("--log-format", self.log_format)


def names(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the names of an option that takes several, separated by commas, and can be repeated."""
    return tuple(name.strip() for group in groups for name in group.split(",") if name.strip())
