"""The spans of enqueue, run and report. Needs OpenTelemetry; import `optional`, which does not.

The application configures providers, samplers and exporters. The job's metadata carries the context of the
enqueue, so that the run belongs to the same trace in any process (docs/figures.md#traces).
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from pulse.outcomes import Discard, Failed, Outcome, Retry, Snoozed, Suspended
from pulse.tracing import add_context
from pulse.v1 import pulse_pb2 as pb

Answer = TypeVar("Answer")
Attributes = dict[str, AttributeValue]

# Follows the application's provider, whether it is set before or after the import.
_tracer = trace.get_tracer("pulse")
_NOTHING = Context()


def in_enqueue_span(
    job: pb.SubmitJobRequest, count: int, sending: Coroutine[Any, Any, Answer]
) -> Coroutine[Any, Any, Answer]:
    """Start a span, add its context to the job, and return `sending` wrapped in the span.

    If `count` is not 1, the job is the template of this many jobs.
    """
    if not _is_configured():
        return sending
    topic = job.topic
    attributes = _attributes("enqueue", "send", topic)
    if count == 1 and job.job_id:
        attributes["messaging.message.id"] = job.job_id
    elif count != 1:
        attributes["messaging.batch.message_count"] = count
    span = _tracer.start_span(f"enqueue {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
    # Also if the span is not sampled: without a context the worker would start a new trace.
    if span.get_span_context().is_valid:
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        add_context(job.metadata, carrier)
    return _spanned(span, sending) if span.is_recording() else sending


def start_run(assignment: pb.JobAssignment, worker_id: str) -> RunSpan | None:
    """Start the span of a run and make it current in this task, which runs nothing else.

    Returns None if it is not recorded.
    """
    if not _is_configured():
        return None
    # A job without a context starts a new trace, even if run() itself is in one.
    parent = propagate.extract(assignment.metadata, _NOTHING) if assignment.metadata else _NOTHING
    attributes: Attributes = {
        "messaging.message.id": assignment.job_id,
        "pulse.job.attempt": assignment.attempt,
        "pulse.job.max_attempts": assignment.max_attempts,
        "pulse.worker.id": worker_id,
    }
    topic = assignment.topic
    span = _tracer.start_span(
        f"run {topic}", parent, SpanKind.CONSUMER, _attributes("run", "process", topic) | attributes
    )
    contexts.attach(trace.set_span_in_context(span, parent))
    return RunSpan(span, topic, attributes) if span.is_recording() else None


class RunSpan:
    """The span of one run, followed by the span of its report."""

    __slots__ = ("_attributes", "_report", "_span", "_topic")

    def __init__(self, span: Span, topic: str, attributes: Attributes) -> None:
        self._span = span
        self._topic = topic
        self._attributes = attributes
        self._report: Span | None = None

    def fail(self, error: BaseException, outcome: Failed) -> None:
        """Record the error of the handler."""
        sentence = outcome.error.partition("\n")[0]
        if isinstance(error, Retry):
            self._span.set_attribute("pulse.job.outcome", "retry")
            self._span.add_event("retry", {"reason": sentence})
        elif isinstance(error, Discard):
            self._span.set_attribute("pulse.job.outcome", "discarded")
            self._span.set_status(StatusCode.ERROR, sentence)
        else:
            self._span.set_attribute("pulse.job.outcome", "failed")
            _fail(self._span, error, sentence)

    def end(self, outcome: Outcome | None, stop_reason: str) -> None:
        """End the span. Starts the span of the report, if there is an outcome to report."""
        now = time.time_ns()
        if stop_reason or outcome is None:
            self._span.set_attribute("pulse.job.outcome", "cancelled")
            self._span.add_event("cancelled", {"reason": stop_reason or "the worker stops"})
        elif isinstance(outcome, Snoozed):
            self._span.set_attribute("pulse.job.outcome", "snoozed")
            self._span.add_event("snoozed", {"reason": outcome.reason})
        elif isinstance(outcome, Suspended):
            self._span.set_attribute("pulse.job.outcome", "suspended")
            self._span.add_event("suspended", {"step": outcome.step})
        elif not isinstance(outcome, Failed):
            self._span.set_attribute("pulse.job.outcome", "succeeded")
        self._span.end(now)
        if outcome is not None and not stop_reason:
            self._report = _tracer.start_span(
                f"report {self._topic}",
                trace.set_span_in_context(self._span, _NOTHING),
                SpanKind.CLIENT,
                _attributes("report", "settle", self._topic) | self._attributes,
                start_time=now,
            )

    def reported(self, problem: str = "") -> None:
        """End the span of the report, with the problem if the server did not accept it."""
        report, self._report = self._report, None
        if report is not None:
            if problem:
                report.set_status(StatusCode.ERROR, problem)
            report.end()


async def _spanned(span: Span, sending: Coroutine[Any, Any, Answer]) -> Answer:
    try:
        answer = await sending
        if (job_id := getattr(answer, "id", None)) is not None:  # a handle; of several jobs there is a list
            span.set_attribute("messaging.message.id", job_id)
        if getattr(answer, "duplicate", False):
            span.set_attribute("pulse.job.duplicate", True)
        return answer
    except BaseException as error:
        _fail(span, error, f"{type(error).__qualname__}: {error}")
        raise
    finally:
        span.end()


def _fail(span: Span, error: BaseException, sentence: str) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, sentence)


def _attributes(name: str, kind: str, topic: str) -> Attributes:
    return {
        "messaging.system": "pulse",
        "messaging.destination.name": topic,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }


def _is_configured() -> bool:
    # The public get_tracer_provider() costs 1.6 µs for each job of an application that does not trace, this
    # 0.1 µs. If a later version drops the name, the result is always True, and only the speed is lost.
    return getattr(trace, "_TRACER_PROVIDER", True) is not None
