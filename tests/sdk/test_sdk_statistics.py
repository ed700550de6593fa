"""Minutes, servers and the scheduler as the SDK returns them, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

import pulse
from tests.eventually import eventually
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest

NOTHING = pulse.Latency(0, 0.0, 0.0, 0.0)


@pytest.fixture
async def client(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


async def test_statistics_have_minutes_and_percentiles(server: ServerUnderTest, client: pulse.Pulse) -> None:
    server.app.metrics.completed.add("mail", by=100)
    server.app.metrics.run_time.observe_in(("mail", "completed"), [0.01] * 94 + [5.0] * 6)
    await server.app.views.statistics.record()

    mail = await client.statistics(topic="mail", minutes=2)

    assert sum(minute.completed for minute in mail.minutes) == 100
    assert sum(minute.run.count for minute in mail.minutes) == 100
    assert mail.wait == NOTHING
    assert (mail.run.p50, mail.run.p95) == pytest.approx((0.01, 5.0), rel=0.2)
    *_, last = mail.minutes
    assert last.at is not None
    assert abs(datetime.now(UTC) - last.at) < timedelta(minutes=2)


async def test_statistics_are_of_all_topics_and_the_last_hour_unless_said(
    server: ServerUnderTest, client: pulse.Pulse
) -> None:
    for topic in ("mail", "sms"):
        server.app.metrics.submitted.add(topic)
    await server.app.views.statistics.record()

    everything = await client.statistics()

    assert len(everything.minutes) == 60
    assert sum(minute.submitted for minute in everything.minutes) == 2


async def test_topic_shows_how_long_its_jobs_waited_and_ran(
    server: ServerUnderTest, client: pulse.Pulse
) -> None:
    server.app.metrics.queue_wait.observe("mail", value=0.5)
    await server.app.views.statistics.record()
    found: list[pulse.TopicInfo] = []

    async def is_shown() -> bool:  # of the minute that is over now, and another one may begin meanwhile
        await server.table.connection.execute(
            "UPDATE pulse.topic_minutes SET minute = date_trunc('minute', now()) - interval '1 minute' "
            "WHERE minute = (SELECT min(minute) FROM pulse.topic_minutes)"
        )
        found[:] = await client.topics()
        return bool(found and found[0].wait.count)

    await eventually(is_shown, "the wait is counted")

    (mail,) = found
    assert (mail.wait.count, mail.run) == (1, NOTHING)
    assert mail.wait.p99 == pytest.approx(0.5, rel=0.2)


@each_row("minutes", [-1, 1441])
async def test_span_that_is_too_long_or_negative_is_refused(client: pulse.Pulse, minutes: int) -> None:
    with pytest.raises(pulse.InvalidArgument, match=rf"minutes is {minutes}: it must be from 0 to 1440"):
        await client.statistics(minutes=minutes)


async def test_servers_and_the_scheduler_are_listed(server: ServerUnderTest, client: pulse.Pulse) -> None:
    await server.app.views.servers.record()
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    await client.schedule("report", None, pulse.At(at))
    async with server.worker():
        (listed,) = await client.servers()

    assert listed.workers == 1
    assert (listed.id, listed.name) == (server.app.views.servers._id, server.app.views.servers._name)
    assert listed.started_at is not None
    assert await client.schedules.status() == pulse.SchedulerStatus(1, 0, at, 0.0)


async def test_blocking_verbs_answer(server: ServerUnderTest) -> None:
    def use() -> None:
        with pulse.SyncPulse(server.address) as p:
            assert len(p.statistics(topic="mail", minutes=3).minutes) == 3
            assert len(p.servers()) == 1
            assert p.schedules.status() == pulse.SchedulerStatus(0, 0, None, 0.0)

    await asyncio.to_thread(use)
