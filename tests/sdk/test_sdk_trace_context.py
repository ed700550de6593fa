"""The trace context in a job's metadata, and applications that do not trace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

import pulse
from pulse import tuning
from pulse.tracing import ADDED, add_context, without_context
from pulse_server.base import bounds
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.scripts import run_script
from tests.sdk.traces import Traces
from tests.transport.pulse_server_under_test import ServerUnderTest

USERS_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def client(traces: Traces, server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    """A client of a real server, both in this process, which traces."""
    async with pulse.Pulse(server.address, worker_id="w1", drain_timeout=timedelta(seconds=5)) as client:
        yield client


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
    many = {str(number): "" for number in range(bounds.MAX_METADATA_ENTRIES)}
    large = {"k": "v" * (bounds.MAX_METADATA_BYTES - 1)}
    for metadata in many, large:
        job = await client.enqueue("mail", metadata=metadata)
        assert (await client.get_job(job.id)).metadata == metadata


def test_limits_of_metadata_are_the_servers() -> None:
    assert tuning.METADATA_ENTRIES == bounds.MAX_METADATA_ENTRIES
    assert tuning.METADATA_BYTES == bounds.MAX_METADATA_BYTES


def test_metadata_of_another_job_takes_the_new_context() -> None:
    metadata = {"tenant": "acme"}
    add_context(metadata, {"traceparent": "old", "tracestate": "old"})
    add_context(metadata, {"traceparent": "new"})
    assert metadata == {"tenant": "acme", "traceparent": "new", ADDED: "traceparent"}
    assert without_context(metadata) == {"tenant": "acme"}


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
