"""Finished jobs that the benchmark fills in by SQL are jobs as the server knows them."""

from datetime import UTC, datetime, timedelta

from benchmarks.finished import fill_finished
from pulse_server.domain.jobs import JobFilter
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.database import Database
from pulse_server.postgres.jobs import PostgresJobRepo
from pulse_server.postgres.migrations.runner import apply_migrations


async def test_filled_jobs_are_completed_jobs_of_their_days(empty_database_dsn: str) -> None:
    await apply_migrations(empty_database_dsn)
    await fill_finished(empty_database_dsn, 60, days_ago=[1, 2, 3], topic="old")
    database = Database(empty_database_dsn)
    try:
        jobs = await PostgresJobRepo(database).list_jobs(JobFilter(topic="old"), limit=100)
    finally:
        await database.close()
    today = datetime.now(UTC).date()
    assert {job.status for job in jobs} == {JobStatus.COMPLETED}
    days = [job.submitted_at.astimezone(UTC).date() for job in jobs]
    assert {day: days.count(day) for day in days} == {today - timedelta(days=ago): 20 for ago in (1, 2, 3)}
