"""A trace of a web request that shows its jobs: the spans are printed as they end.

    pip install '.[otel]' opentelemetry-sdk      # in a clone
    pulsed                           # terminal 1: the server
    python examples/tracing.py       # terminal 2: this; the request, and the worker of its jobs

A real application sets its provider in the same way, with an exporter that sends to a collector. pulsed joins
in, with a span for each claim, if OTEL_EXPORTER_OTLP_ENDPOINT has the address of that collector.
Set PULSE_ADDR=host:port if pulsed is not at localhost:50051.
"""

import asyncio
import sys
from datetime import timedelta

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import pulse


def one_line(span: ReadableSpan) -> str:
    """What a collector would draw as a bar under that of the parent."""
    context = span.get_span_context() or trace.INVALID_SPAN_CONTEXT
    parent = f"{span.parent.span_id:016x}" if span.parent else "-"
    return f"trace {context.trace_id:032x}  {context.span_id:016x} under {parent:16}  {span.name}\n"


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=one_line)))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")

p = pulse.Pulse(timeout=timedelta(seconds=3))
has_shipped = asyncio.Event()


@p.job("charge-card")
async def charge_card(order: int) -> None:
    with tracer.start_as_current_span("ask the bank"):  # what a handler does hangs under its run
        await asyncio.sleep(0.1)
    await ship.enqueue(order=order)  # and so do the jobs that it makes


@p.job("ship")
async def ship(order: int) -> None:
    has_shipped.set()


async def main() -> None:
    await p.list_jobs(limit=1)  # ends this example if there is no server; run() would wait for one
    with tracer.start_as_current_span("POST /orders"):
        await charge_card.enqueue(order=1001)

    worker = asyncio.create_task(p.run())  # elsewhere, usually: the context travels with the job
    await has_shipped.wait()
    worker.cancel()  # drains: what runs finishes, and is reported
    await asyncio.wait({worker})
    await p.close()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except pulse.Unavailable as error:
        sys.exit(str(error))
