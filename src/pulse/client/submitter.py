"""Sends jobs to the server: concurrent callers share a call, and a call without an answer is repeated.

Every job has its id before it is first sent, so a repeat stores nothing twice.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from operator import attrgetter

import grpc.aio

from pulse import failpoints, tuning
from pulse.client.submissions import Outcome, Submission, message_of, outcomes_of
from pulse.errors import ClientClosed, PulseError
from pulse.models.job_handle import JobHandle
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import JitteredBackoff, is_refused_for_now, is_retryable
from pulse.wire.streams import Coalescer, Line, batch_bounds


class Submitter:
    """Stores jobs. Concurrent callers share a batch; each has its own timeout and its own answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._columns_from = 0.0
        self._loop = asyncio.get_running_loop()
        self._waiting: set[_Waiting] = set()
        # One timer for all callers: one for each would cost more than the rest of the wait.
        self._next_expiry = math.inf
        self._expiry: asyncio.TimerHandle | None = None
        self._line: Line[pb.SubmitJobsResponse] = Line(
            connection, connection.stub.SubmitJobs, connection.stub.StreamSubmits
        )
        self._coalescer: Coalescer[_Waiting] = Coalescer(
            self._send,
            size_of=attrgetter("submission.size"),
            most_items=tuning.ENQUEUE_BATCH_JOBS,
            most_bytes=tuning.ENQUEUE_BATCH_BYTES,
            in_flight=tuning.ENQUEUES_IN_FLIGHT,
        )

    async def submit(self, submission: Submission, timeout_seconds: float) -> JobHandle:
        """Store one job. Raises the server's error, or Unavailable at the timeout."""
        deadline = self._loop.time() + timeout_seconds
        waiting = _Waiting(submission, self._loop.create_future(), deadline)
        self._waiting.add(waiting)
        if deadline < self._next_expiry:
            self._expire_at(deadline)
        self._coalescer.add(waiting)
        try:
            return await waiting.answer
        finally:
            self._waiting.discard(waiting)

    async def submit_all(self, submissions: Sequence[Submission], timeout_seconds: float) -> list[Outcome]:
        """Store the jobs, in batches. Returns a handle or the error for each.

        Unique jobs have to come last. A batch without an answer raises a PulseError; later batches are
        not sent. `timeout_seconds` bounds each batch.
        """
        outcomes: list[Outcome] = []
        sizes = (submission.size for submission in submissions)
        for begin, end in batch_bounds(sizes, tuning.ENQUEUE_BATCH_JOBS, tuning.ENQUEUE_BATCH_BYTES):
            batch = submissions[begin:end]
            outcomes += outcomes_of(batch, await self.submit_together(message_of(batch), timeout_seconds))
        return outcomes

    @failpoints.before("client.submitting")
    @failpoints.after("client.submitted")
    async def submit_together(
        self, message: pb.StreamSubmitsRequest, timeout_seconds: float
    ) -> pb.SubmitJobsResponse:
        """Store the jobs of the message with one call, retried until the timeout. Raises a PulseError."""
        response = await self._connection.keep_trying(
            lambda seconds: self._line.call(message, seconds), timeout_seconds, also=is_refused_for_now
        )
        self._connection.unserved.warn(response.no_worker)
        return response

    def may_send_columns(self) -> bool:
        """True unless a server ignored them a short time ago."""
        return self._loop.time() >= self._columns_from

    def columns_were_ignored(self) -> None:
        """Do without columns for a while: this server is of a version without them, and stored nothing."""
        self._columns_from = self._loop.time() + tuning.COLUMNS_REST_SECONDS

    async def close(self) -> None:
        """Fail the jobs that were not sent."""
        for waiting in await self._coalescer.close():
            waiting.settle(ClientClosed("The client was closed before the job was sent."))
        if self._expiry is not None:
            self._expiry.cancel()
        await self._line.close()

    async def _send(self, batch: list[_Waiting]) -> None:
        try:
            async for _ in JitteredBackoff(tuning.RETRY_FIRST_SECONDS, tuning.RETRY_LONGEST_SECONDS):
                # Callers that were canceled or timed out no longer wait.
                batch = [waiting for waiting in batch if not waiting.answer.done()]
                if not batch or (error := await self._try(batch)) is None:
                    return
                for waiting in batch:
                    waiting.last_error = error
        except BaseException as error:
            # Otherwise these callers would wait until their timeout.
            for waiting in batch:
                waiting.settle(ClientClosed("The client was closed while the job was being sent."))
            if not isinstance(error, asyncio.CancelledError | ClientClosed):
                raise

    @failpoints.before("client.submitting")
    @failpoints.after("client.submitted")
    async def _try(self, batch: list[_Waiting]) -> PulseError | None:
        """Send once. Returns an error that may be retried; otherwise every caller has its answer."""
        batch = sorted(batch, key=attrgetter("submission.is_unique"))
        submissions = [waiting.submission for waiting in batch]
        try:
            response = await self._line.call(message_of(submissions))
        except grpc.aio.AioRpcError as failed:
            error = self._connection.translate(failed)
            if is_retryable(failed) or is_refused_for_now(failed):
                return error
            for waiting in batch:
                waiting.settle(type(error)(error.message))
            return None
        for waiting, outcome in zip(batch, outcomes_of(submissions, response), strict=True):
            waiting.settle(outcome)
        self._connection.unserved.warn(response.no_worker)
        return None

    def _expire_at(self, moment: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._next_expiry = moment
        self._expiry = self._loop.call_at(moment, self._expire)

    def _expire(self) -> None:
        """Fail the callers whose timeouts have passed. The timer is set to the next one."""
        now = max(self._loop.time(), self._next_expiry)  # the loop may be early by its clock's resolution
        self._expiry, self._next_expiry = None, math.inf
        for waiting in self._waiting:
            if waiting.deadline <= now:
                waiting.settle(waiting.last_error or self._connection.out_of_time())
        if later := [waiting.deadline for waiting in self._waiting if waiting.deadline > now]:
            self._expire_at(min(later))


class _Waiting:
    """A caller that waits for its job to be stored."""

    __slots__ = ("answer", "deadline", "last_error", "submission")

    def __init__(self, submission: Submission, answer: asyncio.Future[JobHandle], deadline: float) -> None:
        self.submission = submission
        self.answer = answer
        self.deadline = deadline
        self.last_error: PulseError | None = None

    def settle(self, outcome: Outcome) -> None:
        if self.answer.done():
            return
        if isinstance(outcome, PulseError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)
