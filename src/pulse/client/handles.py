"""Handles of a client: how they wait for a job and decode its result."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import grpc.aio

from pulse import tuning
from pulse.error_text import in_a_line
from pulse.errors import PulseError
from pulse.handlers.context import running_context
from pulse.handlers.handler import Handler
from pulse.handlers.registry import Registry
from pulse.jobs.caller import Caller, seconds_of
from pulse.jobs.handles import (
    Answer,
    Awaiting,
    JobCanceled,
    JobFailed,
    JobHandle,
    ResultGone,
    ResultTimeout,
    handles_of,
)
from pulse.jobs.models import JobInfo, JobStatus
from pulse.payload import Decode, result_decoder_for
from pulse.v1 import pulse_pb2 as pb

logger = logging.getLogger("pulse.worker")

Result = TypeVar("Result")


class Handles:
    """Makes the handles of one client: a class for each handler, since each decodes results in its way."""

    def __init__(self, caller: Caller, registry: Registry) -> None:
        self._caller = caller
        self._registry = registry
        self._known: dict[str, tuple[Handler, type[JobHandle[Any]]]] = {}
        self._plain: type[JobHandle[Any]] | None = None

    def of(self, handler: Handler | None) -> type[JobHandle[Any]]:
        """Return the class of the handles of this handler's jobs, or of jobs without a known handler."""
        if handler is None:
            if self._plain is None:
                self._plain = handles_of(HandleSource(self._caller, self._registry, None))
            return self._plain
        known = self._known.get(handler.topic)
        if known is None or known[0] is not handler:
            handles = handles_of(HandleSource(self._caller, self._registry, handler))
            known = self._known[handler.topic] = handler, handles
        return known[1]

    def made(
        self, job_id: str, topic: str, duplicate: bool = False, replaced: bool = False
    ) -> JobHandle[Any]:
        """Return the handle of a job of this topic."""
        return self.of(self._registry.get(topic))(job_id, topic, duplicate, replaced)


class HandleSource:
    """Waits for the jobs of one client and one handler. See pulse.jobs.handles.Source."""

    def __init__(self, caller: Caller, registry: Registry, handler: Handler | None) -> None:
        self._caller = caller
        self._registry = registry
        self._handler = handler
        self._decode: Decode | None = None
        self._warned: set[tuple[str, str]] = set()

    def wait(self, handle: JobHandle[Any], timeout: timedelta | None) -> Coroutine[Any, Any, JobInfo]:
        return self._blocking_in_handler_threads(handle, self.wait_here(handle, timeout))

    def result(self, handle: JobHandle[Any], timeout: timedelta | None) -> Coroutine[Any, Any, Any]:
        return self._blocking_in_handler_threads(handle, self.result_here(handle, timeout))

    async def wait_here(self, handle: JobHandle[Any], timeout: timedelta | None) -> JobInfo:
        """Return the finished job. Raises ResultTimeout and ResultGone."""
        awaiting = self.awaiting()
        if handle.id in awaiting.answered:
            return job_of(handle.id, awaiting.answered[handle.id])
        seconds = None if timeout is None else seconds_of("timeout", timeout)
        answer = self.begin(awaiting, handle.id)
        try:
            # Not wait_for, which cancels the future that others may share.
            await asyncio.wait({answer}, timeout=seconds)
        finally:
            awaiting.end(handle.id, answer)
        if not answer.done():
            raise await self.timed_out(f"Job {handle.id} has not finished after {timeout}.", handle)
        return job_of(handle.id, answer.result())

    async def timed_out(
        self, sentence: str, handle: JobHandle[Any], otherwise: str = "It goes on."
    ) -> ResultTimeout:
        """Return the error of a wait that ended early. It states if no worker takes this job."""
        connection = self._caller.session().connection
        request = pb.GetJobRequest(job_id=handle.id)
        note = ""
        with contextlib.suppress(grpc.aio.AioRpcError, PulseError):  # no reason can be found
            response = await connection.try_once(connection.stub.GetJob, request, tuning.AWAIT_REASON_SECONDS)
            note = response.job.no_worker
        return ResultTimeout(f"{sentence} {note or otherwise}")

    async def result_here(self, handle: JobHandle[Any], timeout: timedelta | None) -> Any:
        """Return the result of the job. Raises JobFailed and JobCanceled as well."""
        return self.result_of(await self.wait_here(handle, timeout))

    def result_of(self, job: JobInfo) -> Any:
        """Return the result of a finished job. Raises JobFailed and JobCanceled."""
        if job.status is JobStatus.DEAD_LETTERED:
            raise JobFailed(job)
        if job.status is JobStatus.CANCELED:
            raise JobCanceled(job)
        if job.result_bytes is None:
            return None
        if self._decode is None:
            self._decode = result_decoder_for(Any if self._handler is None else self._handler.returns)
        return self._decode(job.result_bytes)

    def awaiting(self) -> Awaiting:
        """Return what waits in the running event loop."""
        return self._caller.session().awaiting

    def begin(self, awaiting: Awaiting, job_id: str) -> asyncio.Future[Answer]:
        return awaiting.begin(job_id, self._caller.seconds(None))

    def warn_in_handler(self, topic: str) -> None:
        """Warn if a handler waits for a job that only its own worker may be there to run."""
        context = running_context()
        if context is None or not self._registry.is_serving or self._registry.get(topic) is None:
            return
        if (context.topic, topic) not in self._warned:
            self._warned.add((context.topic, topic))
            logger.warning(
                "The handler of %s waits for a job of %s, which the same worker serves. It keeps its slot "
                "meanwhile: when all slots wait, no job runs. Let the handler of %s enqueue what comes next, "
                "raise pulse.Snooze until the job has finished, or serve the topics with different workers.",
                *map(in_a_line, (context.topic, topic, topic)),
            )

    def _blocking_in_handler_threads(
        self, handle: JobHandle[Any], coroutine: Coroutine[Any, Any, Result]
    ) -> Coroutine[Any, Any, Result]:
        self.warn_in_handler(handle.topic)
        if running_context() is None or asyncio._get_running_loop() is not None:
            return coroutine
        result: Any = self._caller.run_in_thread(coroutine)
        return result  # type: ignore[no-any-return]


def job_of(job_id: str, answer: Answer) -> JobInfo:
    """Return the finished job of an answer. Raises ResultGone, or the error that ended the wait."""
    if answer is None:
        raise ResultGone(job_id)
    if isinstance(answer, PulseError):
        raise copy.copy(answer)  # each raise extends the traceback of the error that it raises
    return answer
