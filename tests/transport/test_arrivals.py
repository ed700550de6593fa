"""Jobs that applications store and complete in their own transactions: the servers hear of them. ADR-0075"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.database.rights import grants
from pulse_server.jobs.rules import Claim
from tests.eventually import eventually
from tests.postgres.interface import complete_with, token_of
from tests.server.roles import role_in
from tests.transport.awaiting_caller import awaited, settled
from tests.transport.pulse_server_under_test import ServerUnderTest

NOT_COMMITTED = "The transaction was not committed."


@pytest.fixture
async def application(database_dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(database_dsn)
    yield connection
    await connection.close()


async def enqueue(application: Any, topic: str = "mail", options: str = "") -> str:
    return str(await application.fetchval(f"SELECT job_id FROM pulse.enqueue('{topic}', ''{options})"))


async def complete(application: Any, job: pb.JobAssignment, result: bytes | None = None) -> None:
    claim = Claim(job.job_id, "w1", job.attempt, job.run)
    await complete_with(application, claim, token_of(claim), result)


def verdict(job: pb.JobAssignment) -> pb.ReportResultsRequest:
    """What a worker reports after its handler has completed the job itself."""
    result = pb.Result(
        job_id=job.job_id, attempt=job.attempt, run=job.run, error=NOT_COMMITTED, in_transaction=True
    )
    return pb.ReportResultsRequest(worker_id="w1", results=[result])


async def test_worker_gets_a_job_once_its_transaction_commits(
    server: ServerUnderTest, application: Any
) -> None:
    async with server.worker() as worker:
        async with application.transaction():
            job_id = await enqueue(application)
            await server.submit("mail")
            (other,) = await worker.take(1)
            assert other.job_id != job_id
            # Claims have gone past it: the job lies below the floor of its level.
            await server.dispatch_settles()
        (job,) = await worker.take(1)

    assert job.job_id == job_id


async def test_wake_up_makes_the_server_look_now(
    server: ServerUnderTest, application: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.app.work.arrivals.loop, "_interval", timedelta(hours=1))
    monkeypatch.setattr("pulse_server.work.submissions.ARRIVALS_INTERVAL", timedelta(hours=1))
    await server.app.work.arrivals.loop.wait_for_ticks(1)
    async with server.worker() as worker:
        job_id = await enqueue(application)
        await server.stub.SubmitJobs(pb.SubmitJobsRequest(wake=True))

        (job,) = await worker.take(1)

    assert job.job_id == job_id


async def test_limited_topic_starts_jobs_and_counts_completions(
    server: ServerUnderTest, application: Any
) -> None:
    limit = pb.SetTopicRequest(topic="mail", entries=pb.TopicEntries(running=1))
    await server.stub.SetTopic(limit)
    async with server.worker() as worker:
        first, second = await enqueue(application), await enqueue(application)
        (job,) = await worker.take(1)
        assert job.job_id == first
        await complete(application, job)

        (job,) = await worker.take(1)

    assert job.job_id == second


async def test_statistics_count_what_transactions_stored_and_completed(
    server: ServerUnderTest, application: Any
) -> None:
    async with server.worker() as worker:
        await enqueue(application)
        await enqueue(application, options=", delay => '1 h'")
        await application.execute("SELECT pulse.enqueue_many('mail', ARRAY['a', 'b']::bytea[])")
        for job in await worker.take(3):
            await complete(application, job)
        values = server.app.metrics
        await eventually(lambda: sum(values.completed.values.values()) == 3)

    assert values.submitted.values == {("mail",): 4}


async def test_waiter_gets_the_result_that_a_transaction_stored(
    server: ServerUnderTest, application: Any
) -> None:
    async with server.worker() as worker, awaited(server) as waiter:
        job_id = await enqueue(application)
        (job,) = await worker.take(1)
        await waiter.add(job_id)
        await settled(server)
        await complete(application, job, b"42")

        found = await waiter.finished(1)

    assert found[job_id].result == b"42"


async def test_report_after_the_commit_counts_and_changes_nothing(
    server: ServerUnderTest, application: Any
) -> None:
    async with server.worker() as worker:
        job_id = await enqueue(application)
        (job,) = await worker.take(1)
        await complete(application, job)

        assert not (await server.stub.ReportResults(verdict(job))).refused

    view = await server.get(job_id)
    assert (view.status, view.last_error) == ("COMPLETED", "")


async def test_report_after_a_rollback_is_a_failed_attempt(server: ServerUnderTest, application: Any) -> None:
    async with server.worker() as worker:
        job_id = await enqueue(application)
        (job,) = await worker.take(1)
        transaction = application.transaction()
        await transaction.start()
        await complete(application, job)
        await transaction.rollback()

        assert not (await server.stub.ReportResults(verdict(job))).refused

    view = await server.get(job_id)
    assert (view.status, view.last_error) == ("RETRYING", NOT_COMMITTED)


async def test_report_before_the_commit_waits_for_it(server: ServerUnderTest, application: Any) -> None:
    async with server.worker() as worker:
        job_id = await enqueue(application)
        (job,) = await worker.take(1)
        async with application.transaction():
            await complete(application, job)
            (refused,) = (await server.stub.ReportResults(verdict(job))).refused
            assert refused.refusal.code == grpc.StatusCode.UNAVAILABLE.value[0]

        assert not (await server.stub.ReportResults(verdict(job))).refused

    assert (await server.get(job_id)).status == "COMPLETED"


async def test_heartbeat_beside_an_open_completion_keeps_the_other_jobs(
    server: ServerUnderTest, application: Any
) -> None:
    async with server.worker() as worker:
        first, second = await server.submit(), await server.submit()
        jobs = {job.job_id: job for job in await worker.take(2)}
        async with application.transaction():
            await complete(application, jobs[first])
            beat = pb.HeartbeatsRequest(
                worker_id="w1",
                claims=[
                    pb.Claim(job_id=job.job_id, attempt=job.attempt, run=job.run) for job in jobs.values()
                ],
            )
            answer = await server.stub.Heartbeats(beat)

    assert [claim.job_id for claim in answer.unknown] == [first]
    assert not answer.stop
    assert (await server.get(first)).status == "COMPLETED"
    assert (await server.get(second)).status == "RUNNING"


async def test_role_that_replaces_a_waiting_job_is_logged_and_in_the_audit(
    server: ServerUnderTest, database_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It may enqueue and nothing else. The job is an operator's. What is rolled back leaves no trace."""
    caplog.set_level("INFO")
    unique = pb.Unique(key="nightly")
    job_id = await server.submit("mail", b"old", unique=unique, delay=timedelta(hours=1))
    options = ", unique_key => 'nightly', on_conflict => 'replace', delay => '1 hour'"
    async with role_in(database_dsn, *grants({"enqueue": ["{role}"]})) as (role, dsn):
        shop = await asyncpg.connect(dsn)
        transaction = shop.transaction()
        await transaction.start()
        assert await enqueue(shop, options=options) == job_id
        await transaction.rollback()
        for _ in range(3):
            assert await enqueue(shop, options=options) == job_id
        await shop.close()

        await eventually(lambda: "jobs_replaced" in caplog.messages, "the replacement is logged")
        await eventually(lambda: sum(each["count"] for each in replaced(caplog)) == 3, "each of them is")
        await server.app.doors.counted_calls.flush()
    for each in replaced(caplog):
        assert (each["user"], each["role"], each["ids"]) == (role, "sql", [job_id])
    found = await server.stub.ListAudit(pb.ListAuditRequest(id=job_id))
    (entry,) = found.entries
    assert (entry.user, entry.method, entry.count, entry.topic) == (role, "pulse.enqueue", 3, "mail")
    assert json.loads(entry.asked_json) == {"on_conflict": "replace"}


def replaced(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.getMessage() == "jobs_replaced"]
