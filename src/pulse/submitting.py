"""Sends jobs to the server: many callers share one call, and a lost answer is asked for again.

Every job carries an id made before it is first sent, so a repeat inserts nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import grpc.aio

from pulse import failpoints, tuning
from pulse.backoff import Backoff
from pulse.coalescing import Coalescer
from pulse.connection import Connection, is_retryable, no_answer
from pulse.errors import ClientClosed, InvalidArgument, PulseError, error_for_code
from pulse.ids import uuid7
from pulse.lines import Line
from pulse.models import JobHandle
from pulse.v1 import pulse_pb2 as pb

OVERHEAD_BYTES = 64  # id, tags and lengths of one job on the wire


def make_submission(
    topic: str,
    payload: bytes,
    *,
    priority: int = 0,
    delay: timedelta | None = None,
    run_at: datetime | None = None,
    max_attempts: int | None = None,
    key: str | None = None,
    metadata: Mapping[str, str] | None = None,
    job_id: str | None = None,
) -> Submission:
    """Return the job as it will be sent. Raises InvalidArgument for what cannot be said on the wire."""
    if delay is not None and run_at is not None:
        raise InvalidArgument("Give delay or run_at, not both: each says when the job may start.")
    if run_at is not None and run_at.utcoffset() is None:
        raise InvalidArgument(
            f"run_at={run_at!r} has no time zone. Use an aware datetime, such as datetime.now(UTC) + …."
        )
    try:
        request = pb.SubmitJobRequest(
            topic=topic,
            payload=payload,
            priority=priority,
            job_id=job_id or uuid7(),
            idempotency_key="" if key is None else key,
            # protobuf turns these into its own types; its stubs do not know that
            run_at=run_at,  # type: ignore[arg-type]
            delay=delay,  # type: ignore[arg-type]
            max_attempts=max_attempts,
            metadata=metadata,
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(_refused_value(topic, priority, max_attempts, key, metadata, error)) from None
    return Submission(request, id_is_ours=job_id is None)


@dataclass(slots=True)  # not frozen: that would cost more than the rest of making one
class Submission:
    """One job to store."""

    request: pb.SubmitJobRequest
    id_is_ours: bool

    def size(self) -> int:
        return len(self.request.payload) + OVERHEAD_BYTES + len(self.request.topic)

    def inserted(self) -> JobHandle:
        """Return the handle of the job, which was stored as it is."""
        return JobHandle(self.request.job_id, self.request.topic)

    def settle(self, result: pb.SubmitResult) -> JobHandle | PulseError:
        """Return what the server's answer means."""
        return settled(result, self.request.job_id, self.request.topic, id_is_ours=self.id_is_ours)


def settled(
    result: pb.SubmitResult, asked_id: str, topic: str, *, id_is_ours: bool
) -> JobHandle | PulseError:
    """Return what the server's answer for a job means that was sent under this id."""
    if result.HasField("refusal"):
        return error_for_code(result.refusal.code, result.refusal.message)
    # A job under an id that only this call knows was inserted by this call, if by an earlier try of it.
    duplicate = result.duplicate and not (id_is_ours and result.job_id == asked_id)
    return JobHandle(result.job_id, topic, duplicate)


class _Waiting:
    """A caller that waits for its job to be stored."""

    __slots__ = ("answer", "last_error", "submission")

    def __init__(self, submission: Submission, answer: asyncio.Future[JobHandle]) -> None:
        self.submission = submission
        self.answer = answer
        self.last_error: PulseError | None = None

    def settle(self, outcome: JobHandle | PulseError) -> None:
        if self.answer.done():
            return
        if isinstance(outcome, JobHandle):
            self.answer.set_result(outcome)
        else:
            self.answer.set_exception(outcome)


class Submitter:
    """Stores jobs. Concurrent callers share a batch; each has its own deadline and its own answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._line: Line[pb.SubmitJobsResponse] = Line(
            connection, connection.stub.SubmitJobs, connection.stub.StreamSubmits
        )
        self._coalescer: Coalescer[_Waiting] = Coalescer(
            self._send,
            size_of=lambda waiting: waiting.submission.size(),
            most_items=tuning.ENQUEUE_BATCH_JOBS,
            most_bytes=tuning.ENQUEUE_BATCH_BYTES,
            in_flight=tuning.ENQUEUES_IN_FLIGHT,
        )

    async def submit(self, submission: Submission, timeout_seconds: float) -> JobHandle:
        """Store one job. Raises what the server refused it with, or Unavailable once the time is up."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(submission, loop.create_future())
        timer = loop.call_later(timeout_seconds, self._expire, waiting)
        self._coalescer.add(waiting)
        try:
            return await waiting.answer
        finally:
            timer.cancel()

    @failpoints.before("client.submitting")
    @failpoints.after("client.submitted")
    async def submit_together(
        self, message: pb.StreamSubmitsRequest, timeout_seconds: float
    ) -> pb.SubmitJobsResponse:
        """Store the jobs of the message with one call, tried until the time is up. Raises a PulseError."""
        return await self._connection.keep_trying(
            lambda seconds: self._line.call(message, seconds), timeout_seconds
        )

    async def close(self) -> None:
        """Fail what was not sent yet."""
        for waiting in await self._coalescer.close():
            waiting.settle(ClientClosed("The client was closed before the job was sent."))
        await self._line.close()

    async def _send(self, batch: list[_Waiting]) -> None:
        backoff = Backoff(tuning.RETRY_FIRST_SECONDS, tuning.RETRY_LONGEST_SECONDS)
        try:
            # Those whose time is up, or who were cancelled, no longer wait for an answer.
            while batch := [waiting for waiting in batch if not waiting.answer.done()]:
                error = await self._try(batch)
                if error is None:
                    return
                for waiting in batch:
                    waiting.last_error = error
                await asyncio.sleep(backoff.next_seconds())
        except BaseException as error:
            # Without an answer these callers would wait until their deadline for nothing.
            for waiting in batch:
                waiting.settle(ClientClosed("The client was closed while the job was being sent."))
            if not isinstance(error, asyncio.CancelledError | ClientClosed):
                raise

    @failpoints.before("client.submitting")
    @failpoints.after("client.submitted")
    async def _try(self, batch: list[_Waiting]) -> PulseError | None:
        """Send once. Returns the error if it may be tried again; else every caller has its answer."""
        message = pb.StreamSubmitsRequest()
        message.request.brief = True
        message.request.jobs.extend([waiting.submission.request for waiting in batch])
        try:
            response = await self._line.call(message)
        except grpc.aio.AioRpcError as failed:
            error = self._connection.translate(failed)
            if is_retryable(failed):
                return error
            for waiting in batch:
                waiting.settle(type(error)(error.message))
            return None
        if response.all_inserted:
            for waiting in batch:
                waiting.settle(waiting.submission.inserted())
            return None
        for waiting, result in zip(batch, response.results, strict=True):
            waiting.settle(waiting.submission.settle(result))
        return None

    def _expire(self, waiting: _Waiting) -> None:
        waiting.settle(waiting.last_error or no_answer(self._connection.endpoint))


def _refused_value(
    topic: object, priority: object, max_attempts: object, key: object, metadata: object, error: Exception
) -> str:
    """Return a sentence that names the value which protobuf would not take."""
    for name, value, kind in (
        ("topic", topic, str),
        ("priority", priority, int),
        ("max_attempts", max_attempts, int | None),
        ("key", key, str | None),
    ):
        if not isinstance(value, kind):
            return f"{name} has to be {getattr(kind, '__name__', kind)}, but {value!r} was given."
    for name, number in (("priority", priority), ("max_attempts", max_attempts)):
        if isinstance(number, int) and not -(2**31) <= number < 2**31:
            return f"{name}={number} is outside of what 32 bits hold."
    if metadata is not None and not (
        isinstance(metadata, Mapping)
        and all(isinstance(text, str) for item in metadata.items() for text in item)
    ):
        return f"metadata has to map strings to strings, but {metadata!r} was given."
    return f"The job cannot be sent: {error}."
