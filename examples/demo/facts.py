"""What really happened, as read from the server through the SDK. The demo shows nothing else."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

import pulse

# Far longer than anything here takes, even on a busy machine: beyond it, it will never happen.
_PATIENCE_SECONDS = 45
_LOOK_EVERY_SECONDS = 0.05

Seen = TypeVar("Seen")


class NotAsPromised(Exception):
    """Something that the demo was to show did not happen; the message states what."""


async def until(look: Callable[[], Awaitable[Seen | None]], promise: str) -> Seen:
    """Look until there is something to see, and return it. Raises NotAsPromised when that takes too long."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while (seen := await look()) is None:  # noqa: ASYNC110 - other processes set no event
                await asyncio.sleep(_LOOK_EVERY_SECONDS)
            return seen
    except TimeoutError:
        waited = f"for {_PATIENCE_SECONDS} seconds"
        raise NotAsPromised(f"Waited {waited}, but this did not happen: {promise}.") from None


async def read_jobs(
    client: pulse.Pulse, ids: Collection[str], topic: str | None = None
) -> list[pulse.JobInfo]:
    """Return these jobs, as the server has them now."""
    found: list[pulse.JobInfo] = []
    cursor: str | None = None
    while len(found) < len(ids):
        page = await client.list_jobs(topic=topic, limit=1000, cursor=cursor)
        found += [job for job in page if job.id in ids]
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of a number of jobs."""

    submitted: int
    completed: int
    retried: int
    dead_lettered: int
    recovered: int
    unfinished: int

    @property
    def missing(self) -> int:
        """How many the server does not know any more. It is always 0, or the demo has found a bug."""
        return self.submitted - self.completed - self.dead_lettered - self.unfinished


async def take_tally(client: pulse.Pulse, ids: Collection[str]) -> Tally:
    """Count what became of these jobs."""
    jobs = await read_jobs(client, ids)
    completed = [job for job in jobs if job.status is pulse.JobStatus.COMPLETED]
    orphans = [job for job in completed if "lease expired" in (job.last_error or "")]
    recovered = [job for job in orphans if was_orphaned(await client.get_job(job.id))]
    return Tally(
        submitted=len(ids),
        completed=len(completed),
        retried=sum(job.attempts > 1 for job in completed),
        dead_lettered=sum(job.status is pulse.JobStatus.DEAD_LETTERED for job in jobs),
        recovered=len(recovered),
        unfinished=sum(not job.status.is_finished for job in jobs),
    )


def was_orphaned(job: pulse.JobInfo) -> bool:
    """Whether an attempt ended because its worker sent no more heartbeats."""
    return any(attempt.outcome == "lease_expired" for attempt in job.history)


def first_line(error: str | None) -> str:
    """Return an error without its traceback."""
    return (error or "").partition("\n")[0]
