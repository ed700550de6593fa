"""How a run, a report and an enqueue that fail appear in a trace."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import grpc
import pytest
from opentelemetry.trace import StatusCode

import pulse
from pulse import tuning
from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.traces import Traces, attributes


async def test_failure_is_recorded_on_the_run(
    traces: Traces, fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def work() -> None:
        raise ValueError("no such account")

    async with running(p):
        fake.deliver("j1")
        await traces.ended("report work")
    (run,) = traces.named("run work")
    assert run.status.status_code is StatusCode.ERROR
    assert run.status.description == "ValueError: no such account"
    assert attributes(run)["pulse.job.outcome"] == "failed"
    assert attributes(run)["error.type"] == "ValueError"
    assert [event.name for event in run.events] == ["exception"]


async def test_discard_is_an_error_without_a_stack_trace(
    traces: Traces, fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def work() -> None:
        raise pulse.Discard("no such user")

    async with running(p):
        fake.deliver("j1")
        await traces.ended("report work")
    (run,) = traces.named("run work")
    assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, "no such user")
    assert attributes(run)["pulse.job.outcome"] == "discarded"
    assert not run.events


async def test_retry_is_no_error(traces: Traces, fake: FakePulsed, p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def work() -> None:
        raise pulse.Retry(reason="the line is busy")

    async with running(p):
        fake.deliver("j1")
        await traces.ended("report work")
    (run,) = traces.named("run work")
    assert run.status.status_code is StatusCode.UNSET
    assert attributes(run)["pulse.job.outcome"] == "retry"
    assert [dict(event.attributes or {}) for event in run.events] == [{"reason": "the line is busy"}]


async def test_run_that_was_stopped_is_marked_and_has_no_report(
    traces: Traces, fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    has_started = asyncio.Event()

    @p.job("work")
    async def work() -> None:
        has_started.set()
        await asyncio.Event().wait()

    async with running(p):
        fake.deliver("j1")
        await has_started.wait()
        fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="j1", attempt=1, run=1)]))
        (run,) = await traces.ended("run work")
    assert attributes(run)["pulse.job.outcome"] == "cancelled"
    assert run.status.status_code is StatusCode.UNSET
    assert not traces.named("report work")


async def test_report_that_is_refused_is_an_error(
    traces: Traces, fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def work() -> None: ...

    fake.refused_results["j1"] = (grpc.StatusCode.FAILED_PRECONDITION, "It is held by another worker.")
    async with running(p):
        fake.deliver("j1")
        (report,) = await traces.ended("report work")
    assert report.status.status_code is StatusCode.ERROR
    assert report.status.description == "It is held by another worker."


async def test_report_that_was_never_taken_ends_with_the_worker(
    traces: Traces, fake: FakePulsed, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "CANCEL_GRACE_SECONDS", 0.1)
    fake.lease_seconds = 0.5
    fake.refused_results["j1"] = (grpc.StatusCode.UNAVAILABLE, "The database is away.")
    async with pulse.Pulse(fake.address, drain_timeout=timedelta(seconds=1)) as p:

        @p.job("work")
        async def work() -> None: ...

        async with running(p):
            fake.deliver("j1")
            await eventually(lambda: fake.result_count)
    (report,) = await traces.ended("report work")
    assert report.status.status_code is StatusCode.ERROR


async def test_refused_enqueue_is_an_error(traces: Traces, fake: FakePulsed, p: pulse.Pulse) -> None:
    fake.refused_topics["work"] = (grpc.StatusCode.RESOURCE_EXHAUSTED, "The queue is full.")
    with pytest.raises(pulse.ResourceExhausted):
        await p.enqueue("work")
    with pytest.raises(pulse.PartialFailure):
        await p.enqueue_many("work", [None, None])
    for enqueue in traces.named("enqueue work"):
        assert enqueue.status.status_code is StatusCode.ERROR
        assert [event.name for event in enqueue.events] == ["exception"]
    assert len(traces.named("enqueue work")) == 2
