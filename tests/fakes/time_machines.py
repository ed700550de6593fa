"""Making time pass for chosen jobs, in memory and in Postgres, without waiting for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

from tests.fakes.jobs import InMemoryJobRepo

_AN_HOUR = timedelta(hours=1)
_A_MOMENT = timedelta(milliseconds=1)


class TimeMachine(Protocol):
    async def lapse_leases(self, *job_ids: str) -> None:
        """The leases of these jobs ran out, in this order."""
        ...

    async def make_due(self, *job_ids: str) -> None:
        """The time of these waiting jobs has come, in this order."""
        ...


class InMemoryTimeMachine:
    def __init__(self, repo: InMemoryJobRepo) -> None:
        self._repo = repo

    async def lapse_leases(self, *job_ids: str) -> None:
        for number, job_id in enumerate(job_ids):
            self._set(job_id, lease_until=self._repo.clock.now() - _AN_HOUR + number * _A_MOMENT)

    async def make_due(self, *job_ids: str) -> None:
        for number, job_id in enumerate(job_ids):
            self._set(job_id, next_run_at=self._repo.clock.now() - _AN_HOUR + number * _A_MOMENT)

    def _set(self, job_id: str, **changes: Any) -> None:
        self._repo._put(self._repo.jobs[job_id], **changes)


class PostgresTimeMachine:
    """Rewrites the stored moments over a connection of its own."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def lapse_leases(self, *job_ids: str) -> None:
        await self._move("lease_until", job_ids)

    async def make_due(self, *job_ids: str) -> None:
        await self._move("next_run_at", job_ids)

    async def _move(self, column: str, job_ids: tuple[str, ...]) -> None:
        await self._connection.execute(
            f"UPDATE pulse.jobs AS job SET {column} = now() - $2::interval + moved.number * $3::interval "
            "FROM unnest($1::uuid[]) WITH ORDINALITY AS moved (id, number) WHERE job.id = moved.id",
            list(job_ids),
            _AN_HOUR,
            _A_MOMENT,
        )
