"""pulse.complete_job: a job is completed in the transaction of its handler. ADR-0075"""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from pulse_server.domain.status import JobStatus
from tests.fakes.store import Store
from tests.postgres.interface import complete, enqueue
from tests.postgres.sessions import Connection

JOB = {"topic": "email", "payload": b"1"}


async def test_completion_is_committed_with_the_rows_or_not_at_all(
    postgres: Store, connection: Connection
) -> None:
    claim = await postgres.start()
    transaction = connection.transaction()
    await transaction.start()
    await complete(connection, claim)
    await transaction.rollback()
    assert (await postgres.repo.look_up_jobs([claim.job_id]))[claim.job_id].status is JobStatus.RUNNING

    async with connection.transaction():
        await complete(connection, claim, b"result")

    job = await postgres.repo.get_job(claim.job_id)
    assert job is not None
    assert (job.status, job.finished_by, job.result) == (JobStatus.COMPLETED, "A", b"result")


async def test_claim_that_does_not_hold_completes_nothing(postgres: Store, connection: Connection) -> None:
    claim = await postgres.start()
    for lost in (
        claim._replace(worker_id="B"),
        claim._replace(run=(claim.run or 0) + 1),
        claim._replace(job_id=str(UUID(int=1))),
    ):
        with pytest.raises(asyncpg.PostgresError, match="no longer held") as refused:
            await complete(connection, lost)
        assert refused.value.sqlstate == "PU001"
    await postgres.repo.cancel_jobs([claim.job_id], "", list(JobStatus))

    with pytest.raises(asyncpg.PostgresError, match="no longer held"):
        await complete(connection, claim)


async def test_second_completion_by_the_same_run_raises_too(postgres: Store, connection: Connection) -> None:
    """The handler repeats a transaction whose answer was lost: its rows must not be written twice."""
    claim = await postgres.start()
    await complete(connection, claim)

    with pytest.raises(asyncpg.PostgresError, match="completed already") as refused:
        await complete(connection, claim)

    assert refused.value.sqlstate == "PU002"


async def test_result_that_is_too_large_is_refused(postgres: Store, connection: Connection) -> None:
    claim = await postgres.start()

    with pytest.raises(
        asyncpg.InvalidParameterValueError, match=r"^result has 65537 bytes; 65536 are allowed"
    ):
        await complete(connection, claim, b"x" * 65537)


async def test_job_with_an_id_ahead_of_the_time_is_completed_in_place(
    postgres: Store, connection: Connection
) -> None:
    ahead = "7fffffff-ffff-7fff-8fff-ffffffffffff"
    await enqueue(connection, **JOB, id=UUID(ahead))
    (claim,) = await postgres.claim()

    await complete(connection, claim, b"1")

    row = await connection.fetchrow("SELECT status, result FROM pulse.jobs WHERE id = $1", UUID(ahead))
    assert tuple(row) == ("COMPLETED", b"1")
    with pytest.raises(asyncpg.PostgresError, match="completed already"):
        await complete(connection, claim)
