"""Traces jobs for applications that use OpenTelemetry. Where it is not installed, this does nothing."""

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
    # Its variables are read at import. A wrong one must not keep an application from its jobs.
    _untold = [] if is_missing else [str(problem)]

    def in_enqueue_span(
        job: pb.SubmitJobRequest, count: int, sending: Coroutine[Any, Any, Answer]
    ) -> Coroutine[Any, Any, Answer]:
        if _untold:
            _tell(_untold.pop())
        return sending

    def start_run(assignment: pb.JobAssignment, worker_id: str) -> RunSpan | None:
        if _untold:
            _tell(_untold.pop())
        return None


def _tell(reason: str) -> None:
    logging.getLogger("pulse").warning(
        "Jobs are not traced, because OpenTelemetry cannot be loaded: %s", reason
    )


__all__ = ["in_enqueue_span", "start_run"]
