"""PauseDispatch, ResumeDispatch and GetDispatchStatus: only claims stop."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.errors import Unavailable
from pulse_server.base.ids import PAGE_BYTES
from tests.eventually import eventually
from tests.transport.authorized import USERS, caller
from tests.transport.pulse_server_under_test import (
    ServerUnderTest,
    believe_in_an_open_gate,
    server_under_test,
)


async def pause(server: ServerUnderTest, **fields: Any) -> None:
    await server.stub.PauseDispatch(pb.PauseDispatchRequest(**fields))


async def resume(server: ServerUnderTest, **fields: Any) -> None:
    await server.stub.ResumeDispatch(pb.ResumeDispatchRequest(**fields))


async def status(server: ServerUnderTest) -> pb.GetDispatchStatusResponse:
    answer: pb.GetDispatchStatusResponse = await server.stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
    return answer


async def database_clock(server: ServerUnderTest) -> datetime:
    now: datetime = await server.table.connection.fetchval("SELECT clock_timestamp()")
    return now


async def test_server_is_open_until_it_is_paused(server: ServerUnderTest) -> None:
    assert await status(server) == pb.GetDispatchStatusResponse()


async def test_pause_shows_the_user_until_it_is_resumed(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        admin, operator = caller(server.channel, "admin"), caller(server.channel, "operator")
        await admin.PauseDispatch(pb.PauseDispatchRequest(reason="maintenance"))
        await operator.PauseDispatch(pb.PauseDispatchRequest(topic="mail"))
        dispatch = await operator.GetDispatchStatus(pb.GetDispatchStatusRequest())
        assert (dispatch.paused_by, [topic.paused_by for topic in dispatch.topics]) == ("admin", ["operator"])

        await operator.PauseDispatch(pb.PauseDispatchRequest(reason="longer"))
        dispatch = await operator.GetDispatchStatus(pb.GetDispatchStatusRequest())
        assert (dispatch.reason, dispatch.paused_by) == ("longer", "operator"), "the user who gave the reason"

        await admin.ResumeDispatch(pb.ResumeDispatchRequest())
        assert (await operator.GetDispatchStatus(pb.GetDispatchStatusRequest())).paused_by == ""


async def test_paused_dispatch_starts_nothing_until_it_is_resumed(server: ServerUnderTest) -> None:
    async with server.worker() as worker:
        await pause(server)
        ids = [await server.submit() for _ in range(3)]
        resumed_at = await database_clock(server)
        await resume(server)
        assert [job.job_id for job in await worker.take(3)] == ids
    rows = [await server.table.row(job_id) for job_id in ids]
    assert all(row["started_at"] > resumed_at for row in rows)


async def test_worker_that_comes_during_the_pause_waits_too(server: ServerUnderTest) -> None:
    await pause(server)
    job_id = await server.submit()
    async with server.worker() as worker:
        resumed_at = await database_clock(server)
        await resume(server)
        assert (await worker.take_one()).job_id == job_id
    assert (await server.table.row(job_id))["started_at"] > resumed_at


async def test_running_jobs_beat_finish_fail_and_are_released_during_the_pause(
    server: ServerUnderTest,
) -> None:
    await server.submit_many(4)
    async with server.worker(capacity=4) as worker:
        done, failed, released, held = await worker.take(4)
        await pause(server)
        assert await worker.beat(done, failed, released, held) == []
        await worker.complete(done)
        await worker.fail(failed, after=timedelta(0))
        assert await worker.release(released) == 1
        assert [(await server.get(job.job_id)).status for job in (done, failed, released, held)] == [
            "COMPLETED",
            "RETRYING",
            "RETRYING",
            "RUNNING",
        ]
        resumed_at = await database_clock(server)
        await resume(server)
        again = await worker.take(2)
        assert {job.job_id for job in again} == {failed.job_id, released.job_id}
    for job in again:
        assert (await server.table.row(job.job_id))["started_at"] > resumed_at


async def test_schedules_go_on_firing_during_the_pause(server: ServerUnderTest) -> None:
    await pause(server)
    await server.stub.CreateSchedule(pb.CreateScheduleRequest(topic="mail", at={"seconds": 1_700_000_000}))
    await server.app.schedules.scheduler.tick()
    await server.table.wait_for_count(1, "schedule_id IS NOT NULL AND status = 'PENDING'")


async def test_paused_topic_is_held_and_the_others_are_let_through(server: ServerUnderTest) -> None:
    await pause(server, topic="mail")
    async with (
        server.worker("w1", topics=["mail"]) as waiting,
        server.worker("w2", topics=["image"]) as working,
        server.worker("w3", topics=["mail", "video"]) as both,
    ):
        mail, image, video = [await server.submit(topic) for topic in ("mail", "image", "video")]
        assert (await working.take_one()).job_id == image
        assert (await both.take_one()).job_id == video
        await server.dispatch_settles()
        assert (await server.get(mail)).status == "PENDING"
        await resume(server, topic="mail")
        taken = await asyncio.wait(
            [asyncio.create_task(worker.take_one()) for worker in (waiting, both)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert [task.result().job_id for task in taken[0]] == [mail]
        for task in taken[1]:
            task.cancel()


async def test_reason_and_time_of_the_pause_are_shown(server: ServerUnderTest) -> None:
    before = await database_clock(server)
    await pause(server, reason="the mail server moves")
    await pause(server, reason="quota", topic="mail")
    after = await database_clock(server)

    dispatch = await status(server)

    assert (dispatch.paused, dispatch.reason) == (True, "the mail server moves")
    assert before <= dispatch.paused_at.ToDatetime(tzinfo=UTC) <= after
    (topic,) = dispatch.topics
    assert (topic.topic, topic.reason) == ("mail", "quota")
    assert before <= topic.paused_at.ToDatetime(tzinfo=UTC) <= after


async def test_pausing_again_keeps_since_when(server: ServerUnderTest) -> None:
    await pause(server, reason="first")
    first = await status(server)
    await pause(server, reason="second")
    second = await status(server)

    assert (second.reason, second.paused_at) == ("second", first.paused_at)


async def test_resume_of_one_switch_leaves_the_other(server: ServerUnderTest) -> None:
    await pause(server, reason="all")
    await pause(server, topic="mail")

    await resume(server, topic="mail")
    assert (await status(server)).paused

    await pause(server, topic="mail")
    await resume(server)
    dispatch = await status(server)
    assert (dispatch.paused, dispatch.reason, dispatch.HasField("paused_at")) == (False, "", False)
    assert [topic.topic for topic in dispatch.topics] == ["mail"]


async def test_reason_is_stored_without_nul_and_cut(server: ServerUnderTest) -> None:
    await pause(server, reason="a\0b" + "ü" * 100_000)
    reason = (await status(server)).reason

    assert reason.startswith("abü")
    assert 8_000 < len(reason.encode()) <= 8 * 1024


async def test_claim_sees_the_switch_though_the_replica_believes_itself_open(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim statement reads the switch itself."""
    await believe_in_an_open_gate(server, monkeypatch)
    claimed: asyncio.Queue[int] = asyncio.Queue()
    claims = server.app.dispatch.claims
    really_claim = claims.claim

    async def claim(topics: Any, slots: Any, levels: Any) -> Any:
        jobs = await really_claim(topics, slots)
        claimed.put_nowait(len(jobs))
        return jobs

    monkeypatch.setattr(claims, "claim", claim)
    async with server.worker() as worker:
        assert await claimed.get() == 0
        connection = server.table.connection
        await connection.execute("UPDATE pulse.dispatch_control SET paused = true, paused_at = now()")
        first = await server.submit()
        assert await claimed.get() == 0
        await connection.execute("UPDATE pulse.dispatch_control SET paused = false, paused_at = NULL")
        second = await server.submit()  # its wake-up makes the hub look again
        assert [job.job_id for job in await worker.take(2)] == [first, second]


async def test_server_starts_paused_if_the_switch_says_so(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as server:
        await pause(server, reason="maintenance", topic="mail")
        await pause(server, reason="maintenance")
        before = await status(server)
    async with server_under_test(database_dsn) as server:
        assert server.app.dispatch.gate.state.everything is not None, "known before the first call"
        assert await status(server) == before


async def test_server_that_cannot_read_the_switch_does_not_start(
    server: ServerUnderTest, database_dsn: str
) -> None:
    await server.table.connection.execute("DELETE FROM pulse.dispatch_control")

    with pytest.raises(
        Unavailable, match=r"^The row of pulse\.dispatch_control is missing, .* Put it back: .*"
    ):
        async with server_under_test(database_dsn):
            pass


async def test_status_fits_into_an_answer_and_counts_the_topics_that_it_leaves_out(
    server: ServerUnderTest,
) -> None:
    reason = "x" * bounds.MAX_ERROR_BYTES
    await server.table.connection.execute(
        "INSERT INTO pulse.barred_topics (topic, reason) "
        "SELECT 'topic-' || number, $1 FROM generate_series(1, 600) AS number",
        reason,
    )

    dispatch = await status(server)

    assert dispatch.ByteSize() <= PAGE_BYTES
    assert dispatch.topics
    assert len(dispatch.topics) + dispatch.topics_left_out == 600


async def test_pause_is_answered_while_the_server_cannot_read_the_switches(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session has locked a table that the gate reads. The pause is made; the gate follows later."""
    monkeypatch.setattr("pulse_server.dispatch.service.CATCH_UP", timedelta(milliseconds=100))
    other = server.table.connection.another()
    async with other.transaction():
        await other.execute("LOCK TABLE pulse.limit_policies IN ACCESS EXCLUSIVE MODE")
        await server.stub.PauseDispatch(pb.PauseDispatchRequest(reason="fire"))
        assert server.app.dispatch.gate.state.everything is None
    await other.close()

    await eventually(lambda: server.app.dispatch.gate.state.everything, "the gate is closed")
