"""A client that is closed while it is used: whatever was under way ends with a PulseError, and soon."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta

import pytest

import pulse
from pulse import tuning
from pulse.blocking.bridge import LoopThread
from tests.eventually import eventually
from tests.rows import each_row
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed

HOUR = timedelta(hours=1)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that accepts connections and never speaks."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


async def watch(p: pulse.Pulse) -> None:
    async for _ in p.watch(timeout=HOUR):
        continue


async def run(p: pulse.Pulse) -> None:
    p.register("mail", lambda: None)
    await p.run(handle_signals=False)


USES: dict[str, Callable[[pulse.Pulse], Awaitable[object]]] = {
    "enqueue": lambda p: p.enqueue("mail", timeout=HOUR),
    "enqueue_many": lambda p: p.enqueue_many("mail", [1, 2], timeout=HOUR),
    "a call": lambda p: p.whoami(timeout=HOUR),
    "watch": watch,
    "run": run,
}
USED = pytest.mark.parametrize("use", USES.values(), ids=USES)


async def closed_while_used(
    p: pulse.Pulse, use: Callable[[pulse.Pulse], Awaitable[object]], seconds: float
) -> None:
    using = asyncio.ensure_future(use(p))
    await asyncio.sleep(seconds)
    await p.close()
    with pytest.raises(pulse.ClientClosed):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await using


@USED
@pytest.mark.parametrize("seconds", [0.0, 0.3])
async def test_close_while_no_server_answers_is_client_closed(
    silent: str, use: Callable[[pulse.Pulse], Awaitable[object]], seconds: float
) -> None:
    await closed_while_used(pulse.Pulse(silent), use, seconds)


@USED
async def test_close_between_two_connections_is_client_closed(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[pulse.Pulse], Awaitable[object]]
) -> None:
    """No server listens: each try fails at once, and the caller waits for the next one."""
    for wait in ("RETRY_FIRST_SECONDS", "RETRY_LONGEST_SECONDS", "RECONNECT_FIRST_SECONDS"):
        monkeypatch.setattr(tuning, wait, 1.0)
    monkeypatch.setattr(tuning, "RECONNECT_LONGEST_SECONDS", 1.0)
    await closed_while_used(pulse.Pulse("127.0.0.1:1"), use, 0.3)


async def test_close_ends_a_run_that_waits_for_jobs(fake: FakePulsed) -> None:
    p = pulse.Pulse(fake.address)
    p.register("mail", lambda: None)
    running = asyncio.create_task(p.run(handle_signals=False))
    await eventually(lambda: bool(fake.opened))
    await p.close()
    with pytest.raises(pulse.ClientClosed):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await running


@each_row(
    "enqueue",
    [
        lambda p: p.enqueue("mail", delay="soon"),
        lambda p: p.enqueue("mail", run_at=5),
        lambda p: p.enqueue_many("mail", 5),
        lambda p: anext(p.watch(topics=5)),
    ],
)
async def test_value_of_another_type_is_an_invalid_argument(
    fake: FakePulsed, enqueue: Callable[[pulse.Pulse], Awaitable[object]]
) -> None:
    async with pulse.Pulse(fake.address) as p:
        with pytest.raises(pulse.InvalidArgument, match=r"5|soon"):
            await enqueue(p)


# --- blocking


def test_close_from_another_thread_ends_a_blocking_call(silent: str) -> None:
    with pulse.SyncPulse(silent, timeout=HOUR) as p:
        closing = threading.Timer(0.3, p.close)
        closing.start()
        with pytest.raises(pulse.ClientClosed):
            p.whoami()
        closing.join()


def test_close_from_another_thread_ends_a_blocking_watch(silent: str) -> None:
    with pulse.SyncPulse(silent, timeout=HOUR) as p:
        closing = threading.Timer(0.3, p.close)
        closing.start()
        with pytest.raises(pulse.ClientClosed):
            next(p.watch())
        closing.join()


def test_run_of_a_closed_client_is_refused(silent: str) -> None:
    p = pulse.SyncPulse(silent)
    p.register("mail", lambda: None)
    p.close()
    with pytest.raises(pulse.ClientClosed):
        p.run(handle_signals=False)


def test_call_that_comes_while_the_thread_ends_is_refused_and_never_waits() -> None:
    thread = LoopThread()
    outcomes: list[object] = []

    def call() -> None:
        while True:  # until it is refused, however late the thread is asked to end
            try:
                thread.run(asyncio.sleep(0))
            except pulse.ClientClosed as error:
                outcomes.append(error)
                return
            except BaseException as error:
                outcomes.append(error)
                return

    callers = [threading.Thread(target=call, daemon=True) for _ in range(4)]
    for caller in callers:
        caller.start()
    thread.stop()
    for caller in callers:
        caller.join(PATIENCE_SECONDS)
        assert not caller.is_alive()
    assert [type(outcome) for outcome in outcomes] == [pulse.ClientClosed] * 4
