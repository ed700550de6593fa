"""One relay on a real outbox, before a pulsed that answers as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import pulse
from pulse.jobs.submissions import Submission
from pulse_cli import tuning
from pulse_cli.outbox import relay as relays
from pulse_cli.outbox.database import outbox_sql
from pulse_cli.outbox.relay import Relay
from tests.eventually import eventually

LONG = timedelta(seconds=60)
Outcome = pulse.JobHandle[Any] | pulse.PulseError
Answer = Callable[[Sequence[Submission]], Awaitable[list[Outcome]]]


class World:
    """An outbox, the payloads of each call of pulsed, and how it answers."""

    def __init__(self, dsn: str, connection: asyncpg.Connection[Any]) -> None:
        self.dsn = dsn
        self.connection = connection
        self.calls: list[list[bytes]] = []
        self.answer: Answer = stored

    async def enqueue(self, payload: bytes, **options: str) -> None:
        given = "".join(f", {name} => '{value}'" for name, value in options.items())
        await self.connection.execute(f"SELECT pulse_outbox.enqueue('out', $1{given})", payload)

    async def submit_all(
        self, _client: Any, jobs: Sequence[Submission], _timeout: timedelta
    ) -> list[Outcome]:
        self.calls.append([job.request.payload for job in jobs])
        return await self.answer(jobs)

    async def emptied(self) -> None:
        async def is_empty() -> bool:
            return not await self.connection.fetchval("SELECT count(*) FROM pulse_outbox.jobs")

        await eventually(is_empty, "the relay has carried all jobs")


async def stored(jobs: Sequence[Submission]) -> list[Outcome]:
    return [job.inserted(None) for job in jobs]


@pytest.fixture
async def world(empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    connection = await asyncpg.connect(empty_database_dsn)
    await connection.execute(outbox_sql())
    world = World(empty_database_dsn, connection)
    monkeypatch.setattr(relays, "submit_all", world.submit_all)
    yield world
    await connection.close()


@pytest.fixture
async def running(world: World) -> AsyncIterator[Callable[[], None]]:
    """Starts the relay."""
    tasks: list[asyncio.Task[None]] = []
    client = pulse.Pulse("127.0.0.1:1", timeout=timedelta(milliseconds=50))

    def start() -> None:
        tasks.append(asyncio.create_task(Relay(world.dsn, client).run()))

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()


async def test_job_that_waits_for_a_key_keeps_no_other_waiting(
    world: World, running: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "OUTBOX_BATCH_JOBS", 1)
    is_held = True

    async def answer(jobs: Sequence[Submission]) -> list[Outcome]:
        return [
            pulse.Unavailable("The key is in use.")
            if is_held and job.request.idempotency_key
            else job.inserted(None)
            for job in jobs
        ]

    world.answer = answer
    await world.enqueue(b"held", key="k")
    await world.enqueue(b"free")
    running()
    await eventually(lambda: [b"free"] in world.calls, "the other job passes")
    is_held = False
    await world.emptied()
    assert world.calls[-1] == [b"held"]


async def test_batch_that_is_not_answered_ends_in_time(
    world: World,
    running: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tuning, "OUTBOX_BATCH_TIMEOUT", timedelta(milliseconds=200))
    hang = asyncio.Event()

    async def answer(jobs: Sequence[Submission]) -> list[Outcome]:
        if len(world.calls) == 1:
            monkeypatch.setattr(tuning, "OUTBOX_BATCH_TIMEOUT", LONG)  # of the next batch
            await hang.wait()
        return await stored(jobs)

    world.answer = answer
    await world.enqueue(b"x")
    running()
    await world.emptied()
    assert world.calls == [[b"x"], [b"x"]]
    assert "The batch was not finished in time." in caplog.text


async def test_frozen_relay_loses_its_locks(
    world: World, running: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends by itself. Here the relay waits for longer than its own timeout allows."""
    monkeypatch.setattr(tuning, "OUTBOX_BATCH_TIMEOUT", timedelta(milliseconds=400))
    monkeypatch.setattr(asyncio, "timeout", lambda _seconds: asyncio.timeout_at(None))
    thawed = asyncio.Event()

    async def answer(jobs: Sequence[Submission]) -> list[Outcome]:
        if len(world.calls) == 1:
            monkeypatch.setattr(tuning, "OUTBOX_BATCH_TIMEOUT", LONG)  # of the next batch
            await thawed.wait()
        return await stored(jobs)

    async def is_unlocked() -> bool:
        query = "SELECT number FROM pulse_outbox.jobs FOR UPDATE SKIP LOCKED"
        return bool(await world.connection.fetch(query))

    world.answer = answer
    await world.enqueue(b"x")
    running()
    await eventually(lambda: bool(world.calls), "the relay submits")
    await eventually(is_unlocked, "the database ends the transaction")
    thawed.set()
    await world.emptied()
    assert world.calls == [[b"x"], [b"x"]]


async def test_batch_is_bounded_in_bytes(
    world: World, running: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "OUTBOX_BATCH_BYTES", 1000)
    for letter in b"abcd":
        await world.enqueue(bytes([letter]) * 600)
    running()
    await world.emptied()
    assert [[payload[:1] for payload in call] for call in world.calls] == [[b"a", b"b"], [b"c", b"d"]]


async def test_unique_jobs_are_submitted_last(world: World, running: Callable[[], None]) -> None:
    await world.enqueue(b"unique", unique_key="k")
    await world.enqueue(b"plain")
    running()
    await world.emptied()
    assert world.calls == [[b"plain", b"unique"]]


async def test_refused_topic_does_not_keep_the_retention_of_others_unchecked(
    world: World, running: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[set[str]] = []

    async def check(_self: object, topics: set[str]) -> None:
        checked.append(topics)

    async def answer(jobs: Sequence[Submission]) -> list[Outcome]:
        return [
            pulse.InvalidArgument("No.") if " " in job.request.topic else job.inserted(None) for job in jobs
        ]

    monkeypatch.setattr(relays.RetentionCheck, "check", check)
    world.answer = answer
    await world.connection.execute("SELECT pulse_outbox.enqueue('not allowed', '')")
    await world.enqueue(b"x")
    running()
    await eventually(lambda: checked, "the batch is carried")
    assert checked[0] == {"out"}


async def test_each_minute_is_logged(
    world: World,
    running: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tuning, "OUTBOX_REPORT_SECONDS", 0.1)
    caplog.set_level("INFO", "pulse.outbox")
    await world.enqueue(b"x")
    await world.enqueue(b"y", metadata='{"a": 1}')
    running()
    await eventually(lambda: "Carried 1 jobs, 1 were refused." in caplog.text, "the relay logs")
    assert "0 wait; 1 refused jobs in all." in caplog.text
    assert "metadata has to map strings to strings" in caplog.text
