"""pulse.complete_job: a job is completed in the transaction of its handler. ADR-0075"""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from pulse_server.jobs.rules import JobStatus
from tests.fakes.store import Store
from tests.postgres.interface import complete, complete_with, enqueue, token_of
from tests.postgres.sessions import Connection

JOB = {"topic": "email", "payload": b"1"}


async def test_completion_is_committed_with_the_rows_or_not_at_all(
    store: Store, connection: Connection
) -> None:
    claim = await store.start()
    transaction = connection.transaction()
    await transaction.start()
    await complete(connection, claim)
    await transaction.rollback()
    assert (await store.repo.look_up_jobs([claim.job_id]))[claim.job_id].status is JobStatus.RUNNING

    async with connection.transaction():
        await complete(connection, claim, b"result")

    job = await store.repo.get_job(claim.job_id)
    assert job is not None
    assert (job.status, job.finished_by, job.result) == (JobStatus.COMPLETED, "A", b"result")


async def test_claim_that_does_not_hold_completes_nothing(store: Store, connection: Connection) -> None:
    claim = await store.start()
    for lost in (
        claim._replace(worker_id="B"),
        claim._replace(run=(claim.run or 0) + 1),
        claim._replace(job_id=str(UUID(int=1))),
    ):
        with pytest.raises(asyncpg.PostgresError, match="no longer held") as refused:
            await complete(connection, lost)
        assert refused.value.sqlstate == "PU001"
    await store.repo.cancel_jobs([claim.job_id], "", list(JobStatus))

    with pytest.raises(asyncpg.PostgresError, match="no longer held"):
        await complete(connection, claim)


async def test_second_completion_by_the_same_run_raises_too(store: Store, connection: Connection) -> None:
    """The handler repeats a transaction whose answer was lost: its rows must not be written twice."""
    claim = await store.start()
    await complete(connection, claim)

    with pytest.raises(asyncpg.PostgresError, match="completed already") as refused:
        await complete(connection, claim)

    assert refused.value.sqlstate == "PU002"


async def test_result_that_is_too_large_is_refused(store: Store, connection: Connection) -> None:
    claim = await store.start()

    with pytest.raises(
        asyncpg.InvalidParameterValueError, match=r"^result has 65537 bytes; 65536 are allowed"
    ):
        await complete(connection, claim, b"x" * 65537)


async def test_job_with_an_id_ahead_of_the_time_is_completed_in_place(
    store: Store, connection: Connection
) -> None:
    ahead = "7fffffff-ffff-7fff-8fff-ffffffffffff"
    await enqueue(connection, **JOB, id=UUID(ahead))
    (claim,) = await store.claim()

    await complete(connection, claim, b"1")

    row = await connection.fetchrow("SELECT status, result FROM pulse.jobs WHERE id = $1", UUID(ahead))
    assert tuple(row) == ("COMPLETED", b"1")
    with pytest.raises(asyncpg.PostgresError, match="completed already"):
        await complete(connection, claim)


# ---------------------------------------------------------------- the token of the worker


async def test_caller_that_knows_the_worker_and_the_run_alone_completes_nothing(
    store: Store, connection: Connection
) -> None:
    claim, other = await store.start(), await store.start()
    forged = (
        b"",
        b"\x00" * 16,
        token_of(claim)[:15],
        token_of(claim) + b"\x00",
        token_of(other),
        token_of(claim._replace(run=(claim.run or 0) + 1)),
        token_of(claim._replace(worker_id="B")),
        token_of(claim, secret=b"\x00" * 32),
    )
    for token in forged:
        with pytest.raises(asyncpg.InvalidParameterValueError, match=r"^token is not that of run 1 of job"):
            await complete_with(connection, claim, token, b"forged")
    with pytest.raises(asyncpg.InvalidParameterValueError, match=r"^job, worker, run and token are"):
        await complete_with(connection, claim, None, b"forged")
    assert (await store.job(claim.job_id)).status is JobStatus.RUNNING

    await complete(connection, claim, b"true")

    assert (await store.job(claim.job_id)).result == b"true"
    with pytest.raises(asyncpg.InvalidParameterValueError, match=r"^token is not"):
        await complete_with(connection, claim, b"", b"forged")


async def test_worker_of_an_earlier_run_completes_no_later_one(store: Store, connection: Connection) -> None:
    first = await store.start()
    await store.repo.release_jobs([first])
    (second,) = await store.claim("B")
    assert second.job_id == first.job_id

    for token in (token_of(first), token_of(second._replace(worker_id="A"))):
        with pytest.raises(asyncpg.InvalidParameterValueError, match=r"^token is not"):
            await complete_with(connection, second, token)
    with pytest.raises(asyncpg.PostgresError, match="no longer held"):
        await complete(connection, first)


REPLACE = """
UPDATE pulse.cluster_secret
SET previous = secret, secret = uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
"""


async def test_tokens_of_running_jobs_are_good_until_the_secret_is_replaced_twice(
    store: Store, connection: Connection
) -> None:
    early, late = await store.start(), await store.start()
    await connection.execute(REPLACE)
    await complete(connection, early)
    new = await connection.fetchval("SELECT secret FROM pulse.cluster_secret")
    await connection.execute(REPLACE)

    with pytest.raises(
        asyncpg.InvalidParameterValueError, match=r"^token is not .* the next attempt has a new one\.$"
    ):
        await complete(connection, late)

    await complete_with(connection, late, token_of(late, new))


async def test_without_the_row_of_the_secret_no_token_is_good(store: Store, connection: Connection) -> None:
    claim = await store.start()
    await connection.execute("DELETE FROM pulse.cluster_secret")

    with pytest.raises(asyncpg.InvalidParameterValueError, match=r"^token is not"):
        await complete(connection, claim)
