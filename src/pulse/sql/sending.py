"""Runs the statement of an enqueue within the middleware and the trace of the application."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias, TypeVar

from pulse import connections
from pulse.blocking.enqueue_middleware import surround_blocking
from pulse.blocking.job_decorator import SyncJob
from pulse.connections import Row, Statement
from pulse.decorators import Job
from pulse.errors import InvalidMiddleware
from pulse.handlers.registry import Enqueue, EnqueueMiddleware, surround
from pulse.tracing.optional import in_enqueue_span
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.redirection import check_database

Answer = TypeVar("Answer")
AnyJob: TypeAlias = Job[..., ..., Any] | SyncJob[..., ..., Any]


def send(
    connection: Any,
    job: AnyJob | str,
    request: pb.SubmitJobRequest,
    payloads: Sequence[bytes],
    statement: Callable[[], Statement],
    read: Callable[[Row], Answer],
    *,
    wakes: bool,
) -> Any:
    """Run the statement within the middleware of the job's client. Returns the answer, or an awaitable of it.

    The statement is made last: middleware may change the request. With `wakes` the commit wakes servers.
    """
    check_database()
    is_async = connections.is_async(connection)

    async def store() -> Answer:
        if is_async:
            row = await connections.fetch_async(connection, statement())
        else:
            row = connections.fetch(connection, statement())
        if wakes and not isinstance(job, str):
            connections.call_after_commit(connection, job._client._wake)
        return read(row)

    def in_span() -> Coroutine[Any, Any, Answer]:
        return in_enqueue_span(request, len(payloads), store())

    def surrounded() -> Coroutine[Any, Any, Answer]:
        chain = [] if isinstance(job, str) else job._async_middleware
        return surround(chain, [request], payloads, in_span) if chain else in_span()

    blocking: Sequence[EnqueueMiddleware] = (
        job._client._enqueue_middleware if isinstance(job, SyncJob) else []
    )
    if is_async and blocking:
        raise InvalidMiddleware(
            "The middleware of a SyncPulse cannot surround an enqueue with an async connection: use a Pulse."
        )
    if is_async:
        return surrounded()
    if blocking:
        around = Enqueue(request.topic, payloads, dict(request.metadata), request.priority)
        return surround_blocking(blocking, around, lambda: finished(surrounded()))
    return finished(surrounded())


def finished(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine that has nothing to wait for: the connection blocks."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer
    coroutine.close()
    raise InvalidMiddleware(
        "Middleware of enqueue awaited something besides `call_next()`, which the connection of this enqueue "
        "does not allow, since it blocks: use an async connection, or a SyncPulse."
    )
