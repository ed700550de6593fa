"""A trace of a web request shows its jobs: enqueue, claim, run and report are spans of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from opentelemetry.trace import SpanKind, StatusCode

import pulse
from tests.sdk.conftest import Running
from tests.sdk.traces import Traces, attributes, is_child, trace_ids
from tests.transport.pulse_server_under_test import ServerUnderTest


@pytest.fixture
async def client(traces: Traces, server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    """A client of a real server, both in this process, which traces."""
    async with pulse.Pulse(server.address, worker_id="w1", drain_timeout=timedelta(seconds=5)) as client:
        yield client


# ------------------------------------------------------------ one trace


async def test_trace_of_a_request_shows_enqueue_claim_run_and_report(
    traces: Traces, client: pulse.Pulse, running: Running
) -> None:
    @client.job("mail")
    async def mail() -> None:
        with traces.tracer.start_as_current_span("smtp"):
            pass

    with traces.tracer.start_as_current_span("POST /sign-up"):
        job = await mail.enqueue()
    async with running(client):
        (report,) = await traces.ended("report mail")
    (request,), (enqueue,), (claim,), (run,), (smtp,) = (
        traces.named(name) for name in ("POST /sign-up", "enqueue mail", "claim mail", "run mail", "smtp")
    )
    assert len(trace_ids(request, enqueue, claim, run, smtp, report)) == 1
    assert is_child(enqueue, request)
    assert is_child(claim, enqueue)
    assert is_child(run, enqueue)
    assert is_child(smtp, run)
    assert is_child(report, run)
    assert [span.kind for span in (enqueue, claim, run, report)] == [
        SpanKind.PRODUCER,
        SpanKind.INTERNAL,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    for span, operation in (enqueue, "send"), (claim, "receive"), (run, "process"), (report, "settle"):
        found = attributes(span)
        assert found["messaging.system"] == "pulse"
        assert found["messaging.destination.name"] == "mail"
        assert found["messaging.message.id"] == job.id
        assert found["messaging.operation.type"] == operation
        assert span.status.status_code is StatusCode.UNSET
    for span in claim, run, report:
        assert attributes(span)["pulse.worker.id"] == "w1"
        assert attributes(span)["pulse.job.attempt"] == 1
        assert attributes(span)["pulse.job.max_attempts"] == 25
    assert attributes(claim)["pulse.job.waited_seconds"] >= 0
    assert attributes(run)["pulse.job.outcome"] == "succeeded"
    assert {span.instrumentation_scope.name for span in (enqueue, claim, run, report)} == {"pulse"}  # type: ignore[union-attr]


async def test_jobs_of_a_workflow_belong_to_the_trace_that_stored_it(
    traces: Traces, client: pulse.Pulse, running: Running
) -> None:
    @client.job("fetch")
    async def fetch(ctx: pulse.Context) -> None:
        await ctx.workflow.add("parse", name="more")

    @client.job("parse")
    async def parse() -> None: ...

    with traces.tracer.start_as_current_span("POST /import"):
        run = await client.start(pulse.chain(fetch.s(), parse.s()), name="import")
    async with running(client):
        assert (await run.wait(timedelta(seconds=60))).succeeded == 3
    (request,), (stored,), (fetched,), (added,) = (
        traces.named(name) for name in ("POST /import", "enqueue import", "run fetch", "enqueue parse")
    )
    parsed = await traces.ended("run parse", 2)
    assert len(trace_ids(request, stored, fetched, added, *parsed)) == 1
    assert is_child(fetched, stored)
    assert is_child(added, fetched)
    assert sorted(is_child(span, stored) for span in parsed) == [False, True]
    assert attributes(stored)["messaging.batch.message_count"] == 2
    assert "messaging.message.id" not in attributes(stored)


async def test_blocking_client_enqueues_in_the_trace_of_its_thread(
    traces: Traces, server: ServerUnderTest
) -> None:
    def view() -> None:
        with pulse.SyncPulse(server.address) as client, traces.tracer.start_as_current_span("GET /"):
            client.enqueue("mail")
            client.enqueue_many("mail", [None, None])

    await asyncio.to_thread(view)
    one, many = traces.named("enqueue mail")
    (request,) = traces.named("GET /")
    assert is_child(one, request)
    assert is_child(many, request)


async def test_enqueue_many_is_one_span_that_every_job_carries(
    traces: Traces, client: pulse.Pulse, running: Running
) -> None:
    @client.job("mail")
    async def mail(number: int) -> None: ...

    jobs = await mail.enqueue_many([{"number": number} for number in range(3)])
    async with running(client):
        runs = await traces.ended("run mail", 3)
    (enqueue,) = traces.named("enqueue mail")
    assert attributes(enqueue)["messaging.batch.message_count"] == 3
    assert all(is_child(span, enqueue) for span in runs + traces.named("claim mail"))
    assert {attributes(run)["messaging.message.id"] for run in runs} == {job.id for job in jobs}


async def test_every_attempt_has_its_claim_run_and_report(
    traces: Traces, client: pulse.Pulse, running: Running
) -> None:
    @client.job("mail")
    async def mail(ctx: pulse.Context) -> None:
        if ctx.attempt == 1:
            raise pulse.Retry(after=timedelta(0), reason="the line is busy")

    await mail.enqueue()
    async with running(client):
        await traces.ended("report mail", 2)
    (enqueue,) = traces.named("enqueue mail")
    claims, runs, reports = (traces.named(f"{verb} mail") for verb in ("claim", "run", "report"))
    for spans in claims, runs, reports:
        assert [attributes(span)["pulse.job.attempt"] for span in spans] == [1, 2]
    assert all(is_child(span, enqueue) for span in claims + runs)
    assert [attributes(run)["pulse.job.outcome"] for run in runs] == ["retry", "succeeded"]
    assert [is_child(report, run) for report, run in zip(reports, runs, strict=True)] == [True, True]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "in a thread"])
async def test_job_that_a_handler_enqueues_hangs_under_its_run(
    traces: Traces, client: pulse.Pulse, server: ServerUnderTest, running: Running, is_async: bool
) -> None:
    with pulse.SyncPulse(server.address) as blocking:
        if is_async:

            @client.job("parent")
            async def parent() -> None:
                await client.enqueue("child")
        else:

            @client.job("parent")
            def parent_in_thread() -> None:
                blocking.enqueue("child")

        @client.job("child")
        async def child() -> None: ...

        await client.enqueue("parent")
        async with running(client):
            (run_of_child,) = await traces.ended("run child")
            (run_of_parent,) = await traces.ended("run parent")
    (enqueue_of_child,) = traces.named("enqueue child")
    assert is_child(enqueue_of_child, run_of_parent)
    assert is_child(run_of_child, enqueue_of_child)


async def test_job_without_a_context_starts_a_trace_of_its_own(
    traces: Traces, client: pulse.Pulse, server: ServerUnderTest, running: Running
) -> None:
    @client.job("mail")
    async def mail() -> None: ...

    await server.submit("mail")
    with traces.tracer.start_as_current_span("the program"):
        async with running(client):
            (report,) = await traces.ended("report mail")
    (run,) = traces.named("run mail")
    assert run.parent is None
    assert is_child(report, run)
    assert not traces.named("claim mail")
