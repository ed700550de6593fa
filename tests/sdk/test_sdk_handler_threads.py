"""A `def` handler enqueues: the verb blocks in its thread, and no coroutine is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import pulse
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed


def _blocks(p: pulse.Pulse, job: Any) -> Any:
    handle = job.enqueue(1)
    assert handle.id
    assert isinstance(handle, pulse.JobHandle)


def _returns(p: pulse.Pulse, job: Any) -> Any:
    return job.enqueue(1)


def _runs_a_loop(p: pulse.Pulse, job: Any) -> Any:
    assert asyncio.run(job.enqueue(1)).topic == "next"


def _by_the_client(p: pulse.Pulse, job: Any) -> Any:
    p.enqueue("next", {"number": 1})


def _in_bulk(p: pulse.Pulse, job: Any) -> Any:
    (handle,) = job.enqueue_many([{"number": 1}])
    assert handle.topic == "next"


@pytest.mark.parametrize("enqueue", [_blocks, _returns, _runs_a_loop, _by_the_client, _in_bulk])
async def test_plain_handler_enqueues(
    fake: FakePulsed, p: pulse.Pulse, running: Running, enqueue: Callable[[pulse.Pulse, Any], Any]
) -> None:
    @p.job("next")
    async def follow_up(number: int) -> None: ...

    @p.job("work")
    def handle() -> Any:
        return enqueue(p, follow_up)

    async with running(p):
        fake.deliver("j")
        await fake.until_async(lambda: "j" in fake.results)
    assert fake.results["j"].success, fake.results["j"].error
    assert [job.payload for job in fake.stored.values()] == [b'{"number":1}']


async def test_error_of_the_enqueue_is_raised_in_the_thread(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    def handle() -> None:
        p.enqueue("next", priority="high")  # type: ignore[arg-type, unused-coroutine]

    async with running(p):
        fake.deliver("j")
        await fake.until_async(lambda: "j" in fake.results)
    assert "priority has to be int" in fake.results["j"].error


async def test_plain_handler_enqueues_with_a_client_of_another_event_loop(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    """Such as the client of a module in a process that runs one handler."""
    other = pulse.Pulse(fake.address)

    @p.job("work")
    def handle() -> None:
        for _ in range(2):
            other.enqueue("next")  # type: ignore[unused-coroutine]

    async with running(p):
        fake.deliver("j")
        await fake.until_async(lambda: "j" in fake.results)
    assert fake.results["j"].success, fake.results["j"].error
    assert len(fake.stored) == 2


async def test_blocking_client_works_in_a_plain_handler(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    with pulse.SyncPulse(fake.address) as blocking:

        @p.job("work")
        def handle() -> None:
            blocking.enqueue("next")
            blocking.enqueue("next")

        async with running(p):
            fake.deliver("j")
            await fake.until_async(lambda: "j" in fake.results)
    assert fake.results["j"].success, fake.results["j"].error
    assert len(fake.stored) == 2


async def test_verb_outside_of_a_handler_is_a_coroutine_as_ever(fake: FakePulsed) -> None:
    def script() -> str:
        async def main() -> str:
            async with pulse.Pulse(fake.address) as p:
                return (await p.enqueue("next")).topic

        return asyncio.run(main())

    assert await asyncio.to_thread(script) == "next"
