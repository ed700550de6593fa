"""Each arrow of docs/job-lifecycle.md reaches the watchers, the metrics and dispatch."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.fakes.time_machines import lapse_all_leases
from tests.transport import staged_limits, staged_operators, staged_runs
from tests.transport.arrows import STAGED, arrow
from tests.transport.publications import Publications
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest
from tests.transport.streaming_worker import StreamingWorker
from tests.transport.watching import Watching

LIFECYCLE = Path(__file__).parents[2] / "docs" / "job-lifecycle.md"
ARROW = re.compile(r"^(\S+) +-> +([A-Z_]+) +(\w+) ", re.MULTILINE)


@arrow("(new)", "PENDING", "insert_one")
async def submitted_alone(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit("unwanted")


@arrow("(new)", "PENDING", "insert_jobs")
async def submitted(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit_many(2, "unwanted")


@arrow("(new)", "RUNNING", "hand_over_one")
async def handed_over_alone(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit()
    await worker.take_one()


@arrow("(new)", "PENDING", "hand_over_one")
async def not_handed_over_alone(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.table.connection.execute(  # the server has not heard of it
        "INSERT INTO pulse.barred_topics (topic) VALUES ('mail')"
    )
    await server.submit()


@arrow("(new)", "RUNNING", "hand_over_jobs")
async def handed_over(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit_many(2)
    await worker.take_one()


@arrow("(new)", "PENDING", "hand_over_jobs")
async def not_handed_over(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit_many(2)  # there is one slot


@arrow("PENDING", "RUNNING", "claim_batch")
async def claimed(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit_many(2)
    await worker.complete(await worker.take_one())
    await worker.take_one()


@arrow("RETRYING", "RUNNING", "claim_batch")
async def claimed_again(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await failed(server, worker)
    await worker.take_one()


@arrow("PENDING", "RUNNING", "claim_across_topics")
async def claimed_from_several_topics(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit("image")
    async with server.worker("w2", topics=["image", "audio"]) as other:
        await other.take_one()


@arrow("RETRYING", "RUNNING", "claim_across_topics")
async def claimed_again_from_several_topics(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit("image")
    async with server.worker("w2", topics=["image", "audio"]) as other:
        await other.fail(await other.take_one(), after=0.05 * SECOND)
        await other.take_one()


@arrow("RUNNING", "COMPLETED", "complete_jobs")
async def completed(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit()
    await worker.complete(await worker.take_one())


@arrow("RUNNING", "COMPLETED", "complete_in_place")
async def completed_with_an_id_ahead_of_the_time(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit(job_id="ffffffff-ffff-7fff-bfff-ffffffffffff")
    await worker.complete(await worker.take_one())


@arrow("RUNNING", "RETRYING", "fail_jobs")
async def failed(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit()
    await worker.fail(await worker.take_one(), after=0.05 * SECOND)


@arrow("RUNNING", "DEAD_LETTERED", "fail_jobs")
async def discarded(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit()
    await worker.fail(await worker.take_one(), discard=True)


@arrow("RUNNING", "RETRYING", "release_jobs")
async def released(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit()
    job = await worker.take_one()
    await worker.release(job)


async def reap(server: ServerUnderTest) -> None:
    await lapse_all_leases(server.table.connection)
    server.app.work.lease_keeping.watchdog._steady_since = -1e9
    server.app.work.lease_keeping.watchdog.loop.nudge()


@arrow("RUNNING", "RETRYING", "reap_expired")
async def reaped(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit()
    await worker.take_one()
    await reap(server)


@arrow("RUNNING", "DEAD_LETTERED", "reap_expired")
async def reaped_for_good(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.submit(max_attempts=1)
    job = await worker.take_one()
    await worker.beat(job)
    await reap(server)


@arrow("(new)", "PENDING", "fire_schedules")
async def fired(server: ServerUnderTest, worker: StreamingWorker) -> None:
    schedule_id = await schedule(server, "unwanted")
    await server.table.connection.execute(
        "UPDATE pulse.schedules SET next_run_at = now() - interval '1 s' WHERE id = $1", schedule_id
    )
    server.app.schedules.scheduler.loop.nudge()


@arrow("(new)", "PENDING", "fire_now")
async def fired_by_an_operator(server: ServerUnderTest, worker: StreamingWorker) -> None:
    await server.stub.FireSchedule(pb.FireScheduleRequest(schedule_id=await schedule(server, "unwanted")))


def test_every_arrow_is_staged() -> None:
    assert staged_runs.__doc__, "its stages are registered"
    assert staged_limits.__doc__, "and its stages"
    assert staged_operators.__doc__, "and its stages"
    assert STAGED.keys() == {
        (before, after, section)
        for before, after, section in ARROW.findall(LIFECYCLE.read_text())
        if before != after
    }


# What the publisher calls on the roster, so that dispatch acts on the arrow. The others need no action: a
# claim takes what is there, and the slot of a reported job is free as soon as the report arrives.
WAKES = {
    **dict.fromkeys(("insert_jobs", "insert_one", "insert_rich_jobs"), "wake"),
    **dict.fromkeys(("fire_schedules", "fire_queued", "fire_now"), "wake"),
    **dict.fromkeys(("release_jobs", "retry_jobs"), "wake"),
    "reap_expired": "expire_claims",
}
WAKES_BY_ARROW = {
    ("(new)", "PENDING", "hand_over_one"): "wake",
    ("(new)", "PENDING", "hand_over_jobs"): "wake",
    ("(new)", "PENDING", "hand_over_limited"): "wake",
    ("RUNNING", "CANCELED", "cancel_jobs"): "stop_claims",
    ("CANCELED", "PENDING", "undo_jobs"): "wake",
    # Their waits are over: they were promoted.
    ("RETRYING", "RUNNING", "claim_batch"): "wake",
    ("RETRYING", "RUNNING", "claim_across_topics"): "wake",
}


@pytest.mark.parametrize("staged", STAGED, ids=lambda arrow: "-".join(arrow))
async def test_transition_is_seen_by_watchers_metrics_and_dispatch(
    server: ServerUnderTest, staged: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, section = staged
    published = Publications(server.app, monkeypatch)
    async with Watching(server.stub) as watching, server.worker("w1", capacity=1) as worker:
        await STAGED[staged](server, worker)
        lives: dict[str, list[str]] = {}
        seen: Counter[str] = Counter()
        tail = [after] if before == "(new)" else [before, after]
        is_seen = False
        # What is counted and not seen yet is on its way to the watcher.
        while not is_seen or (section != "undo_jobs" and seen != published.counted()):
            (change,) = await watching.see(1)
            life = lives.setdefault(change.job_id, [])
            life.append(change.status)
            is_seen = is_seen or life[-len(tail) :] == tail
            seen[change.status] += 1
    wakes = WAKES_BY_ARROW.get(staged) or WAKES.get(section)
    assert wakes is None or wakes in published.woken


@pytest.mark.parametrize("status", ["COMPLETED", "DEAD_LETTERED", "CANCELED"])
async def test_deletion_is_counted(server: ServerUnderTest, status: str) -> None:
    job_id = await server.submit("mail")
    async with server.worker("w1", capacity=1) as worker:
        job = await worker.take_one()
        if status == "COMPLETED":
            await worker.complete(job)
        elif status == "DEAD_LETTERED":
            await worker.fail(job, discard=True)
        else:
            await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
        await server.stub.DeleteJob(pb.DeleteJobRequest(job_id=job_id))
    assert server.app.metrics.deleted.values == {(status, "operator"): 1}


async def schedule(server: ServerUnderTest, topic: str = "mail") -> str:
    request = pb.CreateScheduleRequest(topic=topic)
    request.every.FromTimedelta(3600 * SECOND)
    return str((await server.stub.CreateSchedule(request)).schedule_id)


async def test_fire_by_the_timetable_is_seen(server: ServerUnderTest) -> None:
    async with Watching(server.stub) as watching:
        schedule_id = await schedule(server)
        await server.table.connection.execute(
            "UPDATE pulse.schedules SET next_run_at = now() - interval '1 s' WHERE id = $1", schedule_id
        )
        server.app.schedules.scheduler.loop.nudge()
        assert await watching.statuses(1) == [("PENDING", 0)]


async def test_fire_by_hand_is_seen_once(server: ServerUnderTest) -> None:
    async with Watching(server.stub) as watching:
        schedule_id = await schedule(server)
        job_id = (await server.stub.FireSchedule(pb.FireScheduleRequest(schedule_id=schedule_id))).job_id
        again = pb.FireScheduleRequest(schedule_id=schedule_id, job_id=job_id)
        assert (await server.stub.FireSchedule(again)).job_id == job_id  # a repeat makes nothing
        other = await server.submit("other")
        seen = await watching.see(2)

    assert [(change.job_id, change.topic, change.status) for change in seen] == [
        (job_id, "mail", "PENDING"),
        (other, "other", "PENDING"),
    ]
