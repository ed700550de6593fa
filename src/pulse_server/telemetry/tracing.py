"""The span of a claim, in the trace that the job carries with it (docs/adr/0023).

Only where OpenTelemetry is installed and a provider was set, by exporting.py or by opentelemetry-instrument.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pulse_server.jobs.rules import ClaimedJob

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
except ModuleNotFoundError:
    IS_INSTALLED = False
else:
    IS_INSTALLED = True

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

log = logging.getLogger(__name__)


def claim_spans() -> ClaimSpans | None:
    """The recorder of claims, or None if no provider is set."""
    if not IS_INSTALLED:
        return None
    try:
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return None
        return ClaimSpans(trace.get_tracer("pulse"))
    except Exception as error:  # such as OTEL_PROPAGATORS with one that is not installed
        log.warning("claims_not_traced", extra={"reason": f"OpenTelemetry cannot be used: {error}"})
        return None


class ClaimSpans:
    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry import propagate  # reads its variables when it is loaded, and refuses wrong ones

        self._tracer = tracer
        self._propagator = propagate.get_global_textmap()
        self._carriers = frozenset(self._propagator.fields)
        self._nothing = Context()

    def record(self, jobs: Iterable[ClaimedJob], sent_at: int) -> None:
        """Record a claim in the trace of each job that has one and is sampled: from its start until now."""
        answered_at = time.time_ns()
        try:
            for job in jobs:
                if job.metadata is not None and not self._carriers.isdisjoint(job.metadata):
                    self._record(job, job.metadata, sent_at, answered_at)
        except Exception:  # of a third-party propagator or processor: the jobs are claimed and must be sent
            log.exception("claim_not_traced")

    def _record(self, job: ClaimedJob, carrier: Mapping[str, str], sent_at: int, answered_at: int) -> None:
        if _is_dropped(carrier.get("traceparent", "")):
            return
        parent = self._propagator.extract(carrier, self._nothing)
        if not trace.get_current_span(parent).get_span_context().trace_flags.sampled:
            return
        # Internal: on a map of services, the producer talks to the worker.
        span = self._tracer.start_span(
            f"claim {job.topic}",
            parent,
            trace.SpanKind.INTERNAL,
            {
                "messaging.system": "pulse",
                "messaging.destination.name": job.topic,
                "messaging.operation.name": "claim",
                "messaging.operation.type": "receive",
                "messaging.message.id": job.id,
                "pulse.job.attempt": job.attempt,
                "pulse.job.max_attempts": job.max_attempts,
                "pulse.job.waited_seconds": job.waited_seconds,
                "pulse.worker.id": job.worker_id,
            },
            start_time=sent_at,
        )
        span.end(answered_at)


def _is_dropped(traceparent: str) -> bool:
    """Whether the flags of a W3C context show that its trace is not sampled.

    In production most are not, and to read one in full takes 10 µs.
    """
    return len(traceparent) == 55 and traceparent[-1] in "02468ace"
