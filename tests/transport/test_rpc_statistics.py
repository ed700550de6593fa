"""GetStatistics, ListServers and GetSchedulerStatus over real gRPC and Postgres, with one server and two."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import tuning
from pulse_server.base.exposition import installed_version
from pulse_server.base.metrics import BOUNDS, OTHER_TOPICS
from tests.transport.bad_schedule_requests import create
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test

NOTHING = pb.Latency()


@pytest.fixture(autouse=True)
def _nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.base.sharing.TOPICS_SAMPLE_AGE", 0 * SECOND)
    monkeypatch.setattr(tuning, "SAMPLE_REST", 0)


@pytest.fixture
async def replicas(database_dsn: str) -> AsyncIterator[tuple[ServerUnderTest, ServerUnderTest]]:
    async with server_under_test(database_dsn) as a, server_under_test(database_dsn) as b:
        yield a, b


async def statistics(server: ServerUnderTest, topic: str = "", minutes: int = 2) -> pb.GetStatisticsResponse:
    request = pb.GetStatisticsRequest(topic=topic, minutes=minutes)
    response: pb.GetStatisticsResponse = await server.stub.GetStatistics(request)
    return response


def counts(minutes: list[pb.MinuteView]) -> list[int]:
    """Return the sum over all minutes: a test may run into the next minute."""
    names = ("submitted", "completed", "failed", "retried", "dead_lettered", "canceled")
    return [sum(getattr(minute, name) for minute in minutes) for name in names]


# --- minute by minute


async def test_two_servers_add_up_in_counts_and_in_percentiles(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    await there.submit("sms")
    async with here.worker("a", capacity=3) as a:
        await here.submit_many(3)
        jobs_here = await a.take(3)  # it is full: the others go there
        async with there.worker("b", capacity=3) as b:
            await there.submit_many(3)
            taken = [(a, jobs_here), (b, await b.take(3))]
            for worker, (done, dead, again) in taken:
                await worker.complete(done)
                await worker.fail(dead, discard=True)
                await worker.fail(again, after=3600 * SECOND)
    for server in (here, there, here):
        await server.app.views.statistics.record()

    for server in replicas:
        mail, everything = await statistics(server, "mail"), await statistics(server)
        assert counts(list(mail.minutes)) == [6, 2, 4, 2, 2, 0]
        assert counts(list(everything.minutes)) == [7, 2, 4, 2, 2, 0]
        assert [latency.count for latency in (mail.wait, mail.run)] == [6, 6]
        for latency in (mail.wait, mail.run):
            assert 0 < latency.p50_seconds <= latency.p95_seconds <= latency.p99_seconds < 60
        assert sum(minute.wait.count for minute in mail.minutes) == 6


async def test_every_minute_is_there_and_the_running_one_is_last(server: ServerUnderTest) -> None:
    minutes = (await statistics(server, minutes=0)).minutes

    moments = [minute.at.ToDatetime(UTC) for minute in minutes]
    assert len(minutes) == 60
    assert all(later - earlier == timedelta(minutes=1) for earlier, later in pairwise(moments))
    assert timedelta(0) <= datetime.now(UTC) - moments[-1] < timedelta(minutes=2)
    assert all(minute.wait == minute.run == NOTHING for minute in minutes)
    assert len((await statistics(server, minutes=1440)).minutes) == 1440


async def test_percentiles_are_those_of_what_was_measured(server: ServerUnderTest) -> None:
    server.app.metrics.queue_wait.observe_in(("mail",), [0.01] * 90 + [2.0] * 7 + [60.0] * 3)
    await server.app.views.statistics.record()

    wait = (await statistics(server, "mail")).wait

    assert wait.count == 100
    percentiles = (wait.p50_seconds, wait.p95_seconds, wait.p99_seconds)
    assert percentiles == pytest.approx((0.01, 2.0, 60.0), rel=0.2)


async def test_topics_have_the_wait_and_run_times_of_the_last_whole_hour(
    server: ServerUnderTest,
) -> None:
    server.app.metrics.queue_wait.observe("mail", value=BOUNDS[30])
    server.app.metrics.run_time.observe("mail", "failed", value=BOUNDS[40])
    await server.app.views.statistics.record()
    await server.submit("sms")
    await server.table.connection.execute(
        "UPDATE pulse.topic_minutes SET minute = minute - interval '1 minute'"
    )

    found = {view.topic: view for view in (await server.stub.ListTopics(pb.ListTopicsRequest())).topics}

    assert found.keys() == {"mail", "sms"}
    assert (found["mail"].wait.count, found["mail"].run.count) == (1, 1)
    assert BOUNDS[29] < found["mail"].wait.p50_seconds < BOUNDS[30]
    assert BOUNDS[39] < found["mail"].run.p50_seconds < BOUNDS[40]
    assert found["sms"].wait == found["sms"].run == NOTHING


async def test_topics_beyond_the_limit_have_statistics_together(server: ServerUnderTest) -> None:
    server.app.metrics.submitted.add(OTHER_TOPICS, by=3)
    await server.app.views.statistics.record()

    assert counts(list((await statistics(server, OTHER_TOPICS)).minutes))[0] == 3


async def test_one_look_serves_all_who_ask(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.base.sharing.TOPICS_SAMPLE_AGE", 60 * SECOND)
    for _ in range(5):
        await statistics(server)

    assert sum(server.app.metrics.statement_time.values["topic_minutes",].counts) == 1


# --- servers


async def test_servers_are_listed_by_name_with_their_workers(
    replicas: tuple[ServerUnderTest, ServerUnderTest],
) -> None:
    here, there = replicas
    for server, name in ((here, "b:1"), (there, "a:1")):
        server.app.views.servers._name = name
        # At its start the server writes its row under the former name: wait for that.
        server.app.views.servers.loop.nudge()
        await server.app.views.servers.loop.wait_for_ticks(1)
    await here.table.connection.execute("TRUNCATE pulse.servers")
    async with there.worker("w1"), there.worker("w2"):
        for server in replicas:
            await server.app.views.servers.record()
        listed = [
            list((await server.stub.ListServers(pb.ListServersRequest())).servers) for server in replicas
        ]

    assert listed[0] == listed[1]
    assert [(view.name, view.workers) for view in listed[0]] == [("a:1", 2), ("b:1", 0)]
    assert {(view.address, view.version) for view in listed[0]} == {
        ("127.0.0.1:0", installed_version()),
    }
    rows = await here.table.connection.fetch("SELECT id, started_at FROM pulse.servers ORDER BY name")
    assert [(view.server_id, view.started_at.ToDatetime(UTC)) for view in listed[0]] == [
        (str(server_id), started_at) for server_id, started_at in rows
    ]


# --- the scheduler


async def status(server: ServerUnderTest) -> pb.GetSchedulerStatusResponse:
    response: pb.GetSchedulerStatusResponse = await server.stub.GetSchedulerStatus(
        pb.GetSchedulerStatusRequest()
    )
    return response


async def test_without_schedules_nothing_is_next_and_nothing_late(server: ServerUnderTest) -> None:
    assert await status(server) == pb.GetSchedulerStatusResponse()


async def test_scheduler_status_has_the_counts_and_the_next_run(server: ServerUnderTest) -> None:
    views = [(await server.stub.CreateSchedule(create(name=name))).schedule for name in "abc"]
    await server.stub.PauseSchedule(pb.PauseScheduleRequest(schedule_id=views[0].schedule_id))

    found = await status(server)

    assert (found.active, found.paused, found.late_seconds) == (2, 1, 0)
    assert found.next_run_at == views[1].next_run_at


async def test_schedule_that_is_due_and_not_fired_makes_the_scheduler_late(server: ServerUnderTest) -> None:
    server.app.schedules.scheduler.loop.stop()  # as if it hung
    for name in ("late", "later"):
        await server.stub.CreateSchedule(create(name=name))
    await server.table.connection.execute(
        "UPDATE pulse.schedules SET next_run_at = clock_timestamp() - interval '90 s' WHERE name = 'late'"
    )

    found = await status(server)

    assert found.active == 2
    assert 90 <= found.late_seconds < 180
