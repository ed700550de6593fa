"""Jobs that transactions stored or completed. Each method sends the SQL section of its own name."""

from __future__ import annotations

from pulse_server.domain.arrivals import Arrival
from pulse_server.domain.jobs import Claim, Level
from pulse_server.postgres.database import Database
from pulse_server.postgres.statements import statements

_SQL = statements("arrivals.sql")


class PostgresArrivalRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_arrivals(self, most: int) -> list[Arrival]:
        """Take some of them. Another server does not get these."""
        rows = await self._database.hot.fetch("take_arrivals", _SQL["take_arrivals"], most)
        return [_arrival(*row) for row in rows]

    async def record_defaults(self, max_attempts: int, max_result_bytes: int) -> None:
        """Let the functions of the interface follow the settings of this server."""
        await self._database.hot.fetch(
            "record_defaults", _SQL["record_defaults"], max_attempts, max_result_bytes
        )


def _arrival(
    topic: str,
    jobs: int,
    ids: list[object] | None,
    priority: int | None,
    age_seconds: float,
    worker_id: str | None,
    attempt: int,
    run: int,
    ran_seconds: float,
) -> Arrival:
    job_ids = [str(job_id) for job_id in ids or ()]
    if worker_id is not None:
        return Arrival(topic, 0, (), None, Claim(job_ids[0], worker_id, attempt, run), ran_seconds)
    level = None if priority is None else Level(topic, priority, age_seconds)
    return Arrival(topic, jobs, job_ids, level)
