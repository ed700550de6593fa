"""GetJob, ListJobs, CancelJob and RetryJob."""

from datetime import timedelta
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.streaming_worker import claim_of, wire_duration

AT_ONCE = timedelta(0)


async def test_get_job_returns_every_field_of_a_job_that_failed_first(server: ServerUnderTest) -> None:
    job_id = await server.submit(payload=b"{}", priority=3, metadata={"a": "b"}, idempotency_key="k")
    async with server.worker() as worker:
        await worker.fail(await worker.take_one(), "first error", after=AT_ONCE)
        second = await worker.take_one()
        running = await server.get(job_id)
        await worker.complete(second)
    assert (running.status, running.worker_id, running.attempts) == ("RUNNING", "w1", 2)
    assert running.HasField("lease_until")
    assert not running.HasField("next_run_at")

    done = await server.get(job_id)
    assert (done.status, done.topic, done.payload, done.priority) == ("COMPLETED", "mail", b"{}", 3)
    assert (done.attempts, done.max_attempts, done.last_error) == (2, 25, "first error")
    assert (dict(done.metadata), done.idempotency_key, done.worker_id) == ({"a": "b"}, "k", "w1")
    assert not done.HasField("lease_until")
    submitted, started = done.submitted_at.ToDatetime(), done.started_at.ToDatetime()
    assert submitted <= started <= done.finished_at.ToDatetime()
    (attempt,) = done.history
    assert (attempt.attempt, attempt.worker_id, attempt.outcome) == (1, "w1", "failed")
    assert attempt.error == "first error"
    assert submitted <= attempt.started_at.ToDatetime() <= attempt.ended_at.ToDatetime() <= started


async def test_list_is_newest_first_and_leaves_payloads_out(server: ServerUnderTest) -> None:
    ids = [await server.submit(payload=b"large") for _ in range(3)]
    listed = (await server.stub.ListJobs(pb.ListJobsRequest())).jobs
    assert [job.job_id for job in listed] == ids[::-1]
    assert [job.payload for job in listed] == [b"", b"", b""]
    assert [job.status for job in listed] == ["PENDING"] * 3


async def test_list_filters_by_topic_and_status(server: ServerUnderTest) -> None:
    mail, called_off = await server.submit("mail"), await server.submit("mail")
    image = await server.submit("image")
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=called_off))

    async def listed(**wanted: Any) -> set[str]:
        jobs = (await server.stub.ListJobs(pb.ListJobsRequest(**wanted))).jobs
        return {job.job_id for job in jobs}

    assert await listed(topic="mail") == {mail, called_off}
    assert await listed(status="PENDING") == {mail, image}
    assert await listed(topic="mail", status="CANCELED") == {called_off}
    assert await listed(topic="nothing") == set()


async def test_list_pages_by_limit_and_offset(server: ServerUnderTest) -> None:
    newest_first = [await server.submit() for _ in range(5)][::-1]
    page = await server.stub.ListJobs(pb.ListJobsRequest(limit=2, offset=2))
    assert [job.job_id for job in page.jobs] == newest_first[2:4]
    last = await server.stub.ListJobs(pb.ListJobsRequest(limit=2, offset=4))
    assert [job.job_id for job in last.jobs] == newest_first[4:]
    assert not last.next_page_token


async def test_page_tokens_meet_every_job_once_while_new_ones_come_in(server: ServerUnderTest) -> None:
    newest_first = [await server.submit() for _ in range(7)][::-1]
    seen, token = [], ""
    while True:
        page = await server.stub.ListJobs(pb.ListJobsRequest(limit=3, page_token=token))
        seen += [job.job_id for job in page.jobs]
        if not (token := page.next_page_token):
            break
        await server.submit()
    assert seen == newest_first


async def test_list_without_a_limit_has_fifty_and_never_more_than_a_thousand(server: ServerUnderTest) -> None:
    await server.submit_many(1001)
    assert len((await server.stub.ListJobs(pb.ListJobsRequest())).jobs) == 50
    page = await server.stub.ListJobs(pb.ListJobsRequest(limit=2_000_000))
    assert len(page.jobs) == 1000
    assert page.next_page_token


@pytest.mark.parametrize("status", ["PENDING", "RETRYING"])
async def test_canceled_waiting_job_is_never_delivered(server: ServerUnderTest, status: str) -> None:
    async with server.worker() as worker:
        if status == "PENDING":
            job_id = await server.submit(delay=wire_duration(timedelta(hours=1)))
        else:
            job_id = await server.submit()
            await worker.fail(await worker.take_one(), after=timedelta(hours=1))
        assert (await server.get(job_id)).status == status
        answer = await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id, reason="not needed"))
        assert (answer.job.status, answer.job.last_error) == ("CANCELED", "not needed")
        next_id = await server.submit()
        assert (await worker.take_one()).job_id == next_id
    row = await server.table.row(job_id)
    assert (row["status"], row["queued"]) == ("CANCELED", False)


async def test_cancel_of_a_running_job_reaches_its_worker_on_the_stream(server: ServerUnderTest) -> None:
    async with server.worker() as worker:
        job_id = await server.submit()
        job = await worker.take_one()
        answer = await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id, reason="not needed"))
        assert answer.job.status == "CANCELED"
        assert await worker.stops() == [claim_of(job)]
    (attempt,) = (await server.get(job_id)).history
    assert (attempt.attempt, attempt.outcome, attempt.error) == (1, "canceled", "not needed")


async def test_heartbeats_of_a_canceled_job_say_stop(server: ServerUnderTest) -> None:
    async with server.worker() as worker:
        await server.submit_many(2)
        canceled, kept = await worker.take(2)
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=canceled.job_id))
        assert await worker.beat(canceled, kept) == [claim_of(canceled)]
        beat = pb.HeartbeatRequest(job_id=canceled.job_id, worker_id="w1", attempt=1)
        assert (await server.stub.Heartbeat(beat)).should_stop
        beat = pb.HeartbeatRequest(job_id=kept.job_id, worker_id="w1", attempt=1)
        assert not (await server.stub.Heartbeat(beat)).should_stop


async def test_cancel_of_a_running_job_makes_room_for_the_next(server: ServerUnderTest) -> None:
    async with server.worker(capacity=1) as worker:
        await server.submit_many(2)
        first = await worker.take_one()
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=first.job_id))
        assert (await worker.take_one()).job_id != first.job_id


async def test_report_of_a_canceled_job_is_refused(server: ServerUnderTest) -> None:
    async with server.worker() as worker:
        await server.submit()
        job = await worker.take_one()
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=job.job_id))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await worker.fail(job)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (await server.get(job.job_id)).status == "CANCELED"


async def test_cancel_of_a_canceled_job_changes_nothing(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id, reason="first"))
    before = await server.table.everything()
    again = await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id, reason="second"))
    assert (again.job.status, again.job.last_error) == ("CANCELED", "first")
    assert await server.table.everything() == before


@pytest.mark.parametrize("status", ["COMPLETED", "DEAD_LETTERED"])
async def test_cancel_of_a_finished_job_is_refused(server: ServerUnderTest, status: str) -> None:
    async with server.worker() as worker:
        job_id = await server.submit()
        job = await worker.take_one()
        if status == "COMPLETED":
            await worker.complete(job)
        else:
            await worker.fail(job, discard=True)
    before = await server.table.everything()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert status in str(caught.value.details())
    assert await server.table.everything() == before


@pytest.mark.parametrize("ended_by", ["discard", "cancel"])
async def test_retried_job_is_delivered_again_with_attempts_ahead(
    server: ServerUnderTest, ended_by: str
) -> None:
    async with server.worker() as worker:
        job_id = await server.submit(max_attempts=1)
        job = await worker.take_one()
        if ended_by == "discard":
            await worker.fail(job, "hopeless", discard=True)
        else:
            await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
        answer = await server.stub.RetryJob(pb.RetryJobRequest(job_id=job_id, attempts=2))
        assert (answer.job.status, answer.job.attempts, answer.job.max_attempts) == ("PENDING", 1, 3)
        again = await worker.take_one()
        assert (again.job_id, again.attempt, again.max_attempts) == (job_id, 2, 3)
        await worker.complete(again)
    assert (await server.get(job_id)).status == "COMPLETED"


async def test_retry_without_a_number_grants_five_attempts(server: ServerUnderTest) -> None:
    job_id = await server.submit(max_attempts=1)
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
    assert (await server.stub.RetryJob(pb.RetryJobRequest(job_id=job_id))).job.max_attempts == 5


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "RETRYING", "COMPLETED"])
async def test_retry_of_any_other_job_is_refused(server: ServerUnderTest, status: str) -> None:
    job_id = await server.submit()
    if status != "PENDING":
        async with server.worker() as worker:
            job = await worker.take_one()
            if status == "RETRYING":
                await worker.fail(job, after=timedelta(hours=1))
            if status == "COMPLETED":
                await worker.complete(job)
            await server.dispatch_settles()
    before = await server.table.row(job_id)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.stub.RetryJob(pb.RetryJobRequest(job_id=job_id))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert status in str(caught.value.details())
    assert await server.table.row(job_id) == before


async def test_page_of_heavy_jobs_fits_into_what_a_default_client_receives(server: ServerUnderTest) -> None:
    """A thousand long errors exceed the 4 MiB that gRPC receives by default."""
    await server.submit_many(1000)
    await server.table.connection.execute("UPDATE pulse.jobs SET last_error = repeat('x', 8000)")
    found: list[str] = []
    request = pb.ListJobsRequest(limit=1000)
    while not found or request.page_token:
        page = await server.stub.ListJobs(request)
        found += [job.job_id for job in page.jobs]
        request.page_token = page.next_page_token
    assert len(found) == len(set(found)) == 1000
