"""Traces jobs for applications that use OpenTelemetry. Does nothing if it is not installed."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pulse.tracing.spans import RunSpan
    from pulse.v1 import pulse_pb2 as pb

Answer = TypeVar("Answer")

try:
    from pulse.tracing.spans import in_enqueue_span, start_run
except Exception as problem:
    is_missing = isinstance(problem, ModuleNotFoundError) and str(problem.name).startswith("opentelemetry")
    # OpenTelemetry reads its variables at import. An invalid one must not stop the application.
    _not_logged = [] if is_missing else [str(problem)]

    def in_enqueue_span(
        job: pb.SubmitJobRequest, count: int, sending: Coroutine[Any, Any, Answer]
    ) -> Coroutine[Any, Any, Answer]:
        if _not_logged:
            _warn(_not_logged.pop())
        return sending

    def start_run(assignment: pb.JobAssignment, worker_id: str) -> RunSpan | None:
        if _not_logged:
            _warn(_not_logged.pop())
        return None


def _warn(reason: str) -> None:
    logging.getLogger("pulse").warning(
        "Jobs are not traced, because OpenTelemetry cannot be loaded: %s", reason
    )


__all__ = ["in_enqueue_span", "start_run"]
