"""What a worker sends of the progress that its handlers report."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import pulse
from pulse import tuning
from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed, wait_for

STORED = pb.Progress(fraction=0.25, text="a quarter", cursor=b'{"page":25}', attempt=1)


def sent(fake: FakePulsed) -> list[pb.ProgressReport]:
    return [report for request in fake.heartbeats for report in request.progress]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is sent at the next look, and the claim does not have to be a second old."""
    monkeypatch.setattr(tuning, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "HOLD_LOOK_SECONDS", 0.01)


@each_row(
    "fraction, rest, part",
    [
        (float("nan"), {}, "number from 0 to 1"),
        (2.0, {}, "number from 0 to 1"),
        (-1, {}, "number from 0 to 1"),
        (10**400, {}, "number from 0 to 1"),
        ("0.4", {}, "number from 0 to 1"),
        (True, {}, "number from 0 to 1"),
        (0.5, {"text": "x" * 1024 * 1024}, "1048576 characters; 200 are allowed"),
        (0.5, {"text": "two\nlines"}, "control characters"),
        (0.5, {"text": "\x1b[31mred"}, "control characters"),
        (0.5, {"text": "\ud800"}, "control characters"),
        (0.5, {"text": b"bytes"}, "give a str"),
        (0.5, {"cursor": object()}, "cannot be written as JSON"),
        (0.5, {"cursor": {"at": float("inf")}}, "NaN or infinity"),
        (0.5, {"cursor": b"raw"}, "decode it to a str"),
        (0.5, {"cursor": "x" * 5000}, "5002 bytes as JSON; 4096 are allowed"),
    ],
)
def test_absurd_progress_is_refused_at_the_call(fraction: Any, rest: dict[str, Any], part: str) -> None:
    ctx = pulse.Context()
    with pytest.raises(pulse.InvalidArgument, match=part) as raised:
        ctx.progress(fraction, **rest)
    assert len(raised.value.message) < 400


@each_row("fraction", [0, 1, 0.4, None])
def test_fractions_emojis_and_small_cursors_are_accepted(fraction: float | None) -> None:
    pulse.Context().progress(fraction, "20 of 50 👨‍👩‍👧 ausgewählt", cursor={"page": [1, 2]})


def test_last_attempt_is_known_to_the_handler() -> None:
    ctx = pulse.Context(attempt=2, last_progress=pulse.Progress(0.4, "20 of 50", cursor={"file": 20}))

    assert (ctx.cursor, ctx.last_progress) == (
        {"file": 20},
        pulse.Progress(0.4, "20 of 50", {"file": 20}, attempt=1),
    )
    assert (pulse.Context().cursor, pulse.Context().last_progress) == (None, None)


@pytest.mark.usefixtures("at_once")
async def test_progress_of_an_async_handler_is_sent_with_heartbeats(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    go = asyncio.Event()
    seen: list[Any] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        seen.extend((ctx.cursor, ctx.last_progress))
        ctx.progress(0.5, "half", cursor={"page": 50})
        await go.wait()
        ctx.progress(0.75)
        raise ValueError("stopped")

    async with running(p):
        fake.deliver("j1", attempt=2, progress=STORED)
        await fake.until_async(lambda: sent(fake))
        go.set()
        await fake.until_async(lambda: "j1" in fake.results)
    report = sent(fake)[0]
    assert (report.fraction, report.text, report.cursor) == (0.5, "half", b'{"page":50}')
    assert seen == [{"page": 25}, pulse.Progress(0.25, "a quarter", {"page": 25}, 1)]
    last = fake.results["j1"].progress
    assert (last.fraction, last.text, last.cursor) == (0.75, "", b'{"page":50}')
    assert last.number > report.number


@pytest.mark.usefixtures("at_once")
async def test_progress_of_a_thread_is_sent_while_it_blocks(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    go = threading.Event()

    @p.job("work")
    def handle(ctx: pulse.Context) -> None:
        ctx.progress(0.5)
        wait_for(go)

    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: sent(fake))
        go.set()
        await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].success
    assert not fake.results["j1"].HasField("progress")  # a completed job keeps none
    # Unset, not empty: the job keeps the cursor that it has.
    assert not sent(fake)[0].HasField("cursor")


async def test_handler_without_progress_sends_the_usual_heartbeats(
    fake: FakePulsed, p: pulse.Pulse, running: Running, at_once: None
) -> None:
    go = asyncio.Event()

    @p.job("silent")
    async def silent() -> None:
        await go.wait()
        raise ValueError

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        ctx.progress(0.5)
        await go.wait()

    async with running(p):
        fake.deliver("j1", topic="silent")
        await fake.until_async(lambda: fake.beats)
        fake.deliver("j2")
        await fake.until_async(lambda: sent(fake))
        go.set()
        await fake.until_async(lambda: len(fake.results) == 2)
    assert fake.beats.count(("j1", 1)) == 1
    first = pb.HeartbeatsRequest(worker_id=fake.opened[0].worker_id)
    first.claims.add(job_id="j1", attempt=1, run=1)
    first.memory_bytes = fake.heartbeats[0].memory_bytes
    assert fake.heartbeats[0] == first
    assert not fake.results["j1"].HasField("progress")


@pytest.mark.usefixtures("at_once")
async def test_interrupted_handler_leaves_its_progress_with_the_release(
    fake: FakePulsed, p: pulse.Pulse, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "PROGRESS_SECONDS", 3600.0)
    started = asyncio.Event()

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ctx.progress(0.5, cursor=50)
            started.set()

    async with running(p) as worker:
        fake.deliver("j1")
        await fake.until_async(lambda: fake.beats)
        worker.cancel()
    (request,) = [request for request in fake.releases if request.claims]
    assert [(report.index, report.cursor) for report in request.progress] == [(0, b"50")]


@pytest.mark.usefixtures("at_once")
async def test_lost_claim_neither_raises_in_the_handler_nor_sends_more(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    go = threading.Event()
    ended: list[str] = []

    @p.job("work")
    def handle(ctx: pulse.Context) -> None:
        try:
            while True:
                ctx.progress(0.5)
        except pulse.Cancelled:
            ended.append("quietly")
        finally:
            go.set()

    @p.job("other")
    async def other(ctx: pulse.Context) -> None:
        while True:
            ctx.progress(0.5)
            await asyncio.sleep(0.01)

    def beats(job_id: str) -> int:
        return fake.beats.count((job_id, 1))

    fake.disowned = {"j1"}
    async with running(p):
        fake.deliver("j1")
        await asyncio.to_thread(wait_for, go)
        fake.deliver("j2", topic="other")
        await fake.until_async(lambda: beats("j2"))  # what was on its way has arrived
        before, seen = beats("j1"), beats("j2")
        await fake.until_async(lambda: beats("j2") >= seen + 2)
        assert beats("j1") == before
        fake.disowned, seen = {"j2"}, beats("j2")
        await fake.until_async(lambda: beats("j2") > seen)
    assert ended == ["quietly"]
    assert fake.results == {}
