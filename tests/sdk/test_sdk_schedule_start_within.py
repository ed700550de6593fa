"""start_within of schedules, against a real server: given, declared, and the default of the handler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import pulse
from tests.eventually import eventually
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest

HOUR = timedelta(hours=1)


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


async def test_fired_job_that_is_not_started_in_time_is_canceled(p: pulse.Pulse) -> None:
    schedule = await p.schedule(
        "remind", None, pulse.At(datetime.now(UTC)), start_within=timedelta(milliseconds=1)
    )

    async def ended() -> pulse.JobInfo | None:
        jobs = list(await p.schedules.jobs(schedule))
        return jobs[0] if jobs and jobs[0].status is not pulse.JobStatus.PENDING else None

    job = await eventually(ended, "the job ends")
    assert (job.status, job.attempts) == (pulse.JobStatus.CANCELED, 0)
    assert "as start_within asks" in (job.last_error or "")


async def test_limit_comes_back_as_it_was_given(p: pulse.Pulse) -> None:
    made = await p.schedule("t", None, pulse.Every(HOUR), name="n", start_within=HOUR)
    assert made.start_within == HOUR
    assert await p.schedules.get("n") == made
    assert [schedule.start_within for schedule in await p.schedules.list()] == [HOUR]

    changed = await p.schedules.update("n", start_within=2 * HOUR)
    assert changed.start_within == 2 * HOUR
    assert (await p.schedules.update("n", priority=1)).start_within == 2 * HOUR
    assert (await p.schedules.update("n", start_within=timedelta(0))).start_within is None


def application(address: str, **options: Any) -> pulse.Pulse:
    p = pulse.Pulse(address)
    p.register("report", lambda: None, **options)
    router = pulse.Router()
    router.every("report", HOUR)
    router.cron("report", "@daily", name="own", start_within=2 * HOUR)
    p.include(router)
    return p


async def test_declared_limit_follows_the_code(server: ServerUnderTest) -> None:
    """That of the handler, unless the schedule has its own."""
    ids = set()
    for options, expected in (
        ({"start_within": HOUR}, HOUR),
        ({"start_within": HOUR / 2}, HOUR / 2),
        ({}, None),
    ):
        async with application(server.address, **options) as p:
            declared = await p.declare()
        assert [schedule.start_within for schedule in declared] == [expected, 2 * HOUR]
        ids.add(tuple(schedule.id for schedule in declared))
    assert len(ids) == 1, "the same schedules, updated"


async def test_declarations_that_differ_in_their_limit_are_two() -> None:
    p = pulse.Pulse()
    assert p.every("t", HOUR, start_within=HOUR) is p.every("t", HOUR, start_within=HOUR)
    with pytest.raises(pulse.InvalidArgument, match="declared as 't' already"):
        p.every("t", HOUR, start_within=2 * HOUR)


@each_row(
    "start_within, sentence",
    [
        (5, r"start_within has to be a timedelta: write timedelta\(seconds=5\)"),
        (timedelta(0), "has to be positive"),
        (timedelta.max, "at most 3650 days"),
    ],
)
async def test_wrong_limit_is_refused_where_it_is_written(start_within: Any, sentence: str) -> None:
    p = pulse.Pulse()
    places: list[Any] = [p, pulse.Router()]
    for place in places:
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            place.every("t", HOUR, start_within=start_within)
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            place.cron("t", "@daily", start_within=start_within)
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        await p.schedule("t", None, pulse.Every(HOUR), start_within=start_within)
