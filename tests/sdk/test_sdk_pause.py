"""The pause switch through the SDK, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

import pulse
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import PATIENCE_SECONDS
from tests.transport.pulse_server_under_test import ServerUnderTest


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


async def test_status_shows_what_is_paused_since_when_and_why(p: pulse.Pulse) -> None:
    assert await p.dispatch_status() == pulse.DispatchStatus(
        paused=False, reason="", paused_at=None, topics={}
    )
    await p.pause(reason="the bank is down", topic="charge")
    await p.pause(reason="maintenance")
    status = await p.dispatch_status()
    assert (status.paused, status.reason) == (True, "maintenance")
    assert status.topics["charge"].reason == "the bank is down"
    for paused_at in (status.paused_at, status.topics["charge"].paused_at):
        assert paused_at is not None
        assert abs((datetime.now(UTC) - paused_at).total_seconds()) < 300
    await p.resume()
    status = await p.dispatch_status()
    assert (status.paused, status.is_paused("charge"), status.is_paused("mail")) == (False, True, False)
    await p.resume(topic="charge")
    assert not (await p.dispatch_status()).topics


async def test_paused_topic_waits_and_the_others_run(
    p: pulse.Pulse, server: ServerUnderTest, running: Running
) -> None:
    ran: asyncio.Queue[str] = asyncio.Queue()

    for topic in ("charge", "mail"):

        async def handle(ctx: pulse.Context) -> None:
            ran.put_nowait(ctx.topic)

        p.register(topic, handle)
    await p.pause(topic="charge")
    async with running(p):
        charge = await p.enqueue("charge")
        await p.enqueue("mail")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await ran.get() == "mail"
            await server.dispatch_settles()
            assert (await p.get_job(charge.id)).status is pulse.JobStatus.PENDING
            await p.resume(topic="charge")
            assert await ran.get() == "charge"


async def test_empty_topic_does_not_pause_everything(p: pulse.Pulse) -> None:
    with pytest.raises(pulse.InvalidArgument, match="topic is empty"):
        await p.pause(topic="")
    with pytest.raises(pulse.InvalidArgument, match="topic is empty"):
        await p.resume(topic="")
    with pytest.raises(pulse.InvalidArgument, match="topic"):
        await p.pause(topic="no such topic!")
    assert not (await p.dispatch_status()).paused


async def test_pause_takes_no_bare_word_which_could_be_a_topic_or_a_reason(p: pulse.Pulse) -> None:
    pause: Any = p.pause
    with pytest.raises(TypeError, match="positional"):
        await pause("mail")
    assert not (await p.dispatch_status()).paused


async def test_blocking_verbs_do_the_same(server: ServerUnderTest) -> None:
    def use() -> None:
        with pulse.SyncPulse(server.address) as p:
            p.pause(reason="maintenance")
            p.pause(topic="mail")
            status = p.dispatch_status()
            assert (status.paused, status.reason, list(status.topics)) == (True, "maintenance", ["mail"])
            p.resume()
            p.resume("mail")
            status = p.dispatch_status()
            assert (status.paused, status.topics) == (False, {})

    await asyncio.to_thread(use)
