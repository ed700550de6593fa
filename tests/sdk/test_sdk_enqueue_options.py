"""Options of an enqueue: the handler has the defaults, the call and the item win."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import pulse
from pulse.jobs.submissions import EnqueueOptions
from tests.rows import each_row
from tests.sdk.fake_pulsed import FakePulsed

HOUR = timedelta(hours=1)


def stored(fake: FakePulsed, handle: pulse.JobHandle) -> tuple[int, int, timedelta | None]:
    job = fake.stored[handle.id]
    within = job.start_within.ToTimedelta() if job.HasField("start_within") else None
    return job.priority, job.max_attempts, within


async def test_options_of_the_handler_are_the_defaults_of_its_jobs(fake: FakePulsed, p: pulse.Pulse) -> None:
    """By any way of this client: it knows the handler."""

    @p.job("render", max_attempts=8, priority=5, start_within=HOUR)
    async def render(page: int) -> None: ...

    @p.job("plain")
    async def plain(page: int) -> None: ...

    handles = [
        await render.enqueue(1),
        await p.enqueue("render", {"page": 1}),
        *await render.enqueue_many([{"page": 1}]),
        *await p.enqueue_many("render", [{"page": 1}]),
    ]
    assert {stored(fake, handle) for handle in handles} == {(5, 8, HOUR)}
    assert stored(fake, await plain.enqueue(1)) == (0, 0, None)


async def test_options_of_the_call_win_over_those_of_the_handler(fake: FakePulsed, p: pulse.Pulse) -> None:
    """Also a priority of 0."""

    @p.job("render", max_attempts=8, priority=5, start_within=HOUR)
    async def render() -> None: ...

    options: Any = {"max_attempts": 2, "priority": 0, "start_within": timedelta(minutes=1)}
    for handle in (await render.options(**options).enqueue(), await p.enqueue("render", **options)):
        assert stored(fake, handle) == (0, 2, timedelta(minutes=1))


async def test_items_of_a_bulk_have_options_of_their_own(fake: FakePulsed, p: pulse.Pulse) -> None:
    @p.job("mail", priority=1)
    async def mail(to: str) -> None: ...

    at = datetime(2030, 1, 1, tzinfo=UTC)
    items: list[Any] = [
        {"to": "a"},
        mail.with_options({"to": "b"}, priority=9, key="b", start_within=HOUR),
        {"to": "c"},
        pulse.JobItem({"to": "d"}, run_at=at, max_attempts=2),
    ]
    handles = await mail.options(delay=HOUR).enqueue_many(items)

    jobs = [fake.stored[handle.id] for handle in handles]
    assert [job.payload for job in jobs] == [b'{"to":"%c"}' % letter for letter in b"abcd"]
    assert [job.priority for job in jobs] == [1, 9, 1, 1]
    assert [job.idempotency_key for job in jobs] == ["", "b", "", ""]
    assert [job.max_attempts for job in jobs] == [0, 0, 0, 2]
    assert [job.WhichOneof("start") for job in jobs] == ["delay", "delay", "delay", "run_at"]


def test_blocking_client_takes_the_same_options(fake: FakePulsed) -> None:
    with pulse.SyncPulse(fake.address) as p:

        @p.job("mail", priority=4, max_attempts=3)
        def mail(to: str) -> None: ...

        handles = [mail.enqueue("a"), *mail.enqueue_many([mail.with_options({"to": "b"}, max_attempts=7)])]
        assert [stored(fake, handle)[:2] for handle in handles] == [(4, 3), (4, 7)]


@each_row(
    "options, sentence",
    [
        ({"start_within": 5}, r"start_within has to be a timedelta: write timedelta\(seconds=5\)"),
        ({"delay": 5}, r"delay has to be a timedelta: write timedelta\(seconds=5\)"),
        ({"timeout": 2.5}, r"write timedelta\(seconds=2\.5\)"),
        ({"start_within": timedelta(0)}, "has to be positive"),
        ({"job_id": 5}, "job_id has to be"),
        ({"delay": timedelta.max}, "at most 3650 days"),
    ],
)
async def test_wrong_option_is_refused_before_anything_is_sent(
    p: pulse.Pulse, options: Any, sentence: str
) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        await p.enqueue("t", **options)
    if "timeout" not in options:
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            await p.enqueue_many("t", [1, pulse.JobItem(2, **options)])


def test_item_has_no_other_options() -> None:
    with pytest.raises(pulse.InvalidArgument, match="An item has no option 'prio'"):
        pulse.JobItem(1, prio=3)  # type: ignore[call-arg]
    with pytest.raises(pulse.InvalidArgument, match=r"delay .* write timedelta\(seconds=5\)"):
        pulse.JobItem(1, delay=5)  # type: ignore[arg-type]
    with pytest.raises(pulse.InvalidArgument, match="max_attempts has to be a whole number from 1"):
        pulse.JobItem(1, max_attempts=0)
    assert repr(pulse.JobItem({"a": 1}, priority=3)) == "JobItem({'a': 1}, priority=3)"


@each_row("client", [pulse.Pulse, pulse.SyncPulse, pulse.Router, pulse.SyncRouter])
def test_job_has_no_other_options(client: Any) -> None:
    job = client().register("t", lambda: None)
    with pytest.raises(pulse.InvalidArgument, match=r"An enqueue has no option 'prio'\. Its options are"):
        job.options(priority=1).options(prio=3)
    for name in ("delay", "start_within", "timeout"):
        with pytest.raises(pulse.InvalidArgument, match=rf"{name} .* write timedelta\(seconds=5\)"):
            job.options(**{name: 5})
    for name, value in (("max_attempts", 0), ("max_attempts", "3"), ("priority", 2**31), ("priority", 0.5)):
        with pytest.raises(pulse.InvalidArgument, match=f"{name} has to be a whole number from"):
            job.options(**{name: value})
    every: Any = dict.fromkeys(EnqueueOptions.__annotations__)
    assert job.options(**every)._options == every


async def test_schedules_have_the_defaults_of_a_handler_that_is_registered_later(
    fake: FakePulsed, p: pulse.Pulse
) -> None:
    p.cron("report", "@daily")
    p.every("report", HOUR, name="often", priority=0, max_attempts=1, start_within=HOUR / 2)
    p.register("report", lambda: None, priority=6, max_attempts=9, start_within=HOUR)
    await p.declare()
    await p.schedule("report", None, pulse.After(HOUR), name="once")
    found = {
        made.name: (
            made.priority,
            made.max_attempts,
            made.max_attempts_is_default,
            made.start_within.ToTimedelta(),
        )
        for made in fake.definitions
    }
    assert found == {
        "report": (6, 9, True, HOUR),
        "often": (0, 1, False, HOUR / 2),
        "once": (6, 9, True, HOUR),
    }
