"""A trace of a web request shows its jobs: enqueue, claim, run and report are spans of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

import pulse
from pulse import tuning
from pulse.tracing.carrier import ADDED, add_context, without_context
from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import limits
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.scripts import run_script
from tests.sdk.traces import Traces, is_child, trace_ids, traces_recorded
from tests.transport.pulse_server_under_test import ServerUnderTest

USERS_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    with traces_recorded(monkeypatch) as traces:
        yield traces


@pytest.fixture
async def client(traces: Traces, server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    """A client of a real server, both in this process, which traces."""
    async with pulse.Pulse(server.address, worker_id="w1", drain_timeout=timedelta(seconds=5)) as client:
        yield client


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


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
        told = attributes(span)
        assert told["messaging.system"] == "pulse"
        assert told["messaging.destination.name"] == "mail"
        assert told["messaging.message.id"] == job.id
        assert told["messaging.operation.type"] == operation
        assert span.status.status_code is StatusCode.UNSET
    for span in claim, run, report:
        assert attributes(span)["pulse.worker.id"] == "w1"
        assert attributes(span)["pulse.job.attempt"] == 1
        assert attributes(span)["pulse.job.max_attempts"] == 5
    assert attributes(claim)["pulse.job.waited_seconds"] >= 0
    assert attributes(run)["pulse.job.outcome"] == "succeeded"
    assert {span.instrumentation_scope.name for span in (enqueue, claim, run, report)} == {"pulse"}  # type: ignore[union-attr]


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


# ------------------------------------------------------------ how things end


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
        fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="j1", attempt=1)]))
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


# ------------------------------------------------------------ what travels


async def test_handler_gets_the_metadata_that_was_given(
    traces: Traces, client: pulse.Pulse, running: Running
) -> None:
    seen: list[Any] = []

    @client.job("mail")
    async def mail(ctx: pulse.Context) -> None:
        seen.append(ctx.metadata)

    given = {"tenant": "acme"}
    job = await client.enqueue("mail", metadata=given)
    stored = (await client.get_job(job.id)).metadata
    async with running(client):
        await traces.ended("report mail")
    assert given == {"tenant": "acme"}
    assert seen == [given]
    (enqueue,) = traces.named("enqueue mail")
    context = enqueue.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert stored == {"tenant": "acme", "traceparent": parent, ADDED: "traceparent"}


async def test_traceparent_of_the_user_wins(traces: Traces, client: pulse.Pulse, running: Running) -> None:
    seen: list[Any] = []

    @client.job("mail")
    async def mail(ctx: pulse.Context) -> None:
        seen.append(ctx.metadata)

    given = {"traceparent": USERS_TRACE}
    await mail.options(metadata=given).enqueue()
    async with running(client):
        await traces.ended("report mail")
    (run,), (claim,) = traces.named("run mail"), traces.named("claim mail")
    for span in run, claim:
        assert span.parent is not None
        assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert seen == [given]


async def test_context_that_would_not_fit_is_left_out(
    client: pulse.Pulse,
) -> None:
    many = {str(number): "" for number in range(limits.MAX_METADATA_ENTRIES)}
    large = {"k": "v" * (limits.MAX_METADATA_BYTES - 1)}
    for metadata in many, large:
        job = await client.enqueue("mail", metadata=metadata)
        assert (await client.get_job(job.id)).metadata == metadata


def test_limits_of_metadata_are_the_servers() -> None:
    assert tuning.METADATA_ENTRIES == limits.MAX_METADATA_ENTRIES
    assert tuning.METADATA_BYTES == limits.MAX_METADATA_BYTES


def test_metadata_of_another_job_takes_the_new_context() -> None:
    metadata = {"tenant": "acme"}
    add_context(metadata, {"traceparent": "old", "tracestate": "old"})
    add_context(metadata, {"traceparent": "new"})
    assert metadata == {"tenant": "acme", "traceparent": "new", ADDED: "traceparent"}
    assert without_context(metadata) == {"tenant": "acme"}


# ------------------------------------------------------------ off


async def test_trace_that_is_not_sampled_is_not_recorded_anywhere(
    traces: Traces, client: pulse.Pulse, running: Running
) -> None:
    has_run = asyncio.Event()

    @client.job("mail")
    async def mail() -> None:
        with traces.tracer.start_as_current_span("smtp"):
            has_run.set()

    dropped = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(0))
    with trace.use_span(NonRecordingSpan(dropped)):
        await mail.enqueue()
    async with running(client):
        await has_run.wait()
    assert traces.spans == []


async def test_application_without_a_provider_sends_no_context(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    @p.job("work")
    async def work() -> None:
        assert trace.get_current_span() is trace.INVALID_SPAN

    job = await p.enqueue("work", metadata={"tenant": "acme"})
    assert dict(fake.stored[job.id].metadata) == {"tenant": "acme"}
    async with running(p):
        fake.deliver("j1", metadata={"traceparent": USERS_TRACE})
        await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].success


def test_nothing_is_missed_where_opentelemetry_is_not_installed(fake: FakePulsed) -> None:
    fake.deliver("j1", metadata={"tenant": "acme", "traceparent": USERS_TRACE, ADDED: "traceparent"})
    printed = run_script(
        """
        import asyncio, sys

        class NotInstalled:
            def find_spec(self, name, *_):
                if name.partition(".")[0] == "opentelemetry":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, NotInstalled())
        import pulse

        async def main():
            async with pulse.Pulse(sys.argv[1]) as p:
                await p.enqueue("work")
                await p.enqueue_many("work", [None, None])

                @p.job("work")
                async def work(ctx: pulse.Context):
                    print(ctx.metadata)
                    worker.cancel()

                worker = asyncio.create_task(p.run())
                await asyncio.wait({worker})

        asyncio.run(main())
        print([name for name in sys.modules if name.startswith("opentelemetry")])
        """,
        fake.address,
    )
    assert printed == "{'tenant': 'acme'}\n[]\n"
    assert len(fake.stored) == 3
    assert fake.results["j1"].success
    assert not any(job.metadata for job in fake.stored.values())


def test_variable_that_opentelemetry_refuses_costs_only_the_traces(
    fake: FakePulsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_PROPAGATORS", "pigeon")
    printed = run_script(
        """
        import logging, sys
        import pulse

        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        with pulse.SyncPulse(sys.argv[1]) as p:
            p.enqueue("work")
            p.enqueue("work")
        """,
        fake.address,
    )
    assert printed.startswith(
        "Jobs are not traced, because OpenTelemetry cannot be loaded: Propagator pigeon"
    )
    assert printed.count("\n") == 1
    assert len(fake.stored) == 2
