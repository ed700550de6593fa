"""A worker declares the settings of topics that its handlers have as options."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import grpc
import pytest

import pulse
from pulse.topics import entries_of
from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.transport.pulse_server_under_test import ServerUnderTest

BACKOFF = pulse.Backoff(first=timedelta(seconds=2), factor=3, longest=timedelta(hours=6), jitter=0.1)


async def until_declared(p: pulse.Pulse, max_attempts: int | None) -> None:
    async def is_declared() -> bool:
        return (await p.topic_settings("work")).declared.get("max_attempts") == max_attempts

    await eventually(is_declared, "the setting is declared")


async def test_options_that_the_server_applies_are_declared_and_no_others(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    declared: list[pb.DeclareTopicsRequest] = []

    def declare(request: pb.DeclareTopicsRequest, context: Any) -> pb.DeclareTopicsResponse:
        declared.append(request)
        return pb.DeclareTopicsResponse()

    fake.on_declare = declare
    p.register("all", lambda: None, retry=BACKOFF, max_attempts=8, timeout=timedelta(minutes=2))
    p.register("local", lambda: None, retry=lambda a, e: timedelta(1), retry_on=OSError, priority=4)
    p.register("plain", lambda: None)
    async with running(p):
        await fake.until_async(lambda: declared)
    (request,) = declared
    assert [(each.topic, entries_of(each.entries)) for each in request.topics] == [
        ("all", {"max_attempts": 8, "backoff": BACKOFF, "attempt_timeout": timedelta(minutes=2)}),
        ("local", {}),
        ("plain", {}),
    ]


async def test_worker_of_more_topics_than_a_request_may_have_declares_all(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    declared: list[str] = []

    def declare(request: pb.DeclareTopicsRequest, context: Any) -> pb.DeclareTopicsResponse:
        assert len(request.topics) <= 1000
        declared.extend(each.topic for each in request.topics)
        return pb.DeclareTopicsResponse()

    fake.on_declare = declare
    topics = [f"topic-{number}" for number in range(1001)]
    for topic in topics:
        p.register(topic, lambda: None)
    async with running(p):
        await fake.until_async(lambda: len(declared) >= 1001)
    assert declared == topics


async def test_option_that_vanished_from_the_code_no_longer_holds(
    server: ServerUnderTest, running: Running
) -> None:
    for options in ({"max_attempts": 4}, {}):
        async with pulse.Pulse(server.address) as p:
            p.register("work", lambda: None, **options)
            async with running(p):
                await until_declared(p, options.get("max_attempts"))
            await server.app.topics.settings.loop.wait_for_ticks(2)
            job = await p.get_job((await p.enqueue("work", delay=timedelta(hours=1))).id)
            assert job.max_attempts == options.get("max_attempts", 25)


async def test_server_without_settings_of_topics_is_no_error(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    def declare(request: Any, context: grpc.ServicerContext) -> Any:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    fake.on_declare = declare
    p.register("work", lambda: None, max_attempts=3)
    p.every("work", timedelta(hours=1))
    async with running(p):
        await eventually(lambda: "without settings of topics" in caplog.text, "it is logged")
        fake.deliver("j")
        await fake.until_async(lambda: "j" in fake.results and fake.definitions)
    assert caplog.text.count("is of a version without settings of topics") == 1


async def test_limits_on_a_server_without_limits_end_the_worker(fake: FakePulsed, p: pulse.Pulse) -> None:
    def declare(request: Any, context: grpc.ServicerContext) -> Any:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    fake.on_declare = declare
    p.register("work", lambda: None, running=3)
    fake.deliver("j")
    with pytest.raises(
        pulse.PulseError, match="is of a version without limits, so those of work would not hold"
    ):
        await p.run(handle_signals=False)
    assert "j" not in fake.results


async def test_worker_with_limits_is_connected_without_jobs_until_they_are_declared(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    streams_before: list[bool] = []

    def declare(request: Any, context: grpc.ServicerContext) -> Any:
        streams_before.extend(stream.idle for stream in fake.opened)
        return pb.DeclareTopicsResponse()

    fake.on_declare = declare
    p.register("work", lambda: None, running=3)
    async with running(p):
        await fake.until_async(lambda: len(fake.opened) == 2)
        fake.deliver("j")
        await fake.until_async(lambda: "j" in fake.results)

    assert streams_before == [True]
    assert [stream.idle for stream in fake.opened] == [True, False]


async def test_two_workers_that_differ_are_both_named(
    server: ServerUnderTest, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """The newest declaration holds."""
    for name, attempts in (("worker-old", 4), ("worker-new", 9)):
        async with pulse.Pulse(server.address, worker_id=name) as p:
            p.register("work", lambda: None, max_attempts=attempts, retry=BACKOFF)
            async with running(p):
                await until_declared(p, attempts)
                if name == "worker-new":
                    await eventually(lambda: "are replaced by those of" in caplog.text, "it is logged")
    (warning,) = [text for text in caplog.messages if "are replaced by those of" in text]
    assert "worker worker-old" in warning
    assert "worker worker-new" in warning


async def test_declared_backoff_decides_when_a_failed_job_runs_again(
    server: ServerUnderTest, running: Running
) -> None:
    """The delay is the server's: the worker reports none."""
    backoff = pulse.Backoff(first=timedelta(hours=2), factor=1, longest=timedelta(hours=2), jitter=0)
    async with pulse.Pulse(server.address) as p:

        @p.job("work", retry=backoff, max_attempts=2)
        async def fail() -> None:
            raise OSError("down")

        async with running(p):
            await until_declared(p, 2)
            handle = await fail.enqueue()
            while (job := await p.get_job(handle.id)).status is not pulse.JobStatus.RETRYING:
                pass
    (attempt,) = job.history
    assert job.max_attempts == 2
    assert job.next_run_at is not None
    assert attempt.ended_at is not None
    assert abs(job.next_run_at - attempt.ended_at - timedelta(hours=2)) < timedelta(minutes=1)
