"""ReportResult, ReportResults, Heartbeat, Heartbeats and Release."""

from datetime import timedelta
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.streaming_worker import claim_of, wire_duration

FAILED_PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION.value[0]


def success(job: pb.JobAssignment, **other: Any) -> pb.ReportResultRequest:
    fields: dict[str, Any] = {"worker_id": "w1", "attempt": job.attempt} | other
    return pb.ReportResultRequest(job_id=job.job_id, success=True, **fields)


async def test_reported_success_completes_the_job(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        await server.stub.ReportResult(success(await worker.take_one()))
    job = await server.get(job_id)
    assert (job.status, job.worker_id, job.last_error) == ("COMPLETED", "w1", "")


async def test_reported_failure_waits_for_its_backoff(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        await worker.fail(await worker.take_one(), "boom")
    job = await server.get(job_id)
    assert (job.status, job.last_error, job.attempts) == ("RETRYING", "boom", 1)
    wait = job.next_run_at.ToDatetime() - job.history[0].ended_at.ToDatetime()
    # A second, with a jitter of a fifth.
    assert abs(wait - timedelta(seconds=1)) < timedelta(milliseconds=300)


async def test_retry_after_replaces_the_backoff(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        await worker.fail(await worker.take_one(), after=timedelta(hours=2))
    job = await server.get(job_id)
    wait = job.next_run_at.ToDatetime() - job.history[0].ended_at.ToDatetime()
    assert abs(wait - timedelta(hours=2)) < timedelta(seconds=1)


async def test_discarded_job_is_dead_lettered_at_once(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        await worker.fail(await worker.take_one(), "hopeless", discard=True)
    job = await server.get(job_id)
    assert (job.status, job.last_error, job.attempts) == ("DEAD_LETTERED", "hopeless", 1)
    assert job.history[0].outcome == "discarded"


async def test_last_attempt_that_fails_is_dead_lettered(server: ServerUnderTest) -> None:
    job_id = await server.submit(max_attempts=1)
    async with server.worker() as worker:
        await worker.fail(await worker.take_one(), "boom")
    job = await server.get(job_id)
    assert (job.status, job.last_error) == ("DEAD_LETTERED", "boom")


async def test_repeated_reports_are_taken_as_the_first(server: ServerUnderTest) -> None:
    await server.submit_many(3)
    async with server.worker() as worker:
        done, failed, discarded = await worker.take(3)
        for _ in range(2):
            await worker.complete(done)
            await worker.fail(failed, after=timedelta(hours=1))
            await worker.fail(discarded, discard=True)
            jobs = [await server.get(job.job_id) for job in (done, failed, discarded)]
            assert [job.status for job in jobs] == ["COMPLETED", "RETRYING", "DEAD_LETTERED"]
            assert [len(job.history) for job in jobs] == [0, 1, 1]


async def test_repeat_with_another_outcome_is_refused(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        await worker.complete(job)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await worker.fail(job)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (await server.get(job.job_id)).status == "COMPLETED"


async def test_refused_results_are_named_by_their_index_and_the_others_count(server: ServerUnderTest) -> None:
    await server.submit_many(3)
    unknown = "0190f3a0-0000-7000-8000-00000000dead"
    async with server.worker() as worker:
        first, second, third = await worker.take(3)
        answer = await server.stub.ReportResults(
            pb.ReportResultsRequest(
                worker_id="w1",
                results=[
                    pb.Result(job_id="not-an-id", attempt=1, success=True),
                    pb.Result(job_id=first.job_id, attempt=1, success=True),
                    pb.Result(job_id=second.job_id, attempt=7, success=True),
                    pb.Result(job_id=unknown, attempt=1, success=True),
                    pb.Result(job_id=third.job_id, attempt=1, error="x", discard=True),
                    pb.Result(
                        job_id=second.job_id, attempt=1, retry_after=wire_duration(timedelta(seconds=-1))
                    ),
                ],
            )
        )
    refused = {entry.index: entry.refusal for entry in answer.refused}
    assert {index: refusal.code for index, refusal in refused.items()} == {
        0: grpc.StatusCode.INVALID_ARGUMENT.value[0],
        2: FAILED_PRECONDITION,
        3: grpc.StatusCode.NOT_FOUND.value[0],
        5: grpc.StatusCode.INVALID_ARGUMENT.value[0],
    }
    assert refused[0].message.startswith("job_id ")
    assert "attempt" in refused[2].message
    assert unknown in refused[3].message
    assert refused[5].message.startswith("retry_after ")
    statuses = [(await server.get(job.job_id)).status for job in (first, second, third)]
    assert statuses == ["COMPLETED", "RUNNING", "DEAD_LETTERED"]


async def test_report_of_another_worker_is_refused(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        before = await server.table.everything()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.stub.ReportResult(success(job, worker_id="w2"))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "another worker" in str(caught.value.details())
        assert await server.table.everything() == before


async def test_report_of_an_earlier_attempt_is_refused(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as worker:
        first = await worker.take_one()
        await worker.fail(first, after=timedelta(0))
        await worker.take_one()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.stub.ReportResult(success(first))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert (await server.get(first.job_id)).status == "RUNNING"


async def test_error_text_is_stored_without_nul_and_cut_at_8_kib(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        await worker.fail(await worker.take_one(), "a\0b" + "ä" * 10_000)
    error = (await server.get(job_id)).last_error
    assert error.startswith("abää")
    assert 8190 <= len(error.encode()) <= 8192


async def test_heartbeats_extend_the_leases_and_list_only_the_lost_ones(server: ServerUnderTest) -> None:
    await server.submit_many(3)
    async with server.worker() as worker:
        held, reported, released = await worker.take(3)
        lease = (await server.get(held.job_id)).lease_until.ToDatetime()
        await worker.complete(reported)
        await worker.release(released)
        (again,) = await worker.take(1)
        lost = await worker.beat(held, reported, again)
        assert lost == [claim_of(reported)]
        assert (await server.get(held.job_id)).lease_until.ToDatetime() > lease


async def test_heartbeat_of_another_worker_or_attempt_says_stop(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        before = await server.table.everything()
        for worker_id, attempt in (("w2", 1), ("w1", 2)):
            beat = pb.HeartbeatRequest(job_id=job.job_id, worker_id=worker_id, attempt=attempt)
            assert (await server.stub.Heartbeat(beat)).should_stop
        assert await server.table.everything() == before


async def test_heartbeat_of_an_unknown_job_says_stop(server: ServerUnderTest) -> None:
    unknown = "0190f3a0-0000-7000-8000-00000000dead"
    beat = pb.HeartbeatRequest(job_id=unknown, worker_id="w1", attempt=1)
    assert (await server.stub.Heartbeat(beat)).should_stop
    beats = pb.HeartbeatsRequest(worker_id="w1", claims=[pb.Claim(job_id=unknown, attempt=1)])
    assert [claim.job_id for claim in (await server.stub.Heartbeats(beats)).stop] == [unknown]


async def test_released_job_keeps_its_attempt_and_is_delivered_again(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker("w1", capacity=1) as first:
        job = await first.take_one()
        async with server.worker("w2", capacity=1) as second:
            first.leave()
            assert await first.release(job) == 1
            again = await second.take_one()
            assert (again.job_id, again.attempt) == (job_id, 1)
    assert (await server.get(job_id)).history == []


async def test_release_of_a_claim_that_is_gone_changes_nothing(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        before = await server.table.everything()
        foreign = pb.ReleaseRequest(worker_id="w2", claims=[claim_of(job)])
        assert (await server.stub.Release(foreign)).released == 0
        stale = pb.ReleaseRequest(worker_id="w1", claims=[pb.Claim(job_id=job.job_id, attempt=2)])
        assert (await server.stub.Release(stale)).released == 0
        assert await server.table.everything() == before


async def test_what_a_worker_with_a_blocked_event_loop_was_sent_and_has_not_read_is_released(
    server: ServerUnderTest,
) -> None:
    """The worker names all jobs it holds. Started ones have heartbeats, and recent ones may be in transit."""
    ids = [await server.submit() for _ in range(4)]
    async with server.worker("w1", capacity=4) as worker:
        jobs = {job.job_id: job for job in await worker.take(4)}
        named, beaten, unread, young = ids
        await server.stub.Heartbeats(
            pb.HeartbeatsRequest(worker_id="w1", claims=[claim_of(jobs[beaten])]), timeout=10
        )
        await server.table.connection.execute(
            "UPDATE pulse.jobs SET started_at = started_at - interval '2 s' WHERE id <> $1", young
        )
        blocked = pb.ReleaseRequest(worker_id="w1", capacity=1, is_blocked=True, held=[claim_of(jobs[named])])
        await server.stub.Release(blocked)

        async with server.worker("w2", capacity=4) as other:
            again = await other.take_one()
            assert (again.job_id, again.attempt) == (unread, 1)
            assert await server.table.count("locked_by = 'w1'") == 3
