"""One trace across a program that enqueues, pulsed, and a worker, each with an exporter of its own."""

import asyncio
import json
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.system.stage import Process, Pulsed, Stage

# Instead of the real exporter, which is not installed here. The endpoint is a file.
EXPORTER = """
import os
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

class OTLPSpanExporter(SpanExporter):
    def export(self, spans):
        with open(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], "a") as file:
            file.writelines(span.to_json(indent=None) + "\\n" for span in spans)
        return SpanExportResult.SUCCESS
"""
STUCK_EXPORTER = """
import threading
from opentelemetry.sdk.trace.export import SpanExporter

class OTLPSpanExporter(SpanExporter):
    def export(self, spans):
        threading.Event().wait()
"""

PROGRAM = """
import asyncio, sys
import pulse
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
"""
PRODUCER = PROGRAM + textwrap.dedent(
    """
    with pulse.SyncPulse(sys.argv[1]) as p, trace.get_tracer("web").start_as_current_span("POST /orders"):
        p.enqueue("mail")
    """
)
WORKER = PROGRAM + textwrap.dedent(
    """
    p = pulse.Pulse(sys.argv[1])

    @p.job("mail")
    def mail(): ...

    asyncio.run(p.run())
    """
)


class Collector:
    """The directory of an exporter, and the spans that processes have exported with it."""

    def __init__(self, directory: Path, exporter: str = EXPORTER) -> None:
        self._file = directory / "spans"
        module = directory / "exporter/opentelemetry/exporter/otlp/proto/http/trace_exporter.py"
        module.parent.mkdir(parents=True)
        module.write_text(exporter)
        self.environment = {
            "PYTHONPATH": os.pathsep.join([str(directory / "exporter"), *filter(None, sys.path)]),
            "OTEL_EXPORTER_OTLP_ENDPOINT": str(self._file),
        }

    @property
    def spans(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []
        )

    def named(self, name: str) -> dict[str, Any]:
        (span,) = [span for span in self.spans if span["name"] == name]
        return span


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    return Collector(tmp_path)


def start(stage: Stage, name: str, source: str, address: str, collector: Collector) -> Process:
    log = stage.directory / f"{name}.log"
    process = Process(name, log, ["-c", source, address], collector.environment)
    stage.processes.append(process)
    return process


def warnings(server: Pulsed) -> list[dict[str, Any]]:
    return [event for event in server.events if event["level"] == "warning"]


async def stopped(server: Pulsed) -> None:
    server.signal(signal.SIGTERM)
    assert await server.ended() == 0


async def test_trace_goes_through_three_processes(stage: Stage, collector: Collector) -> None:
    server = await stage.pulsed(**collector.environment)
    worker = start(stage, "worker", WORKER, server.address, collector)
    producer = start(stage, "producer", PRODUCER, server.address, collector)
    assert await producer.ended() == 0, producer.log
    await eventually(lambda: any(span["name"] == "report mail" for span in collector.spans), "it is reported")
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    await stopped(server)  # it exports the remaining spans now

    names = ("POST /orders", "enqueue mail", "claim mail", "run mail", "report mail")
    request, enqueue, claim, run, report = (collector.named(name) for name in names)
    assert len({span["context"]["trace_id"] for span in (request, enqueue, claim, run, report)}) == 1
    assert enqueue["parent_id"] == request["context"]["span_id"]
    assert claim["parent_id"] == enqueue["context"]["span_id"]
    assert run["parent_id"] == enqueue["context"]["span_id"]
    assert report["parent_id"] == run["context"]["span_id"]
    assert claim["resource"]["attributes"]["service.name"] == "pulsed"
    assert not warnings(server)


async def test_service_has_the_name_that_it_is_given(stage: Stage, collector: Collector) -> None:
    server = await stage.pulsed(**collector.environment, OTEL_SERVICE_NAME="queue")
    start(stage, "worker", WORKER, server.address, collector)
    start(stage, "producer", PRODUCER, server.address, collector)
    await eventually(lambda: any(span["name"] == "report mail" for span in collector.spans), "it is reported")
    await stopped(server)
    assert collector.named("claim mail")["resource"]["attributes"]["service.name"] == "queue"


async def test_exit_does_not_wait_for_a_collector_that_is_stuck(stage: Stage, tmp_path: Path) -> None:
    working, stuck = Collector(tmp_path / "a"), Collector(tmp_path / "b", STUCK_EXPORTER)
    server = await stage.pulsed(**stuck.environment)
    start(stage, "worker", WORKER, server.address, working)
    start(stage, "producer", PRODUCER, server.address, working)
    await eventually(lambda: any(span["name"] == "report mail" for span in working.spans), "it is reported")
    await stopped(server)
    assert [event["event"] for event in warnings(server)] == ["traces_lost"]


async def test_exporter_that_is_not_installed_is_a_warning(stage: Stage) -> None:
    server = await stage.pulsed(OTEL_EXPORTER_OTLP_ENDPOINT="http://localhost:4318")
    (warning,) = warnings(server)
    assert warning["event"] == "traces_not_exported"
    assert (
        "OTEL_EXPORTER_OTLP_ENDPOINT is set, but opentelemetry.exporter is not installed" in warning["reason"]
    )


async def test_unknown_protocol_is_a_warning_with_the_known_ones(stage: Stage, collector: Collector) -> None:
    server = await stage.pulsed(**collector.environment | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})
    (warning,) = warnings(server)
    assert warning["event"] == "traces_not_exported"
    assert warning["reason"] == "OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json': give grpc or http/protobuf."


async def test_variable_that_opentelemetry_refuses_is_a_warning(stage: Stage, collector: Collector) -> None:
    server = await stage.pulsed(**collector.environment, OTEL_PROPAGATORS="pigeon")
    (warning,) = warnings(server)
    assert warning["event"] == "claims_not_traced"
    assert "Propagator pigeon not found" in warning["reason"]
    assert len(server.events) == len(server.log.splitlines())


async def test_existing_provider_is_kept(stage: Stage, collector: Collector) -> None:
    """As under opentelemetry-instrument, which sets one before pulsed starts."""
    log = stage.directory / "instrumented.log"
    source = PROGRAM + "import pulse_server.main; sys.exit(pulse_server.main.main())"
    environment = {"DB_HOST": stage.dsn, "PULSE_GRPC_ADDR": "127.0.0.1:0", **collector.environment}
    server = Pulsed("instrumented", log, ["-c", source], environment)
    stage.processes.append(server)
    await stage.serving(server)
    address = next(event["address"] for event in server.events if event["event"] == "serving")
    start(stage, "worker", WORKER, address, collector)
    start(stage, "producer", PRODUCER, address, collector)
    await eventually(lambda: any(span["name"] == "claim mail" for span in collector.spans), "it is claimed")
    await stopped(server)
    assert all(event["event"] != "exporting_traces" for event in server.events)


async def test_pulsed_serves_where_opentelemetry_is_not_installed(stage: Stage) -> None:
    (stage.directory / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import sys

            class NotInstalled:
                def find_spec(self, name, *_):
                    if name.partition(".")[0] == "opentelemetry":
                        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

            sys.meta_path.insert(0, NotInstalled())
            """
        )
    )
    path = os.pathsep.join([str(stage.directory), *filter(None, sys.path)])
    server = await stage.pulsed(PYTHONPATH=path)
    assert not warnings(server)
    asked = await stage.pulsed(PYTHONPATH=path, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://localhost:4318")
    (warning,) = warnings(asked)
    assert "opentelemetry is not installed. Install opentelemetry-api, " in warning["reason"]
    await asyncio.gather(stopped(server), stopped(asked))
