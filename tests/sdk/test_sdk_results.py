"""What a handler returns is stored with its job, in every kind of handler."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test


@dataclasses.dataclass
class Invoice:
    number: int
    total: float


async def at_once(value: Any) -> Any:
    return value


async def later(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


def in_thread(value: Any) -> Any:
    return value


def awaitable(value: Any) -> Any:
    return later(value)


async def finished(p: pulse.Pulse, job_id: str) -> pulse.JobInfo:
    async def is_over() -> pulse.JobInfo | None:
        info = await p.get_job(job_id)
        return info if info.status.is_finished else None

    info: pulse.JobInfo = await eventually(is_over)
    return info


@pytest.mark.parametrize("handler", [at_once, later, in_thread, awaitable])
async def test_result_is_what_the_handler_returned(
    server: ServerUnderTest, running: Running, handler: Any
) -> None:
    async with pulse.Pulse(server.address) as p:

        @p.job("work")
        async def _(value: Any) -> None: ...

        handlers = p.register("other", handler)
        async with running(p):
            handle = await handlers.enqueue({"a": [1, None, "é"]})
            info = await finished(p, handle.id)
            assert (info.status, info.result) == ("COMPLETED", {"a": [1, None, "é"]})
            assert (await finished(p, (await handlers.enqueue(None)).id)).result_bytes is None


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Invoice(1, 2.5), b'{"number":1,"total":2.5}'),
        (False, b"false"),
        (0, b"0"),
        ("", b'""'),
        ([], b"[]"),
        (b"", b""),
        (b"\x00raw", b"\x00raw"),
    ],
)
async def test_result_is_encoded_as_arguments_are(
    server: ServerUnderTest, running: Running, value: Any, stored: bytes
) -> None:
    async with pulse.Pulse(server.address) as p:

        @p.job("work")
        async def work() -> Any:
            return value

        async with running(p):
            info = await finished(p, (await work.enqueue()).id)
    assert info.result_bytes == stored


@pytest.mark.parametrize("value", [b"", b"\xff"])
async def test_bytes_that_are_not_json_are_returned_as_they_are(
    server: ServerUnderTest, running: Running, value: bytes
) -> None:
    async with pulse.Pulse(server.address) as p:

        @p.job("annotated")
        async def annotated() -> bytes:
            return value

        @p.job("optional")
        async def optional() -> bytes | None:
            return value

        @p.job("bare")
        async def bare():  # type: ignore[no-untyped-def]
            return value

        async with running(p):
            for handler in (annotated, optional, bare):
                handle = await handler.enqueue()
                assert await handle.result() == value
                assert (await p.get_job(handle.id)).result == value


@pytest.mark.parametrize("handler", [at_once, later, in_thread])
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (object(), "The result of type object cannot be written as JSON"),
        (float("nan"), "The result has NaN or infinity"),
        ("x" * 64 * 1024, "The handler returned a result of 65538 bytes; 65536 are allowed at the most."),
    ],
)
async def test_result_that_cannot_be_stored_is_a_dead_letter_at_once(
    server: ServerUnderTest, running: Running, handler: Any, value: Any, sentence: str
) -> None:
    async with pulse.Pulse(server.address) as p:

        @p.job("work")
        async def work() -> Any:
            return await later(value) if handler is later else value

        @p.job("thread")
        def thread() -> Any:
            return value

        async with running(p):
            job = thread if handler is in_thread else work
            info = await finished(p, (await job.options(max_attempts=5).enqueue()).id)
    assert (info.status, info.attempts, info.result_bytes) == ("DEAD_LETTERED", 1, None)
    assert (info.last_error or "").startswith(sentence)
    assert [past.outcome for past in info.history] == ["discarded"]


async def test_largest_result_is_stored(server: ServerUnderTest, running: Running) -> None:
    async with pulse.Pulse(server.address) as p:

        @p.job("work")
        async def work() -> bytes:
            return b"x" * 64 * 1024

        async with running(p):
            info = await finished(p, (await work.enqueue()).id)
    assert info.result_bytes == b"x" * 64 * 1024


async def test_bound_of_the_server_is_checked_before_the_report(
    database_dsn: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        server_under_test(database_dsn, max_result_bytes=3) as server,
        pulse.Pulse(server.address) as p,
    ):

        @p.job("work")
        async def work(size: int) -> bytes:
            return b"x" * size

        async with running(p):
            fits, large = [await work.enqueue(size) for size in (3, 4)]
            assert (await finished(p, fits.id)).result_bytes == b"xxx"
            assert "4 bytes; 3 are allowed" in str((await finished(p, large.id)).last_error)


async def test_result_of_a_handler_in_middleware_is_that_of_the_handler(
    server: ServerUnderTest, running: Running
) -> None:
    async with pulse.Pulse(server.address) as p:

        @p.middleware
        async def around(call: pulse.JobCall, call_next: pulse.CallNext) -> str:
            await call_next()
            return "of the middleware"

        @p.job("work")
        async def work() -> int:
            return 7

        @p.job("thread")
        def thread() -> int:
            return 8

        async with running(p):
            assert (await finished(p, (await work.enqueue()).id)).result == 7
            assert (await finished(p, (await thread.enqueue()).id)).result == 8


async def test_server_that_stores_no_results_is_sent_none_and_the_worker_warns_once(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:

    @p.job("work")
    async def work() -> Any:
        return object()

    async with running(p):
        fake.deliver("a", "b")
        await fake.until_async(lambda: len(fake.results) == 2)
    assert all(result.success for result in fake.results.values())
    assert not fake.returned
    assert [record.message for record in caplog.records if "does not store" in record.message] == [
        "The handler of work returns a result, which this version of pulsed does not store: it is dropped."
    ]


async def test_report_of_a_handler_that_returns_nothing_has_the_bytes_of_before(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def work() -> None: ...

    async with running(p):
        fake.deliver("a")
        await fake.until_async(lambda: "a" in fake.results)
    assert (
        fake.results["a"].SerializeToString()
        == pb.Result(job_id="a", attempt=1, run=1, success=True).SerializeToString()
    )
