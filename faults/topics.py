"""The topics of a run."""

from __future__ import annotations

from faults.limited_topics import ALL_LIMITED, RENDER, UNIQUE

# The handlers of these are ordinary functions, which run in threads.
SYNC = frozenset({"thumbnail", RENDER})
# Thousands of jobs at once, for warm windows and for operators that act on all of them.
FLOOD = "flood"
# Of callers with absurd deadlines.
HASTE = "haste"
# Jobs that are stored, and move money, in transactions of applications.
TRANSFER = "transfer"
# Slow jobs without a priority, and urgent ones. One worker serves both, another one the urgent ones alone.
BULK, URGENT = "bulk", "urgent"
RESERVED = ((BULK, URGENT), (URGENT,))
# Every other worker serves these.
BUSY = ("mail", "report", "tick", "thumbnail", FLOOD, HASTE, UNIQUE, TRANSFER, *ALL_LIMITED)
# Each of these is served by half of them, each time by others.
MANY = tuple(f"many-{number:02}" for number in range(36))


def topics_of(worker: int, workers: int) -> list[str]:
    """Return the topics of this worker. The last ones have few."""
    workers -= len(RESERVED)
    if worker >= workers:
        return [*RESERVED[worker - workers]]
    served = {(worker + offset) % workers for offset in range(max(1, workers // 2))}
    return [*BUSY, *(topic for number, topic in enumerate(MANY) if number % workers in served)]
