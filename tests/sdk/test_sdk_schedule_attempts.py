"""Attempts of a schedule's jobs: those of the handler, also before a worker has declared anything."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pulse
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.transport.pulse_server_under_test import ServerUnderTest

HOUR = timedelta(hours=1)
OWN, OF_HANDLER = "own", ("daily", "hourly", "later")


def application(server: ServerUnderTest, **options: Any) -> pulse.Pulse:
    """A program that has the handler, and declares schedules without being a worker."""
    p = pulse.Pulse(server.address, drain_timeout=timedelta(seconds=5))
    p.every("work", HOUR, name="hourly")
    p.cron("work", "@daily", name="daily")
    p.every("work", HOUR, name=OWN, max_attempts=3)
    p.register("work", lambda: None, **options)
    return p


async def attempts(p: pulse.Pulse, server: ServerUnderTest) -> dict[str | None, int]:
    """Fire all schedules. Returns the attempts of their jobs by the name of the schedule."""
    await server.app.topics.settings.loop.wait_for_ticks(2)
    found = {}
    for schedule in await p.schedules.list():
        job = await p.get_job((await p.schedules.fire(schedule)).id)
        assert job.max_attempts == schedule.max_attempts, "a schedule shows what its next job gets"
        found[schedule.name] = job.max_attempts
    return found


def expected(own: int, of_handler: int) -> dict[str, int]:
    return {OWN: own} | dict.fromkeys(OF_HANDLER, of_handler)


async def test_schedule_has_the_attempts_of_the_handler_until_an_operator_sets_others(
    server: ServerUnderTest,
) -> None:
    async with application(server, max_attempts=1) as p:
        await p.declare()
        await p.schedule("work", None, pulse.After(HOUR), name="later")
        assert await attempts(p, server) == expected(3, 1)
        await p.set_topic("work", max_attempts=7)
        assert await attempts(p, server) == expected(3, 7)
        await p.set_topic("work", max_attempts="default")
        assert await attempts(p, server) == expected(3, 1)


async def test_timed_fire_has_the_attempts_of_the_handler(server: ServerUnderTest) -> None:
    async with application(server, max_attempts=1) as p:
        await p.schedule("work", None, pulse.After(timedelta(0)))

        async def fired() -> list[pulse.JobInfo]:
            return list(await p.list_jobs(topic="work"))

        (job,) = await eventually(fired, "the schedule fires")
    assert job.max_attempts == 1


async def test_declaring_again_changes_nothing(server: ServerUnderTest) -> None:
    updated = "SELECT array_agg(updated_at ORDER BY name) FROM pulse.schedules"
    async with application(server, max_attempts=1) as p:
        await p.declare()
        before = await server.table.connection.fetchval(updated)
        await p.declare()
        assert await server.table.connection.fetchval(updated) == before


async def test_worker_and_declarations_follow_the_handler(server: ServerUnderTest, running: Running) -> None:
    """A number that the handler no longer has does not stay in its schedules."""
    async with application(server, max_attempts=1) as p:
        await p.declare()
    for options, number in (({"max_attempts": 4}, 4), ({}, 25), ({"max_attempts": 2}, 2)):
        async with application(server, **options) as p, running(p):

            async def follows(p: pulse.Pulse = p, number: int = number) -> bool:
                shown = {schedule.name: schedule.max_attempts for schedule in await p.schedules.list()}
                return shown == {"hourly": number, "daily": number, OWN: 3}

            await eventually(follows, "the schedules have the new number")


async def test_stored_number_gives_way_to_what_a_newer_worker_declares(
    server: ServerUnderTest, running: Running
) -> None:
    async with application(server, max_attempts=1) as p:
        await p.declare()
    async with pulse.Pulse(server.address, drain_timeout=timedelta(seconds=5)) as worker:
        worker.register("work", lambda: None, max_attempts=4)
        async with running(worker):

            async def is_declared() -> bool:
                return (await worker.schedules.get("hourly")).max_attempts == 4

            await eventually(is_declared, "the worker has declared its policy")


async def test_named_schedule_is_the_same_for_a_program_without_the_handler(server: ServerUnderTest) -> None:
    async with application(server, max_attempts=1) as p, pulse.Pulse(server.address) as other:
        made = await p.schedule("work", None, pulse.Every(HOUR), name="shared")
        assert await other.schedule("work", None, pulse.Every(HOUR), name="shared") == made
        assert made.max_attempts == 1
