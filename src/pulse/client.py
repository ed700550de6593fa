"""The async client: the verbs, and `run`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from pulse import payload as payloads
from pulse import tuning
from pulse.endpoint import make_endpoint
from pulse.errors import ClientClosed, InvalidArgument, InvalidHandler, PartialFailure, PulseError
from pulse.handlers import Registry
from pulse.jobs import Job, JobDecorator
from pulse.models import JobHandle, JobInfo, JobStatus, Page, job_info
from pulse.session import Session, open_session
from pulse.submitting import Submission, chunks, make_submission
from pulse.v1 import pulse_pb2 as pb
from pulse.worker import Worker, WorkerSettings

_PAGE_JOBS = 50

Message = TypeVar("Message")


class Pulse:
    """A client of pulsed: enqueue jobs, look at them, and run handlers.

    Nothing connects before the first call. One object serves any number of tasks; use it from one event
    loop at a time. Close it with `await p.close()`, or use `async with`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        concurrency: int = tuning.DEFAULT_CONCURRENCY,
        worker_id: str | None = None,
        timeout: timedelta = timedelta(seconds=tuning.DEFAULT_TIMEOUT_SECONDS),
        drain_timeout: timedelta = timedelta(seconds=tuning.DEFAULT_DRAIN_SECONDS),
    ) -> None:
        """Check the settings; connect to nothing yet.

        `address` is `host`, `host:port` or `:port`; without it PULSE_ADDR counts, then localhost:50051.
        `user` and `password` default to PULSE_USER and PULSE_PASSWORD. `timeout` bounds every call,
        its retries included. `concurrency` is how many handlers `run()` runs at once; `drain_timeout`
        is what they get to finish when it stops.
        """
        self._endpoint = make_endpoint(address, user, password)
        self._timeout_seconds = _seconds_of("timeout", timeout)
        self._worker_settings = WorkerSettings(
            concurrency, _seconds_of("drain_timeout", drain_timeout), worker_id
        )
        self._registry = Registry()
        self._session: Session | None = None
        self._is_closed = False

    @property
    def address(self) -> str:
        """Where pulsed is, as host:port."""
        return self._endpoint.address

    # ------------------------------------------------------------ handlers

    def job(self, topic: str, /) -> JobDecorator:
        """Make the decorated function the handler of a topic. It becomes a `Job`, which can enqueue."""
        if not isinstance(topic, str):
            raise InvalidHandler('@p.job needs a topic: write @p.job("send-email").')
        return JobDecorator(lambda function: self._register(topic, function, sys._getframe(2).f_locals))

    def register(self, topic: str, function: Callable[..., Any], /) -> Job[..., ..., Any]:
        """Make a function the handler of a topic. Raises InvalidHandler if it cannot be one."""
        return self._register(topic, function, sys._getframe(1).f_locals)

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any]
    ) -> Job[..., ..., Any]:
        if isinstance(function, Job):
            function = function.function
        return Job(self, self._registry.register(topic, function, names))

    async def run(self, *, handle_signals: bool = True) -> None:
        """Take jobs and run their handlers until SIGTERM or SIGINT, or until cancelled; drain, then return.

        Draining takes no more jobs, hands back those not started, and gives running handlers
        `drain_timeout` to finish; then they are cancelled and handed back. A second signal, or a second
        cancellation, does not wait. Signals are only handled in the main thread, and only where nobody
        else handles them: an application such as uvicorn keeps its own and cancels this task.
        """
        await Worker(self._open().connection, self._registry, self._worker_settings).run(handle_signals)

    # ------------------------------------------------------------ producing

    async def enqueue(
        self,
        topic: str,
        args: object = None,
        *,
        priority: int = 0,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        key: str | None = None,
        metadata: Mapping[str, str] | None = None,
        job_id: str | None = None,
        timeout: timedelta | None = None,
    ) -> JobHandle:
        """Store a job and return its handle once it is safe in the database.

        Calls that run at the same time share a batch. When an answer is lost the same job is sent again
        until `timeout`; it is stored once. With `key`, a later enqueue on the topic with the same key and
        arguments answers with this job (`.duplicate`); with other arguments it raises AlreadyExists.
        """
        submission = make_submission(
            topic,
            payloads.encode(args),
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            key=key,
            metadata=metadata,
            job_id=job_id,
        )
        return await self._open().submitter.submit(submission, self._seconds(timeout))

    async def enqueue_many(
        self,
        topic: str,
        items: Iterable[object],
        *,
        priority: int = 0,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> list[JobHandle]:
        """Store a job for each item, in batches, and return their handles in the same order.

        The items share the options. `timeout` bounds each batch. If the server refuses some, the others
        are stored, and PartialFailure tells which is which.
        """
        submissions = [
            make_submission(
                topic,
                payloads.encode(item),
                priority=priority,
                delay=delay,
                run_at=run_at,
                max_attempts=max_attempts,
                metadata=metadata,
            )
            for item in items
        ]
        return await self._submit_all(submissions, self._seconds(timeout))

    async def _submit_all(self, submissions: list[Submission], timeout_seconds: float) -> list[JobHandle]:
        submitter = self._open().submitter
        outcomes: list[JobHandle | PulseError] = []
        bounds = chunks(submissions)
        step = tuning.ENQUEUES_IN_FLIGHT
        for first in range(0, len(bounds), step):
            batches = [submissions[begin:end] for begin, end in bounds[first : first + step]]
            for settled in await asyncio.gather(
                *(submitter.submit_batch(batch, timeout_seconds) for batch in batches)
            ):
                outcomes.extend(settled)
        errors = {at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, PulseError)}
        handles = [outcome if isinstance(outcome, JobHandle) else None for outcome in outcomes]
        if errors:
            raise PartialFailure(errors, handles)
        return [handle for handle in handles if handle is not None]

    # ------------------------------------------------------------ looking and acting

    async def get_job(self, job_id: str, *, timeout: timedelta | None = None) -> JobInfo:
        """Return everything about a job, its attempt history included. Raises NotFound."""
        connection = self._open().connection
        response = await connection.call(
            connection.stub.GetJob,
            _message(pb.GetJobRequest, job_id=job_id),
            timeout_seconds=self._seconds(timeout),
        )
        return job_info(response.job)

    async def list_jobs(
        self,
        *,
        topic: str | None = None,
        status: JobStatus | str | None = None,
        limit: int = _PAGE_JOBS,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> Page:
        """Return one page of jobs, newest first, without their payloads and histories."""
        connection = self._open().connection
        request = _message(
            pb.ListJobsRequest, topic=topic or "", status=status or "", limit=limit, page_token=cursor or ""
        )
        response = await connection.call(
            connection.stub.ListJobs, request, timeout_seconds=self._seconds(timeout)
        )
        return Page(tuple(map(job_info, response.jobs)), response.next_page_token or None)

    async def iter_jobs(
        self,
        *,
        topic: str | None = None,
        status: JobStatus | str | None = None,
        page_size: int = _PAGE_JOBS,
        timeout: timedelta | None = None,
    ) -> AsyncIterator[JobInfo]:
        """Yield all jobs, newest first, page by page. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = await self.list_jobs(
                topic=topic, status=status, limit=page_size, cursor=cursor, timeout=timeout
            )
            for job in page:
                yield job
            cursor = page.next_cursor
            if cursor is None:
                return

    async def cancel(self, job_id: str, reason: str = "", *, timeout: timedelta | None = None) -> JobInfo:
        """Cancel a job; a running handler is told to stop. Raises InvalidTransition if it has finished."""
        connection = self._open().connection
        response = await connection.call(
            connection.stub.CancelJob,
            _message(pb.CancelJobRequest, job_id=job_id, reason=reason),
            timeout_seconds=self._seconds(timeout),
        )
        return job_info(response.job)

    async def retry(
        self, job_id: str, attempts: int | None = None, *, timeout: timedelta | None = None
    ) -> JobInfo:
        """Bring back a job that was dead-lettered or cancelled, with this many further attempts."""
        connection = self._open().connection
        response = await connection.call(
            connection.stub.RetryJob,
            _message(pb.RetryJobRequest, job_id=job_id, attempts=attempts),
            timeout_seconds=self._seconds(timeout),
            repeatable=False,
        )
        return job_info(response.job)

    # ------------------------------------------------------------ lifetime

    async def close(self) -> None:
        """Close the connection. Calls that are under way fail; later ones raise ClientClosed."""
        self._is_closed = True
        await self._close_session()

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None and session.is_here():
            await session.close()

    async def __aenter__(self) -> Self:
        self._is_closed = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    def _seconds(self, timeout: timedelta | None) -> float:
        return self._timeout_seconds if timeout is None else _seconds_of("timeout", timeout)

    def _open(self) -> Session:
        """Return the session of the running event loop, and open it if there is none."""
        session = self._session
        if session is None or not session.is_here():
            if self._is_closed:
                raise ClientClosed("This client is closed. Make a new one, or enter it with `async with`.")
            session = self._session = open_session(self._endpoint, session)
        return session


def _seconds_of(name: str, duration: timedelta) -> float:
    """Return the seconds of a duration that has to be positive. Raises InvalidArgument."""
    if not isinstance(duration, timedelta):
        raise InvalidArgument(
            f"{name} has to be a timedelta, such as timedelta(seconds=10), not {duration!r}."
        )
    if duration <= timedelta(0):
        raise InvalidArgument(f"{name} has to be longer than nothing, but {duration} was given.")
    return duration.total_seconds()


def _message(kind: Callable[..., Message], **fields: Any) -> Message:
    try:
        return kind(**fields)
    except (TypeError, ValueError, OverflowError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        raise InvalidArgument(f"One of {given} cannot be sent: {error}.") from None
