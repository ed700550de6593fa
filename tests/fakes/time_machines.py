"""Moves the times of chosen jobs instead of waiting."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

_AN_HOUR = timedelta(hours=1)
_A_MOMENT = timedelta(milliseconds=1)


async def check_running_jobs(connection: Any) -> None:
    """Write the lease checks of all running jobs anew, for jobs that no statement of ours has claimed."""
    await connection.execute(
        "DELETE FROM pulse.lease_checks; INSERT INTO pulse.lease_checks (check_at, settled, ids) "
        "SELECT min(lease_until), true, array_agg(id) "
        "FROM (SELECT *, row_number() OVER (ORDER BY lease_until) AS n FROM pulse.jobs "
        "WHERE locked_by IS NOT NULL) AS running GROUP BY n / 1000"
    )


async def lapse_all_leases(connection: Any) -> None:
    """Expire the lease of every running job."""
    await connection.execute(
        "UPDATE pulse.jobs SET lease_until = now() - interval '1 h' WHERE locked_by IS NOT NULL"
    )
    await check_running_jobs(connection)


class PostgresTimeMachine:
    """Rewrites the stored times over a connection of its own."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def lapse_leases(self, *job_ids: str) -> None:
        """Expire the leases of these jobs, in this order."""
        await self._move("lease_until", job_ids)
        await self._connection.execute(
            "INSERT INTO pulse.lease_checks (check_at, settled, ids) "
            "SELECT lease_until, true, ARRAY[id] FROM pulse.jobs "
            "WHERE id = ANY($1::uuid[]) AND lease_until IS NOT NULL",
            list(job_ids),
        )

    async def make_due(self, *job_ids: str) -> None:
        """Make these waiting jobs due, in this order."""
        await self._move("next_run_at", job_ids)

    async def age(self, job_id: str, *, submitted: timedelta, finished: timedelta | None = None) -> None:
        """Move the submit of the job, and its end if it is finished, that far into the past."""
        await self._connection.execute(
            "WITH live AS ("
            "UPDATE pulse.jobs SET submitted_at = now() - $2::interval, finished_at = now() - $3::interval "
            "WHERE id = $1::uuid) "
            "UPDATE pulse.completed_jobs "
            "SET submitted_at = now() - $2::interval, "
            "finished_at = COALESCE(now() - $3::interval, finished_at) "
            "WHERE id = $1::uuid",
            job_id,
            submitted,
            finished,
        )

    async def _move(self, column: str, job_ids: tuple[str, ...]) -> None:
        await self._connection.execute(
            f"UPDATE pulse.jobs AS job SET {column} = now() - $2::interval + moved.number * $3::interval "
            "FROM unnest($1::uuid[]) WITH ORDINALITY AS moved (id, number) WHERE job.id = moved.id",
            list(job_ids),
            _AN_HOUR,
            _A_MOMENT,
        )
