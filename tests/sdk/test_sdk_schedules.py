"""The verbs of schedules against a real server, awaited and blocking."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import pulse
from tests.eventually import eventually
from tests.rows import each_row
from tests.sdk.fake_pulsed import FakePulsed
from tests.transport.pulse_server_under_test import ServerUnderTest

MINUTE = timedelta(minutes=1)
YEAR = timedelta(days=365)
UNKNOWN = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


async def test_schedule_comes_back_as_it_was_given(p: pulse.Pulse) -> None:
    made = await p.schedule(
        "report",
        {"region": "eu"},
        pulse.Cron("0 9 * * 1-5", tz="Europe/Paris"),
        name="morning report",
        priority=7,
        max_attempts=9,
        metadata={"team": "sales"},
        catch_up="skip",
    )
    assert (made.name, made.topic, made.kind, made.args) == (
        "morning report",
        "report",
        "cron",
        {"region": "eu"},
    )
    assert made.spec == pulse.Cron("0 9 * * 1-5", tz="Europe/Paris")
    assert (made.priority, made.max_attempts, made.metadata) == (7, 9, {"team": "sales"})
    assert (made.catch_up, made.paused, made.last_run_at) == ("skip", False, None)
    assert made.created_at is not None
    assert made.next_run_at is not None
    assert made.next_run_at > made.created_at
    assert await p.schedules.get(made.id) == made
    assert await p.schedules.get("morning report") == made
    assert await p.schedules.get(made) == made


async def test_every_kind_of_spec_comes_back(p: pulse.Pulse) -> None:
    moment = datetime.now(UTC) + YEAR
    once = await p.schedule("t", None, pulse.At(moment))
    assert (once.kind, once.spec, once.next_run_at) == ("once", pulse.At(moment), moment)
    soon = await p.schedule("t", None, pulse.After(YEAR))
    assert soon.next_run_at is not None
    assert abs(soon.next_run_at - moment) < timedelta(minutes=5)
    interval = await p.schedule("t", None, pulse.Every(90 * MINUTE))
    assert (interval.kind, interval.spec, interval.args) == ("interval", pulse.Every(90 * MINUTE), None)
    assert (await p.schedule("t", None, pulse.Cron("@daily"))).spec == pulse.Cron("@daily")


async def test_moment_fires_once_and_its_job_remembers_it(p: pulse.Pulse) -> None:
    schedule = await p.schedule("remind", {"who": "ada"}, pulse.At(datetime.now(UTC)))
    fire = await first_fire(p, schedule)
    job = await p.get_job(fire.job_id)
    assert (job.topic, job.args, job.schedule_id) == ("remind", {"who": "ada"}, schedule.id)
    assert (fire.fired_at, fire.status) == (job.submitted_at, pulse.JobStatus.PENDING)
    with pytest.raises(pulse.NotFound):
        await p.schedules.get(schedule)
    assert [job.id for job in await p.schedules.jobs(schedule)] == [fire.job_id]


async def test_name_makes_a_schedule_repeatable(p: pulse.Pulse) -> None:
    first = await p.schedule("t", {"a": 1}, pulse.Every(MINUTE), name="n")
    assert await p.schedule("t", {"a": 1}, pulse.Every(MINUTE), name="n") == first
    with pytest.raises(pulse.AlreadyExists, match="n"):
        await p.schedule("t", {"a": 2}, pulse.Every(MINUTE), name="n")
    retuned = await p.schedule("t", {"a": 2}, pulse.Every(2 * MINUTE), name="n", replace=True)
    assert (retuned.id, retuned.args, retuned.spec) == (first.id, {"a": 2}, pulse.Every(2 * MINUTE))
    assert len(await p.schedules.list()) == 1


async def test_schedules_are_listed_page_by_page(p: pulse.Pulse) -> None:
    made = [(await p.schedule("t", number, pulse.Every(MINUTE))).id for number in range(5)]
    page = await p.schedules.list(limit=2)
    assert ([schedule.id for schedule in page], len(page)) == (made[:2], 2)
    page = await p.schedules.list(limit=10, cursor=page.next_cursor)
    assert ([schedule.id for schedule in page], page.next_cursor) == (made[2:], None)
    assert [schedule.id async for schedule in p.schedules.iter(page_size=2)] == made
    assert {schedule.payload async for schedule in p.schedules.iter()} == {b""}


async def test_update_changes_what_is_given_and_leaves_the_rest(p: pulse.Pulse) -> None:
    made = await p.schedule("t", {"a": 1}, pulse.Every(MINUTE), name="n", metadata={"b": "c"}, priority=3)
    updated = await p.schedules.update(
        "n", spec=pulse.Every(5 * MINUTE), max_attempts=2, catch_up="all", topic="u"
    )
    assert (updated.id, updated.spec, updated.topic) == (made.id, pulse.Every(5 * MINUTE), "u")
    assert (updated.max_attempts, updated.catch_up) == (2, "all")
    assert (updated.args, updated.metadata, updated.priority) == ({"a": 1}, {"b": "c"}, 3)
    emptied = await p.schedules.update(made, args=None, metadata={}, priority=0)
    assert (emptied.args, emptied.metadata, emptied.priority) == (None, {}, 0)
    assert emptied.next_run_at == updated.next_run_at
    with pytest.raises(pulse.InvalidArgument, match="kind"):
        await p.schedules.update(made, spec=pulse.After(MINUTE))


async def test_schedule_is_paused_until_it_is_resumed(p: pulse.Pulse) -> None:
    schedule = await p.schedule("t", None, pulse.Every(MINUTE), name="n")
    await p.schedules.pause("n")
    assert (await p.schedules.get(schedule)).paused
    await p.schedules.resume(schedule.id)
    assert not (await p.schedules.get(schedule)).paused


async def test_schedule_fired_by_hand_makes_a_job_now(p: pulse.Pulse) -> None:
    schedule = await p.schedule("t", {"a": 1}, pulse.Every(MINUTE), name="n")
    handles = [await p.schedules.fire("n"), await p.schedules.fire(schedule)]
    assert [handle.topic for handle in handles] == ["t", "t"]
    assert {job.id for job in await p.schedules.jobs("n")} == {handle.id for handle in handles}
    page = await p.schedules.fires(schedule.id, limit=1)
    rest = await p.schedules.fires(schedule.id, cursor=page.next_cursor)
    assert (len(page), len(rest), rest.next_cursor) == (1, 1, None)
    assert {fire.job_id for fire in (*page, *rest)} == {handle.id for handle in handles}
    assert (await p.get_job(handles[0].id)).args == {"a": 1}
    assert (await p.schedules.get(schedule)).next_run_at == schedule.next_run_at


async def test_deleted_schedule_is_gone_and_its_jobs_stay(p: pulse.Pulse) -> None:
    schedule = await p.schedule("t", None, pulse.Every(MINUTE), name="n")
    handle = await p.schedules.fire(schedule)
    await p.schedules.delete("n")
    for gone in ("n", schedule, schedule.id):
        with pytest.raises(pulse.NotFound):
            await p.schedules.get(gone)
    assert [job.id for job in await p.schedules.jobs(schedule)] == [handle.id]
    with pytest.raises(pulse.NotFound):
        await p.schedules.delete(schedule)


async def test_preview_lists_when_a_schedule_would_fire(p: pulse.Pulse) -> None:
    days = await p.schedules.preview(pulse.Cron("30 9 * * *", tz="Asia/Tokyo"), count=3)
    assert [(day.hour, day.minute, day.tzinfo) for day in days] == [(0, 30, UTC)] * 3
    assert [later - earlier for earlier, later in itertools.pairwise(days)] == [timedelta(days=1)] * 2
    assert len(await p.schedules.preview(pulse.Every(MINUTE))) == 5
    moment = datetime.now(UTC) + YEAR
    assert await p.schedules.preview(pulse.At(moment)) == [moment]
    assert len(await p.schedules.list()) == 0


async def test_bad_input_is_refused_with_a_sentence(p: pulse.Pulse) -> None:
    past = pulse.At(datetime.now(UTC) - MINUTE)
    with pytest.raises(pulse.InvalidArgument, match="past"):
        await p.schedule("t", None, past, strict=True)
    with pytest.raises(pulse.InvalidArgument, match="every is shorter than 100 milliseconds"):
        await p.schedule("t", None, pulse.Every(timedelta(milliseconds=10)))
    with pytest.raises(pulse.InvalidArgument, match="Mars/Base"):
        await p.schedule("t", None, pulse.Cron("@daily", tz="Mars/Base"))
    with pytest.raises(pulse.InvalidArgument, match="cron is empty"):
        await p.schedules.preview(pulse.Cron(""))
    with pytest.raises(pulse.InvalidArgument, match="catch_up"):
        await p.schedule("t", None, pulse.Every(MINUTE), catch_up="most")  # type: ignore[arg-type]
    with pytest.raises(pulse.InvalidArgument, match="name is empty"):
        await p.schedule("t", None, pulse.Every(MINUTE), name="")
    with pytest.raises(pulse.InvalidArgument, match="replace needs a name"):
        await p.schedule("t", None, pulse.Every(MINUTE), replace=True)
    with pytest.raises(pulse.InvalidArgument, match=r"metadata=.* cannot be sent"):
        await p.schedule("t", None, pulse.Every(MINUTE), metadata={"a": 1})  # type: ignore[dict-item]
    with pytest.raises(pulse.InvalidArgument, match="priority has to be a whole number"):
        await p.schedule("t", None, pulse.Every(MINUTE), priority=2**40)
    with pytest.raises(pulse.InvalidArgument, match="id or the name"):
        await p.schedules.get("")
    for unknown in (UNKNOWN, "unknown"):
        with pytest.raises(pulse.NotFound, match=unknown):
            await p.schedules.pause(unknown)
        with pytest.raises(pulse.NotFound, match=unknown):
            await p.schedules.fire(unknown)


async def test_blocking_verbs_do_the_same(server: ServerUnderTest) -> None:
    def use() -> None:
        with pulse.SyncPulse(server.address) as p:
            made = p.schedule("t", {"a": 1}, pulse.Every(MINUTE), name="n")
            assert p.schedules.get("n") == made
            assert [schedule.id for schedule in p.schedules.list(limit=1)] == [made.id]
            assert [schedule.id for schedule in p.schedules.iter(page_size=1)] == [made.id]
            p.schedules.pause(made)
            assert p.schedules.get(made).paused
            p.schedules.resume(made)
            assert p.schedules.update(made, args=None, spec=pulse.Every(2 * MINUTE)).args is None
            handle = p.schedules.fire("n")
            assert [job.id for job in p.schedules.jobs(made)] == [handle.id]
            assert [fire.job_id for fire in p.schedules.fires(made)] == [handle.id]
            assert len(p.schedules.preview(pulse.Cron("@hourly"), 7)) == 7
            p.schedules.delete(made)
            with pytest.raises(pulse.NotFound):
                p.schedules.get("n")

    await asyncio.to_thread(use)


async def test_schedule_without_a_name_is_not_sent_twice(fake: FakePulsed) -> None:
    async with pulse.Pulse(fake.address) as p:
        for spec, name in ((pulse.Every(MINUTE), None), (pulse.After(MINUTE), "n")):
            fake.lose_answers, fake.definitions = 1, []
            with pytest.raises(pulse.Unavailable):
                await p.schedule("t", None, spec, name=name)
            assert len(fake.definitions) == 1


async def test_schedule_with_a_name_is_sent_until_it_is_answered(fake: FakePulsed) -> None:
    fake.lose_answers = 2
    async with pulse.Pulse(fake.address) as p:
        await p.schedule("t", None, pulse.Every(MINUTE), name="n")
    assert [definition.name for definition in fake.definitions] == ["n"] * 3


async def test_repeated_fire_asks_for_the_same_job(fake: FakePulsed) -> None:
    fake.lose_answers = 2
    async with pulse.Pulse(fake.address) as p:
        handle = await p.schedules.fire("n")
    assert fake.fired == [handle.id] * 3


async def first_fire(p: pulse.Pulse, schedule: pulse.ScheduleInfo) -> pulse.ScheduleFire:
    """Return the first fire of the schedule once there is one."""
    page: pulse.FirePage = await eventually(lambda: p.schedules.fires(schedule), "it fires")
    return page.fires[0]


@each_row("client", [pulse.Pulse, pulse.SyncPulse, pulse.Router])
def test_policy_for_missed_occurrences_is_checked_where_it_is_declared(
    client: type[pulse.Pulse] | type[pulse.SyncPulse] | type[pulse.Router],
) -> None:
    with pytest.raises(
        pulse.InvalidArgument, match="catch_up='never' is not known: use 'one', 'skip' or 'all'"
    ):
        client().cron("report", "@daily", catch_up="never")  # type: ignore[arg-type]


@each_row("client", [pulse.Pulse, pulse.SyncPulse, pulse.Router])
@each_row("option", [{"max_attempts": 0}, {"max_attempts": 1_001}, {"priority": "high"}])
def test_numbers_of_the_jobs_are_checked_where_they_are_declared(client: Any, option: dict[str, Any]) -> None:
    for declare, when in ((client().cron, "@daily"), (client().every, MINUTE)):
        with pytest.raises(pulse.InvalidArgument, match=f"{next(iter(option))} has to be a whole number"):
            declare("report", when, **option)


async def test_update_keeps_the_time_zone_that_it_does_not_name(p: pulse.Pulse) -> None:
    made = await p.schedule("t", None, pulse.Cron("0 3 * * *", "Europe/Paris"), name="n")
    moved = await p.schedules.update(made, spec=pulse.Cron("0 4 * * *"))
    assert moved.spec == pulse.Cron("0 4 * * *", "Europe/Paris")
    assert (await p.schedules.update("n", tz=ZoneInfo("Asia/Tokyo"))).spec == pulse.Cron(
        "0 4 * * *", "Asia/Tokyo"
    )
    assert (await p.schedules.update("n", spec=pulse.Cron("0 5 * * *", "UTC"))).spec == pulse.Cron(
        "0 5 * * *"
    )
    with pytest.raises(pulse.InvalidArgument, match="name it once"):
        await p.schedules.update("n", spec=pulse.Cron("0 5 * * *", "UTC"), tz="UTC")
    with pytest.raises(pulse.InvalidArgument, match="has to name a time zone"):
        await p.schedules.update("n", tz="")


async def test_what_is_set_stays_until_it_is_reset(p: pulse.Pulse) -> None:
    async def declare(topic: str) -> pulse.ScheduleInfo:
        return await p.schedule(topic, {"a": 1}, pulse.Every(MINUTE), name="n", replace=True)

    await declare("t")
    assert (await p.schedules.reset("n")).overrides == ()
    await p.schedules.update("n", spec=pulse.Every(5 * MINUTE), args=None)
    stored = await declare("u")
    assert (stored.spec, stored.args, stored.topic) == (pulse.Every(5 * MINUTE), None, "u")
    assert [override.entry for override in stored.overrides] == ["every", "payload"]
    assert stored.declares is not None
    assert (stored.declares.spec, stored.declares.args) == (pulse.Every(MINUTE), {"a": 1})
    assert (stored.entry("every"), stored.declares.entry("every")) == (5 * MINUTE, MINUTE)

    back = await p.schedules.reset(stored, "payload")
    assert (back.args, [override.entry for override in back.overrides]) == ({"a": 1}, ["every"])
    assert (await p.schedules.reset(back)).spec == pulse.Every(MINUTE)
    with pytest.raises(pulse.InvalidArgument, match="the entries of a schedule are"):
        await p.schedules.reset("n", "pauzed")
