"""Snoozes and time limits over gRPC: what a worker reports, and what its assignments say."""

from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest


def span(seconds: float) -> Duration:
    message = Duration()
    message.FromTimedelta(timedelta(seconds=seconds))
    return message


async def report(server: ServerUnderTest, job: pb.JobAssignment, worker_id: str, **fields: Any) -> None:
    result = pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, **fields)
    request = pb.ReportResultsRequest(worker_id=worker_id, results=[result])
    answer = await server.stub.ReportResults(request)
    assert not answer.refused, answer.refused


async def test_snoozed_job_runs_again_with_its_attempts(server: ServerUnderTest) -> None:
    job_id = await server.submit(max_attempts=1)
    async with server.worker() as worker:
        job = await worker.take_one()
        assert (job.attempt, job.run, job.HasField("timeout")) == (1, 1, False)
        await report(server, job, worker.worker_id, snooze=span(0.01), error="not yet")
        await report(server, job, worker.worker_id, snooze=span(0.01), error="not yet")  # a repeat
        again = await worker.take_one()
        assert (again.job_id, again.attempt, again.max_attempts, again.run) == (job_id, 1, 1, 2)
        await worker.complete(again)
    view = await server.get(job_id)
    assert (view.status, view.attempts, view.snoozes, view.crashes) == ("COMPLETED", 1, 1, 0)
    assert [(past.outcome, past.error) for past in view.history] == [("snoozed", "not yet")]


async def test_time_limit_travels_with_the_job_and_its_end_is_in_the_history(server: ServerUnderTest) -> None:
    run = pb.TopicEntries(attempt_timeout=span(90))
    await server.stub.SetTopic(pb.SetTopicRequest(topic="mail", entries=run))
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        assert job.timeout.ToTimedelta() == timedelta(seconds=90)
        await report(server, job, worker.worker_id, error="too slow", timed_out=True)
    (past,) = (await server.get(job_id)).history
    assert (past.outcome, past.error) == ("timed_out", "too slow")


async def test_heartbeats_within_the_time_limit_are_answered_as_ever(server: ServerUnderTest) -> None:
    run = pb.TopicEntries(attempt_timeout=span(90))
    await server.stub.SetTopic(pb.SetTopicRequest(topic="mail", entries=run))
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        claims = [pb.Claim(job_id=job.job_id, attempt=job.attempt, run=job.run)]
        request = pb.HeartbeatsRequest(worker_id=worker.worker_id, claims=claims)
        assert not (await server.stub.Heartbeats(request)).stop


@pytest.mark.parametrize("seconds", [-1, 3651 * 86400])
async def test_snooze_that_cannot_be_is_refused(server: ServerUnderTest, seconds: int) -> None:
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await server.stub.ReportResult(
                pb.ReportResultRequest(
                    job_id=job.job_id, worker_id=worker.worker_id, attempt=1, snooze=span(seconds)
                )
            )
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "snooze" in (refused.value.details() or "")
