"""A client learns that no worker takes a topic: when it waits, enqueues, or declares a schedule."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

import pulse
from tests.sdk.conftest import Running
from tests.transport.pulse_server_under_test import ServerUnderTest

SHORT, LONG = timedelta(milliseconds=50), timedelta(seconds=40)
NOTE = "No worker that takes {!r} is connected"


@pytest.fixture(autouse=True)
def _settled(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has been there for a while, and its machine is busy."""
    server.app.topics.unserved._quiet_until = 0.0
    monkeypatch.setattr("pulse_server.topics.rpcs.LOOK_TIMEOUT", timedelta(seconds=20))
    monkeypatch.setattr("pulse.tuning.AWAIT_REASON_SECONDS", 20.0)


def notes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "pulse.topics"]


async def test_wait_without_a_worker_states_it(client: pulse.Pulse, running: Running) -> None:
    @client.job("orders.confirm")
    async def confirm() -> None: ...

    async with running(client):
        await (await confirm.enqueue()).wait(LONG)  # the worker is connected
        handle = await client.enqueue("orders.confrim")
        with pytest.raises(pulse.ResultTimeout) as raised:
            await handle.result(SHORT)
        assert raised.value.message == (
            f"Job {handle.id} has not finished after {SHORT}. {NOTE.format('orders.confrim')}: its jobs wait "
            "until one is. Did you mean 'orders.confirm'?"
        )
        job = await client.get_job(handle.id)
        assert job.no_worker is not None
        assert job.no_worker.startswith(NOTE.format("orders.confrim"))
        with pytest.raises(pulse.ResultTimeout, match=r"1 of 1 jobs have not finished.*No worker that takes"):
            await pulse.gather(handle, timeout=SHORT)


async def test_wait_for_a_slow_handler_says_that_the_job_goes_on(
    client: pulse.Pulse, running: Running
) -> None:
    @client.job("slow", timeout=timedelta(minutes=1))
    async def slow(ctx: pulse.Context) -> None:
        await ctx.sleep("until the end", timedelta(minutes=5))

    @client.job("quick")
    async def quick() -> None: ...

    async with running(client):
        await (await quick.enqueue()).wait(LONG)  # the worker is connected
        handle = await client.enqueue("slow")
        with pytest.raises(pulse.ResultTimeout, match=r"It goes on\.$"):
            await handle.wait(SHORT)
    assert (await client.get_job((await client.enqueue("slow")).id)).no_worker is not None


async def test_enqueue_logs_a_topic_that_never_had_a_worker_once(
    client: pulse.Pulse, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        await client.enqueue("typo")
    await client.enqueue_many("typo", [None] * 3)
    await client.enqueue_many("other", [None] * 2000)
    assert [note.partition(":")[0] for note in notes(caplog)] == [NOTE.format("typo"), NOTE.format("other")]
    assert {record.levelno for record in caplog.records if record.name == "pulse.topics"} == {logging.WARNING}


async def test_workflow_of_a_topic_without_a_worker_is_logged(
    client: pulse.Pulse, caplog: pytest.LogCaptureFixture
) -> None:
    @client.job("fetch")
    async def fetch() -> None: ...

    await client.start(fetch.s().then(fetch.s()))
    assert [note.partition(":")[0] for note in notes(caplog)] == [NOTE.format("fetch")]


async def test_schedule_of_a_topic_without_a_worker_is_logged(
    client: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @client.job("own")
    async def own() -> None: ...

    client.cron("own", "@daily")
    client.every("typo", timedelta(hours=1))
    async with running(client):
        await client.declare()
    await client.schedule("unknown", None, pulse.Every(timedelta(hours=1)))
    found = {note.partition(":")[0] for note in notes(caplog)}
    assert found == {NOTE.format("typo"), NOTE.format("unknown")}
