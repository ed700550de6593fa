"""`outage_timeout`: a client that must not wait for a pulsed that is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import grpc
import grpc.aio
import pytest

import pulse
from pulse.jobs import caller
from pulse.wire import connection
from pulse.wire.servers import FROM_PULSED
from tests.rows import each_row
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed

# Were one of these waited for, the tests would not end.
FOREVER = timedelta(hours=1)
SOON = timedelta(milliseconds=200)
SOME_ID = "0196fd00-0000-7000-8000-000000000000"


@pytest.fixture
async def p(fake: FakePulsed) -> AsyncIterator[pulse.Pulse]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with pulse.Pulse(fake.address, timeout=FOREVER, outage_timeout=SOON) as client:
            yield client


async def connected(p: pulse.Pulse) -> pulse.JobHandle:
    """Enqueue once there is a connection. gRPC may need longer for one than an outage may last here."""
    while True:
        try:
            return await p.enqueue("topic")
        except pulse.Unavailable:
            await asyncio.sleep(0.01)


async def test_call_without_a_connection_fails_after_the_outage_timeout(
    fake: FakePulsed, p: pulse.Pulse
) -> None:
    fake.stop()
    with pytest.raises(pulse.Unavailable, match="No pulsed answers at"):
        await p.enqueue("topic")


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "get_job"])
async def test_calls_right_after_a_failure_are_not_sent(
    fake: FakePulsed, p: pulse.Pulse, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller, "REST_SECONDS", 3600.0)
    fake.stop()
    with pytest.raises(pulse.Unavailable):
        await p.enqueue("topic")
    fake.start()  # and it has answered nothing yet
    arguments = {"enqueue": ("topic",), "enqueue_many": ("topic", [{}])}.get(verb, (SOME_ID,))
    with pytest.raises(pulse.Unavailable, match="so this call was not sent"):
        await getattr(p, verb)(*arguments)
    assert not fake.stored


async def test_calls_succeed_again_once_pulsed_is_back(
    fake: FakePulsed, p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller, "REST_SECONDS", 0.0)
    await connected(p)
    fake.stop()
    with pytest.raises(pulse.Unavailable):
        await p.enqueue("topic")
    fake.start()
    assert (await connected(p)).id in fake.stored
    assert (await p.enqueue("topic")).id in fake.stored


async def test_one_call_at_a_time_tries_whether_pulsed_is_back(
    fake: FakePulsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller, "REST_SECONDS", 0.0)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        pulse.Pulse(fake.address, timeout=FOREVER, outage_timeout=FOREVER) as p,
    ):
        await connected(p)
        fake.submit_may_answer.clear()
        with pytest.raises(pulse.DeadlineExceeded):
            await p.enqueue("topic", timeout=SOON)
        first = asyncio.create_task(p.enqueue("topic"))
        await asyncio.sleep(0)
        with pytest.raises(pulse.Unavailable, match="so this call was not sent"):
            await p.enqueue("topic")
        fake.submit_may_answer.set()
        assert (await first).id in fake.stored


async def test_refusal_of_pulsed_is_no_outage(
    fake: FakePulsed, p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    await connected(p)
    monkeypatch.setattr(caller, "REST_SECONDS", 3600.0)
    with pytest.raises(pulse.PulseError) as raised:
        await p.get_job(SOME_ID)
    assert not isinstance(raised.value, pulse.Unavailable)
    assert (await p.enqueue("topic")).id in fake.stored


async def test_call_that_has_a_connection_keeps_its_timeout(fake: FakePulsed, p: pulse.Pulse) -> None:
    await connected(p)
    fake.submit_may_answer.clear()
    slow = asyncio.create_task(p.enqueue("topic"))
    await asyncio.wait({slow}, timeout=3 * SOON.total_seconds())
    assert not slow.done()
    fake.submit_may_answer.set()
    assert (await slow).id in fake.stored


def test_blocking_client_has_the_setting(fake: FakePulsed) -> None:
    fake.stop()
    with (
        pulse.SyncPulse(fake.address, timeout=FOREVER, outage_timeout=SOON) as p,
        pytest.raises(pulse.Unavailable),
    ):
        p.enqueue("topic")


@each_row("value", [timedelta(0), 5])
def test_setting_has_to_be_a_positive_timedelta(value: timedelta) -> None:
    with pytest.raises(pulse.InvalidArgument, match="outage_timeout has to be"):
        pulse.Pulse(outage_timeout=value)


async def test_call_that_ran_out_of_time_has_the_refusal_before(
    fake: FakePulsed, p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last try may be cut short by the time limit of the call."""

    async def twice(*_: object) -> AsyncIterator[None]:
        for _try in range(2):
            yield

    async def try_once(_seconds: float) -> None:
        code, details, metadata = errors.pop(0)
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details)

    errors = [
        (grpc.StatusCode.UNAVAILABLE, "The table is locked.", grpc.aio.Metadata((FROM_PULSED, "1"))),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", grpc.aio.Metadata()),
    ]
    await connected(p)
    monkeypatch.setattr(connection, "JitteredBackoff", twice)
    with pytest.raises(pulse.DeadlineExceeded, match=r"may or may not .* try before: The table is locked\."):
        await p._caller.session().connection.keep_trying(try_once, 60)
