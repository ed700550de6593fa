"""ExportJobs: finished jobs, whole, in the order of submission, each once."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from pulse_server.views import records
from tests.rows import each_row
from tests.transport.authorized import USERS, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.step_calls import store

HOUR = timedelta(hours=1)


def stamp(ago: timedelta) -> Timestamp:
    moment = Timestamp()
    moment.FromDatetime(datetime.now(UTC) - ago)
    return moment


async def canceled(
    server: ServerUnderTest, *ages: float, topic: str = "mail", payload: bytes = b""
) -> list[str]:
    """Jobs that were canceled so many hours ago, an hour after they were submitted. Returns their ids."""
    ids = []
    for age in ages:
        ids.append(await server.submit(topic, payload))
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=ids[-1], reason="not wanted"))
        await finish_earlier(server, ids[-1], age)
    return ids


async def finish_earlier(server: ServerUnderTest, job_id: str, hours: float) -> None:
    for table in await tables(server):
        await server.table.connection.execute(
            f"""UPDATE {table} SET submitted_at = now() - $2::interval - interval '1 hour',
                finished_at = now() - $2::interval WHERE id = $1""",
            *(job_id, hours * HOUR),
        )


async def tables(server: ServerUnderTest) -> list[str]:
    """The tables that have finished jobs."""
    rows = await server.table.connection.fetch(
        "SELECT name FROM unnest(ARRAY['pulse.jobs', 'pulse.completed_jobs']) AS name "
        "WHERE to_regclass(name) IS NOT NULL"
    )
    return [row["name"] for row in rows]


async def messages(stub: Any, **fields: Any) -> list[pb.ExportJobsResponse]:
    return [message async for message in stub.ExportJobs(pb.ExportJobsRequest(**fields))]


def ids_of(found: Sequence[pb.ExportJobsResponse]) -> list[str]:
    return [job.job_id for message in found for job in message.jobs]


async def exported(stub: Any, **fields: Any) -> list[str]:
    return ids_of(await messages(stub, **fields))


async def test_finished_jobs_are_exported_whole_in_the_order_of_submission(server: ServerUnderTest) -> None:
    newer, older = await canceled(server, 1, 2, payload=b'{"to": "a@b.c"}')
    async with server.worker(topics=["done"]) as worker:
        done = await server.submit("done", b"\xff\x00", metadata={"tenant": "acme"}, idempotency_key="k")
        await worker.complete(*await worker.take(1))
    await finish_earlier(server, done, 3)
    await server.submit()

    found = await messages(server.stub)

    assert ids_of(found) == [done, older, newer]
    assert [message.next_page_token for message in found][-1] == ""
    for job in (job for message in found for job in message.jobs):
        assert job == await server.get(job.job_id), "as GetJob returns it"
    first = found[0].jobs[0]
    assert (first.status, first.payload, dict(first.metadata)) == (
        "COMPLETED",
        b"\xff\x00",
        {"tenant": "acme"},
    )


async def test_history_of_attempts_is_exported(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        (job,) = await worker.take(1)
        await worker.fail(job, "no such user", discard=True)
    await finish_earlier(server, job_id, 1)

    ((job,),) = [message.jobs for message in await messages(server.stub)]

    assert [(past.outcome, past.error) for past in job.history] == [("discarded", "no such user")]


async def test_steps_are_exported_as_a_completed_job_keeps_them(server: ServerUnderTest) -> None:
    done, dead, plain = [await server.submit() for _ in range(3)]
    async with server.worker() as worker:
        jobs = {job.job_id: job for job in await worker.take(3)}
        for job_id in (done, dead):
            await store(server, jobs[job_id], "fetch", b"12345")
            await store(server, jobs[job_id], "send")
        await worker.complete(jobs[done])
        await worker.complete(jobs[plain])
        await worker.fail(jobs[dead], discard=True)
    for job_id in (done, dead, plain):
        await finish_earlier(server, job_id, 1)

    found = {steps.job_id: steps for message in await messages(server.stub) for steps in message.steps}

    assert found.keys() == {done, dead}
    for job_id, exported_steps in found.items():
        listed = await server.stub.ListSteps(pb.ListStepsRequest(job_id=job_id))
        assert [step.name for step in exported_steps.steps] == ["fetch", "send"]
        for exported_step, step in zip(exported_steps.steps, listed.steps, strict=True):
            exported_step.due = step.due
            assert exported_step == step


async def test_export_is_limited_to_topic_status_and_times(server: ServerUnderTest) -> None:
    old, new = await canceled(server, 5, 1)
    (other,) = await canceled(server, 3, topic="other")
    stub = server.stub

    assert await exported(stub, topic="other") == [other]
    assert await exported(stub, status="CANCELED") == [old, other, new]
    assert await exported(stub, status="COMPLETED") == []
    assert await exported(stub, finished_before=stamp(2 * HOUR)) == [old, other]
    assert await exported(stub, finished_since=stamp(4 * HOUR), finished_before=stamp(2 * HOUR)) == [other]


async def test_exports_that_adjoin_miss_nothing_and_repeat_nothing(server: ServerUnderTest) -> None:
    first = await canceled(server, 3, 2)
    (fresh,) = await canceled(server, 0)
    *_, last = await messages(server.stub, finished_before=stamp(-HOUR))
    assert ids_of([last]) == first, "what finished this moment may not be visible to all yet"
    await finish_earlier(server, fresh, 0)
    await server.table.connection.execute(
        "UPDATE pulse.jobs SET finished_at = $1 WHERE id = $2",
        *(last.finished_before.ToDatetime(tzinfo=UTC), fresh),
    )

    assert await exported(server.stub, finished_since=last.finished_before) == [fresh]


async def test_export_since_a_moment_ago_is_empty_and_goes_on_from_there(server: ServerUnderTest) -> None:
    await canceled(server, 1)
    for fields in ({}, {"finished_before": stamp(-2 * HOUR)}):
        since = stamp(-HOUR)
        (message,) = await messages(server.stub, finished_since=since, **fields)
        assert (ids_of([message]), message.finished_before, message.next_page_token) == ([], since, "")


async def test_export_continues_after_any_message(server: ServerUnderTest, monkeypatch: Any) -> None:
    monkeypatch.setattr(records, "LOOK_AT", 2)
    ids = await canceled(server, 5, 4, 3, 2, 1)
    found = await messages(server.stub)
    assert ids_of(found) == ids

    for place, message in enumerate(found[:-1], 1):
        rest = await messages(server.stub, page_token=message.next_page_token)
        assert ids_of(rest) == ids_of(found[place:])
        assert {late.finished_before.seconds for late in rest} == {message.finished_before.seconds}


async def test_message_is_bounded_in_bytes(server: ServerUnderTest) -> None:
    ids = await canceled(server, 4, 3, 2, 1, payload=b"x" * 700_000)
    small = await canceled(server, 0.9, 0.8)

    found = await messages(server.stub)

    assert ids_of(found) == ids + small
    assert max(message.ByteSize() for message in found) < 2 * 1024 * 1024


async def test_one_job_among_many_is_found_in_steps_that_are_bounded(
    server: ServerUnderTest, monkeypatch: Any
) -> None:
    monkeypatch.setattr(records, "LOOK_AT", 3)
    await canceled(server, 9, 8, 7, 6)
    (wanted,) = await canceled(server, 5, topic="rare")
    await canceled(server, 4, 3, 2, 1)

    found = await messages(server.stub, topic="rare")

    assert [len(message.jobs) for message in found] == [0, 1, 0, 0]
    assert ids_of(found) == [wanted]


async def test_jobs_that_finish_vanish_or_move_on_are_exported_once_at_the_most(
    server: ServerUnderTest, monkeypatch: Any
) -> None:
    monkeypatch.setattr(records, "LOOK_AT", 2)
    ids = await canceled(server, 9, 8, 7, 6, 5, 4)
    call = server.stub.ExportJobs(pb.ExportJobsRequest(), wait_for_ready=True)
    first = await call.read()
    seen = ids_of([first])
    # One behind and one ahead are retried and canceled again, one ahead is deleted: places do not change.
    for job_id in (ids[0], ids[4]):
        await server.stub.RetryJob(pb.RetryJobRequest(job_id=job_id))
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
    await server.stub.DeleteJob(pb.DeleteJobRequest(job_id=ids[3]))
    rest = await messages(server.stub, page_token=first.next_page_token)
    call.cancel()

    assert seen + ids_of(rest) == [*ids[:3], ids[5]], "of those that finished before the export began"


@each_row(
    "fields, text",
    [
        ({"status": "RUNNING"}, "only finished jobs"),
        ({"status": "' OR true --"}, "is not a status"),
        ({"topic": "a b"}, "topic"),
        ({"finished_before": Timestamp(seconds=2**62)}, "finished_before"),
        ({"finished_since": Timestamp(seconds=-1)}, "finished_since"),
        ({"finished_since": stamp(HOUR), "finished_before": stamp(2 * HOUR)}, "where the export ends"),
        ({"page_token": "%%%"}, "page_token"),
        ({"page_token": "YQ=="}, "page_token"),
        ({"page_token": "MjAzMC0wMS0wMVQwMDowMDowMHxhYWE="}, "page_token"),
    ],
)
async def test_export_that_cannot_be_made_is_refused(
    server: ServerUnderTest, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await messages(server.stub, **fields)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (refused.value.details() or "")


async def test_roles_that_may_list_jobs_may_export_them_with_payloads(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        admin = caller(server.channel, "admin")
        job_id = (await admin.SubmitJob(pb.SubmitJobRequest(topic="mail", payload=b"secret"))).job_id
        await admin.CancelJob(pb.CancelJobRequest(job_id=job_id))
        await finish_earlier(server, job_id, 1)
        for role in ("admin", "operator", "viewer"):
            ((job,),) = [message.jobs for message in await messages(caller(server.channel, role))]
            assert job.payload == b"secret"
        for role in ("producer", "worker"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await messages(caller(server.channel, role))
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_export_of_nothing_is_one_empty_message(server: ServerUnderTest) -> None:
    (message,) = await messages(server.stub)
    assert not message.jobs
    assert message.HasField("finished_before")
