"""The result of an enqueue: a stored job, how to wait for it, and the errors of jobs.

All waits of a client share one stream, which is opened again whenever it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

import grpc
import grpc.aio
import msgspec

from pulse import tuning
from pulse.errors import ClientClosed, InternalError, NotFound, PulseError, ResourceExhausted, Unavailable
from pulse.jobs.models import Attempt, JobInfo, job_info
from pulse.messages import existing_id
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import is_ended_for_now
from pulse.wire.streams import Patience, StreamError, reconnecting_stream

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", covariant=True, default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R", covariant=True)


class Source(Protocol):
    """The client that a handle came from, and how it decodes the result."""

    def wait(self, handle: JobHandle[Any], timeout: timedelta | None) -> Coroutine[Any, Any, JobInfo]: ...

    def result(self, handle: JobHandle[Any], timeout: timedelta | None) -> Coroutine[Any, Any, Any]: ...


# A struct and not a dataclass: enqueue_many makes thousands, and a frozen dataclass takes ten times as long.
class JobHandle(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A stored job. `R` is what its handler returns."""

    # On the class, with a subclass for each client: a field would be encoded, compared and stored
    # for each job.
    _source: ClassVar[Source | None] = None

    id: str
    topic: str
    duplicate: bool = False
    """True if the job existed before: the same key or `job_id` was used earlier, or it holds the unique key.

    A repeat that the SDK sent after a lost answer is not a duplicate.
    """
    replaced: bool = False
    """True for a duplicate that took the arguments and options of this enqueue."""
    submitted_at: datetime | None = None
    """When the job was stored, by the database's clock; of a duplicate, when that job was.

    Jobs that were stored together share the moment of the first: `JobInfo.submitted_at` may be some
    milliseconds later. None for a handle that no enqueue returned, and for jobs of workflows and of your own
    transactions.
    """

    def result(self, timeout: timedelta | None = None) -> Coroutine[Any, Any, R]:
        """Wait until the job has completed, and return what its handler returned.

        Raises JobFailed if it became a dead letter, JobCanceled, ResultGone if it is not stored any more, and
        ResultTimeout. Without `timeout` it waits for as long as the job takes. In a `def` handler it blocks.
        """
        return source_of(self).result(self, timeout)

    def wait(self, timeout: timedelta | None = None) -> Coroutine[Any, Any, JobInfo]:
        """Wait until the job has finished, whatever the outcome, and return it without its payload.

        Raises ResultGone if it is not stored any more, and ResultTimeout. In a `def` handler it blocks.
        """
        return source_of(self).wait(self, timeout)

    def __eq__(self, other: object) -> bool:
        return _fields(self) == _fields(other) if isinstance(other, JobHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(_fields(self))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return JobHandle, (*_fields(self), self.submitted_at)


def source_of(handle: JobHandle[Any]) -> Source:
    """Return the client of the handle. Raises ClientClosed if it has none."""
    if handle._source is None:
        raise ClientClosed(
            f"The handle of job {handle.id} has no client, since it was made by hand or pickled: "
            "use p.handle(job_id)."
        )
    return handle._source


def handles_of(source: object, base: type[Any] = JobHandle) -> type[Any]:
    """Return the class of the handles that wait by this source."""
    named = {"_source": source, "__module__": base.__module__, "__doc__": base.__doc__}
    meta: Any = type(base)
    made: type[Any] = meta(base.__name__, (base,), named, frozen=True, gc=False)
    return made


def _fields(handle: JobHandle[Any]) -> tuple[str, str, bool, bool]:
    """Return the fields that are compared."""
    return handle.id, handle.topic, handle.duplicate, handle.replaced


class PartialFailure(PulseError):
    """Some jobs of an `enqueue_many` were refused; the rest is stored.

    `errors` maps the position of each refused job to its error. `handles` holds, by position, the
    handle of each stored job and None for each refused one.
    """

    code = "ABORTED"

    def __init__(self, errors: Mapping[int, PulseError], handles: Sequence[JobHandle[Any] | None]) -> None:
        self.errors: dict[int, PulseError] = dict(errors)
        self.handles: list[JobHandle[Any] | None] = list(handles)
        position = min(self.errors)
        super().__init__(
            f"{len(self.errors)} of {len(self.handles)} jobs were refused; "
            f"the first is number {position}: {self.errors[position].message}"
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return type(self), (self.errors, self.handles)


class JobFailed(PulseError):
    """The job that was waited for is a dead letter: it failed on its last attempt, or was discarded."""

    code = "ABORTED"

    def __init__(self, job: JobInfo) -> None:
        self.job = job
        self.job_id = job.id
        self.error: str = job.last_error or ""
        """Of the last attempt, with its traceback."""
        self.error_class = job.error_class
        """The class of the error, such as `shop.errors.PaymentDeclined`. See `JobInfo.error_class`."""
        self.traceback = job.traceback
        """The traceback of the error as Python prints it, with its causes. See `JobInfo.traceback`."""
        self.attempts = job.attempts
        self.history: tuple[Attempt, ...] = job.history
        """The attempts, the last ones if there were many."""
        count = f"{job.attempts} attempt" + ("" if job.attempts == 1 else "s")
        first_line = self.error.partition("\n")[0]
        super().__init__(f"Job {job.id} failed after {count}: {first_line}")

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return type(self), (self.job,)


class JobCanceled(PulseError):
    """The job that was waited for was canceled."""

    code = "CANCELLED"

    def __init__(self, job: JobInfo) -> None:
        self.job = job
        self.job_id = job.id
        self.reason: str = job.last_error or ""
        super().__init__(f"Job {job.id} was canceled" + (f": {self.reason}" if self.reason else "."))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return type(self), (self.job,)


class ResultTimeout(PulseError, TimeoutError):
    """The job has not finished in time. The job continues: wait for it again."""

    code = "DEADLINE_EXCEEDED"


class ResultGone(NotFound):
    """The job that was waited for is not stored: it was deleted, or its transaction is not committed."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"There is no job {job_id}. A job that is enqueued in a transaction is stored by the commit: "
            "wait for it after that. Finished jobs are deleted after the retention of their topic: wait "
            "sooner, or keep the topic for longer."
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return type(self), (self.job_id,)


# ---------------------------------------------------------------- the stream of waits

# The end of a wait: the finished job, None if the job does not exist, or the error of the wait.
Answer = JobInfo | PulseError | None
# Calls of gRPC that this module makes have messages in both directions.
_Call = Any


class Awaiting:
    """The jobs that are waited for in one event loop. Belongs to the session.

    A missed answer cannot leave a wait open: the server checks all awaited jobs periodically, and a
    new stream begins with all awaited jobs.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._waits: dict[str, _Wait] = {}
        # Changes that the server does not know yet: jobs to add, and jobs to drop.
        self._added: dict[str, None] = {}
        self._dropped: dict[str, None] = {}
        self._is_changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._patience = Patience(connection, 0.0, is_ended_for_now)
        self.answered: dict[str, Answer] = {}
        """Answers that `as_completed` has at hand."""

    def begin(self, job_id: str, timeout_seconds: float) -> asyncio.Future[Answer]:
        """Wait for the job. Every call needs an `end`. Concurrent waits for a job share the future.

        `timeout_seconds` bounds the first connection.
        """
        try:
            existing_id(job_id)
        except NotFound:
            # The server would refuse the whole stream, with the waits for other jobs.
            gone: asyncio.Future[Answer] = self._loop.create_future()
            gone.set_result(None)
            return gone
        wait = self._waits.get(job_id)
        if wait is None:
            if len(self._waits) >= tuning.MOST_AWAITED:
                raise ResourceExhausted(
                    f"A client waits for at most {tuning.MOST_AWAITED} jobs at a time. Wait for some first."
                )
            wait = self._waits[job_id] = _Wait(self._loop.create_future())
            if job_id in self._dropped:
                del self._dropped[job_id]  # the server still waits for it
            self._added[job_id] = None
            self._is_changed.set()
            self._open(timeout_seconds)
        wait.count += 1
        return wait.answer

    def end(self, job_id: str, answer: asyncio.Future[Answer]) -> None:
        """Wait for the job no longer, unless others do."""
        wait = self._waits.get(job_id)
        if wait is None or wait.answer is not answer:
            return  # it is answered
        wait.count -= 1
        if not wait.count:
            self._forget(job_id)
            self._dropped[job_id] = None
            self._is_changed.set()

    def end_all(self, problem: Callable[[], PulseError]) -> None:
        """Let all open waits raise this problem."""
        for job_id in list(self._waits):
            self._answer(job_id, problem())

    async def close(self) -> None:
        """End the stream. Open waits raise ClientClosed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    # ------------------------------------------------------------ the stream

    def _open(self, timeout_seconds: float) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._task is None:
            self._patience.renew(timeout_seconds)
            self._task = self._loop.create_task(self._run(), name="pulse-await")

    async def _run(self) -> None:
        problem: Callable[[], PulseError] = _closed
        stream = reconnecting_stream(
            self._connection, self._open_call, self._lost, welcome_seconds=self._patience.welcome_seconds
        )
        try:
            async with contextlib.aclosing(stream):
                async for message in stream:
                    self._patience.renew()
                    self._take(message)
        except PulseError as error:
            kind, sentence = type(error), error.message
            problem = lambda: kind(sentence)  # noqa: E731
        except Exception as error:
            sentence = f"The wait failed: {type(error).__name__}: {error}"
            problem = lambda: InternalError(sentence)  # noqa: E731
        finally:
            if self._task is asyncio.current_task():  # else it was idle, and another may have begun
                self._stop_sending()
                self._task = None
                self.end_all(problem)

    def _open_call(self) -> _Call:
        self._stop_sending()
        call = self._connection.open_exchange(self._connection.stub.AwaitJobs)
        # In a separate task: gRPC ends the stream if a write is canceled.
        self._added, self._dropped = dict.fromkeys(self._waits), {}
        self._is_changed.set()
        self._sending = self._loop.create_task(self._send(call), name="pulse-await-send")
        return call

    async def _lost(self, error: StreamError, wait_seconds: float) -> None:
        """Raise the error that ends all waits: a refusal, or no welcome until the deadline."""
        self._stop_sending()
        if isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise Unavailable(
                f"pulsed at {self._connection.endpoint.address} is of a version that cannot wait for jobs. "
                "Upgrade it, or poll with p.get_job(job_id)."
            )
        await self._patience.lost(error, wait_seconds)

    async def _send(self, call: _Call) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader notices
            while True:
                await self._is_changed.wait()
                self._is_changed.clear()
                while self._added or self._dropped:
                    await call.write(pb.AwaitJobsRequest(add=_taken(self._added), drop=_taken(self._dropped)))

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    # ------------------------------------------------------------ answers

    def _take(self, message: pb.AwaitJobsResponse) -> None:
        for view in message.finished:
            self._answer(view.job_id, job_info(view))
        for job_id in message.missing:
            self._answer(job_id, None)

    def _answer(self, job_id: str, answer: Answer) -> None:
        wait = self._waits.get(job_id)
        if wait is not None:
            self._forget(job_id)
            if not wait.answer.done():
                wait.answer.set_result(answer)

    def _forget(self, job_id: str) -> None:
        del self._waits[job_id]
        self._added.pop(job_id, None)
        if not self._waits and self._task is not None and self._idle is None:
            self._idle = self._loop.call_later(tuning.AWAIT_IDLE_SECONDS, self._leave)

    def _leave(self) -> None:
        """End a stream that nothing waits on."""
        task, self._task, self._idle = self._task, None, None
        self._stop_sending()
        if task is not None:
            task.cancel()


class _Wait:
    """A job that is waited for, how often, and its answer."""

    __slots__ = ("answer", "count")

    def __init__(self, answer: asyncio.Future[Answer]) -> None:
        self.answer = answer
        self.count = 0


def _taken(job_ids: dict[str, None]) -> Iterable[str]:
    """Take the next ids, as many as a message has."""
    some = list(job_ids)[: tuning.AWAIT_BATCH_JOBS]
    for job_id in some:
        del job_ids[job_id]
    return some


def _closed() -> ClientClosed:
    return ClientClosed("The client was closed during the wait.")
