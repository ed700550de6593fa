"""The spans that were recorded, for tests that ask about them."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.sdk.fake_pulsed import PATIENCE_SECONDS


class Traces:
    """What was recorded so far, and a tracer to stand for the application's own spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("tests")

    @property
    def spans(self) -> list[ReadableSpan]:
        """Those that have ended, in the order in which they started."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    async def ended(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """Return the spans of that name once there are that many."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found := self.named(name)) < count:
            assert time.monotonic() < deadline, f"not {count} × {name!r} in {self.spans}"
            await asyncio.sleep(0.005)
        return found


@cache
def _of_this_process() -> Traces:
    # Tracers that were handed out keep to their provider, so there can be but one.
    return Traces()


@contextmanager
def traces_recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    """Make this process trace. OpenTelemetry knows no way back, but the tests that follow want one."""
    traces = _of_this_process()
    traces.exporter.clear()
    with monkeypatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", traces.provider)
        assert trace.get_tracer_provider() is traces.provider
        yield traces


def trace_ids(*spans: ReadableSpan) -> set[int]:
    return {span.get_span_context().trace_id for span in spans}


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == parent.get_span_context().span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
