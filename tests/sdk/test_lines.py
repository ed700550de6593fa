"""Lines of the SDK: opened by calls that follow each other closely, and never in the way of a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

import pulse
from pulse import tuning
from tests.eventually import eventually
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.line_server import LineServer, line_server
from tests.transport.authorized import PASSWORD
from tests.transport.pulse_server_under_test import server_under_test


@pytest.fixture
async def server() -> AsyncIterator[LineServer]:
    async with line_server() as running:
        yield running


@pytest.fixture
async def p(server: LineServer) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


@pytest.fixture
async def busy(server: LineServer, p: pulse.Pulse) -> pulse.Pulse:
    """A client whose line is open and has answered; from here on it answers when the test says so."""
    await p.enqueue("t")
    await p.enqueue("t")
    assert len(server.lines) == len(server.calls) == 1
    server.answers = False
    return p


async def test_first_call_goes_alone_and_those_that_follow_share_a_line(
    server: LineServer, p: pulse.Pulse
) -> None:
    handles = [await p.enqueue("t") for _ in range(5)]
    assert len(server.calls) == 1
    assert len(server.lines) == 1
    assert list(server.stored) == [handle.id for handle in handles]


async def test_calls_that_are_far_apart_open_no_line(
    server: LineServer, p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "LINE_OPENS_WITHIN_SECONDS", 0.0)
    for _ in range(3):
        await p.enqueue("t")
    assert (len(server.calls), len(server.lines)) == (3, 0)


async def test_many_go_over_the_line_in_batches_and_in_order(server: LineServer, p: pulse.Pulse) -> None:
    handles = await p.enqueue_many("t", range(6_500), priority=2)
    assert [handle.id for handle in handles] == sorted(server.stored)
    assert set(server.stored.values()) == {1}
    assert len(server.lines) == 1
    assert len(server.calls) == tuning.BULK_BATCHES_IN_FLIGHT  # it was not known by then that more would come


async def test_answers_may_come_out_of_order(server: LineServer, busy: pulse.Pulse) -> None:
    first = asyncio.create_task(busy.enqueue("first"))
    await server.until(lambda: len(server.line.unanswered) == 1)
    second = asyncio.create_task(busy.enqueue("second"))
    await server.until(lambda: len(server.line.unanswered) == 2)
    early, late = server.line.unanswered
    await server.line.answer(late)
    assert (await second).id == late.request.jobs[0].job_id
    assert not first.done()
    await server.line.answer(early)
    assert (await first).id == early.request.jobs[0].job_id


async def test_refused_message_raises_the_words_of_the_server_and_the_line_goes_on(
    server: LineServer, busy: pulse.Pulse
) -> None:
    refused = asyncio.create_task(busy.enqueue("t"))
    await server.until(lambda: server.line.unanswered)
    await server.line.refuse(server.line.unanswered[0], grpc.StatusCode.INVALID_ARGUMENT, "Too much at once.")
    with pytest.raises(pulse.InvalidArgument, match="Too much at once"):
        await refused
    server.answers = True
    await busy.enqueue("t")
    assert (len(server.lines), len(server.calls)) == (1, 1)


async def test_refusal_that_may_pass_is_asked_again(server: LineServer, busy: pulse.Pulse) -> None:
    waiting = asyncio.create_task(busy.enqueue("t"))
    await server.until(lambda: server.line.unanswered)
    server.answers = True
    await server.line.refuse(server.line.unanswered[0], grpc.StatusCode.UNAVAILABLE, "The database is away.")
    assert server.stored[(await waiting).id] == 2
    assert len(server.lines) == 1


async def test_canceled_caller_does_not_affect_the_others(server: LineServer, busy: pulse.Pulse) -> None:
    canceled = asyncio.create_task(busy.enqueue_many("t", [1, 2]))
    await server.until(lambda: len(server.line.unanswered) == 1)
    other = asyncio.create_task(busy.enqueue_many("t", [3]))
    await server.until(lambda: len(server.line.unanswered) == 2)
    canceled.cancel()
    for message in server.line.unanswered:
        await server.line.answer(message)
    assert len(await other) == 1
    assert canceled.cancelled()
    assert len(server.lines) == 1


# ---------------------------------------------------------------- lines that end


async def test_killed_server_is_asked_again_and_nothing_is_lost(
    server: LineServer, busy: pulse.Pulse
) -> None:
    """It had taken the jobs in and died before it said so: they come again, each under its id."""
    waiting = [asyncio.create_task(busy.enqueue_many("t", [number])) for number in range(5)]
    await server.until(lambda: len(server.line.unanswered) == 5)
    await server.stop()
    server.answers = True
    await server.start()
    handles = [handle for handles in await asyncio.gather(*waiting) for handle in handles]
    assert {server.stored[handle.id] for handle in handles} == {2}
    assert not any(handle.duplicate for handle in handles)
    assert len(server.stored) == 7


async def test_line_that_the_server_ends_in_order_is_opened_again(
    server: LineServer, busy: pulse.Pulse
) -> None:
    waiting = asyncio.create_task(busy.enqueue("t"))
    await server.until(lambda: server.line.unanswered)
    server.answers = True
    server.line.end()
    assert server.stored[(await waiting).id] == 2
    assert (len(server.lines), len(server.calls)) == (2, 1)


async def test_what_breaks_the_line_is_asked_alone(server: LineServer, busy: pulse.Pulse) -> None:
    """One message may be at fault, say too large: its neighbor must not be refused for it."""
    waiting = [asyncio.create_task(busy.enqueue_many("t", [number])) for number in range(2)]
    await server.until(lambda: len(server.line.unanswered) == 2)
    server.line.end(grpc.StatusCode.RESOURCE_EXHAUSTED, "The message is too large.")
    await asyncio.gather(*waiting)
    assert (len(server.lines), len(server.calls)) == (1, 3)


async def test_call_without_an_answer_is_asked_again_over_another_line(
    server: LineServer, busy: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "TRY_TIMEOUT_SECONDS", 0.9)
    waiting = asyncio.create_task(busy.enqueue("t"))
    await server.until(lambda: server.line.unanswered)
    server.answers = True
    assert server.stored[(await waiting).id] == 2
    assert len(server.lines) == 2
    await server.lines[0].has_ended.wait()


async def test_line_that_never_answers_is_left_for_calls(
    server: LineServer, p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something on the way may carry calls and no streams."""
    monkeypatch.setattr(tuning, "LINE_REST_FIRST_SECONDS", 60.0)
    server.answers = False
    await p.enqueue("t")
    monkeypatch.setattr(tuning, "TRY_TIMEOUT_SECONDS", 0.9)
    for _ in range(3):
        await p.enqueue("t")
    assert len(server.lines) == 1
    assert len(server.calls) == 4


async def test_server_without_lines_is_served_by_calls(server: LineServer, p: pulse.Pulse) -> None:
    server.has_lines = False
    for _ in range(5):
        await p.enqueue("t")
    assert (len(server.calls), server.refused_lines) == (5, 1)


async def test_reports_to_a_server_without_lines_are_calls(fake: FakePulsed) -> None:
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        async def work() -> None: ...

        running = asyncio.create_task(p.run(handle_signals=False))
        for job_id in ("j1", "j2", "j3"):
            fake.deliver(job_id)
            await fake.until_async(lambda job_id=job_id: job_id in fake.results)
        running.cancel()
        await asyncio.wait({running})


async def test_silent_line_is_closed(
    server: LineServer, p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "LINE_SILENT_SECONDS", 0.02)
    await p.enqueue("t")
    await p.enqueue("t")
    await asyncio.wait_for(server.line.has_ended.wait(), 10)
    await p.enqueue("t")
    assert len(server.lines) + len(server.calls) == 3


# ---------------------------------------------------------------- closing


async def test_closed_client_leaves_no_task_behind(server: LineServer) -> None:
    before = asyncio.all_tasks()  # gRPC's server among them
    async with pulse.Pulse(server.address) as p:
        await p.enqueue("t")
        await p.enqueue("t")
        server.answers = False
        one = asyncio.create_task(p.enqueue("t"))
        many = asyncio.create_task(p.enqueue_many("t", [1]))
        await server.until(lambda: len(server.line.unanswered) == 2)
    for waiting in (one, many):
        with pytest.raises(pulse.ClientClosed):
            await waiting
    await server.line.has_ended.wait()
    await eventually(lambda: not asyncio.all_tasks() - before)


# ---------------------------------------------------------------- who may


async def test_user_who_is_removed_hears_it_from_the_next_call(database_dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"ann:{PASSWORD}:producer\n")
    async with (
        server_under_test(database_dsn, users_file=file) as server,
        pulse.Pulse(server.address, user="ann", password=PASSWORD) as p,
    ):
        handles = [await p.enqueue("mail") for _ in range(3)]
        file.write_text(f"bob:{PASSWORD}:producer\n")
        access = server.app.doors.access
        assert access is not None
        assert access.users_file is not None
        access.read_again()
        await access.users_file.loop.wait_for_ticks(1)
        with pytest.raises(pulse.Unauthenticated, match=r"The user or the password is wrong\."):
            await p.enqueue("mail", timeout=timedelta(seconds=10))
        assert await server.table.count() == len(handles)
