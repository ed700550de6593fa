"""The blocking client, for Django, Flask and scripts: the verbs of `Pulse` without a trace of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from pulse import tuning
from pulse.client import Pulse
from pulse.connection import Connection
from pulse.errors import ClientClosed, InvalidHandler
from pulse.jobs import SyncJob, SyncJobDecorator
from pulse.models import JobHandle, JobInfo, JobStatus, Page
from pulse.portal import LoopThread
from pulse.worker import Worker

V = ParamSpec("V")
Result = TypeVar("Result")


class SyncPulse:
    """A client of pulsed whose verbs block. Safe to share between threads.

    Nothing connects, and no thread starts, before the first call. Make it before a fork if you like
    (gunicorn's preload), but call it only after: gRPC does not survive a fork that it was used before.
    Close it with `p.close()`, or use `with`.
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
        """Check the settings; connect to nothing yet. The parameters are those of `Pulse`."""
        self._pulse = Pulse(
            address,
            user=user,
            password=password,
            concurrency=concurrency,
            worker_id=worker_id,
            timeout=timeout,
            drain_timeout=drain_timeout,
        )
        self._is_closed = False
        self._stop_worker: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        _clients.add(self)

    @property
    def address(self) -> str:
        """Where pulsed is, as host:port."""
        return self._pulse.address

    # ------------------------------------------------------------ handlers

    def job(self, topic: str, /) -> SyncJobDecorator:
        """Make the decorated function the handler of a topic. It becomes a `SyncJob`, which can enqueue."""
        if not isinstance(topic, str):
            raise InvalidHandler('@p.job needs a topic: write @p.job("send-email").')
        return SyncJobDecorator(lambda function: self._register(topic, function, sys._getframe(2).f_locals))

    def register(self, topic: str, function: Callable[..., Any], /) -> SyncJob[..., ..., Any]:
        """Make a function the handler of a topic. Raises InvalidHandler if it cannot be one."""
        return self._register(topic, function, sys._getframe(1).f_locals)

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any]
    ) -> SyncJob[..., ..., Any]:
        if isinstance(function, SyncJob):
            function = function.function
        return SyncJob(self, self._pulse._registry.register(topic, function, names))

    def run(self, *, handle_signals: bool = True) -> None:
        """Take jobs and run their handlers until SIGTERM or SIGINT, or until `close()`; drain, then return.

        Blocks this thread. See `Pulse.run` for how it drains.
        """
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise ClientClosed("SyncPulse.run() would block the event loop that runs here. Use pulse.Pulse.")
        asyncio.run(self._run(handle_signals))

    async def _run(self, handle_signals: bool) -> None:
        # A loop and a connection of its own, in the caller's thread: only the main thread sees signals, and
        # a handler that blocks on p.enqueue(…) waits for the other loop, not for this one.
        loop = asyncio.get_running_loop()
        connection = Connection(self._pulse._endpoint)
        worker = Worker(connection, self._pulse._registry, self._pulse._worker_settings)
        self._stop_worker = functools.partial(loop.call_soon_threadsafe, worker.stop)
        try:
            await worker.run(handle_signals)
        finally:
            self._stop_worker = None
            await connection.close()

    # ------------------------------------------------------------ producing

    def enqueue(
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
        """Store a job and return its handle once it is safe in the database. See `Pulse.enqueue`."""
        return self._call(
            self._pulse.enqueue,
            topic,
            args,
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            key=key,
            metadata=metadata,
            job_id=job_id,
            timeout=timeout,
        )

    def enqueue_many(
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
        """Store a job for each item, in batches, and return their handles. See `Pulse.enqueue_many`."""
        return self._call(
            self._pulse.enqueue_many,
            topic,
            list(items),  # a generator of the caller's has to run in the caller's thread
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            metadata=metadata,
            timeout=timeout,
        )

    # ------------------------------------------------------------ looking and acting

    def get_job(self, job_id: str, *, timeout: timedelta | None = None) -> JobInfo:
        """Return everything about a job, its attempt history included. Raises NotFound."""
        return self._call(self._pulse.get_job, job_id, timeout=timeout)

    def list_jobs(
        self,
        *,
        topic: str | None = None,
        status: JobStatus | str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> Page:
        """Return one page of jobs, newest first, without their payloads and histories."""
        return self._call(
            self._pulse.list_jobs, topic=topic, status=status, limit=limit, cursor=cursor, timeout=timeout
        )

    def iter_jobs(
        self,
        *,
        topic: str | None = None,
        status: JobStatus | str | None = None,
        page_size: int = 50,
        timeout: timedelta | None = None,
    ) -> Iterator[JobInfo]:
        """Yield all jobs, newest first, page by page. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = self.list_jobs(topic=topic, status=status, limit=page_size, cursor=cursor, timeout=timeout)
            yield from page
            cursor = page.next_cursor
            if cursor is None:
                return

    def cancel(self, job_id: str, reason: str = "", *, timeout: timedelta | None = None) -> JobInfo:
        """Cancel a job; a running handler is told to stop. Raises InvalidTransition if it has finished."""
        return self._call(self._pulse.cancel, job_id, reason, timeout=timeout)

    def retry(self, job_id: str, attempts: int | None = None, *, timeout: timedelta | None = None) -> JobInfo:
        """Bring back a job that was dead-lettered or cancelled, with this many further attempts."""
        return self._call(self._pulse.retry, job_id, attempts, timeout=timeout)

    # ------------------------------------------------------------ lifetime

    def close(self) -> None:
        """Close the connection and end its thread. A `run()` in another thread drains and returns."""
        with self._lock:
            self._is_closed = True
            thread, self._thread = self._thread, None
        if (stop_worker := self._stop_worker) is not None:
            stop_worker()
        if thread is not None:
            _close(thread, self._pulse)

    def __enter__(self) -> Self:
        self._is_closed = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    def _call(
        self, verb: Callable[V, Coroutine[Any, Any, Result]], *args: V.args, **kwargs: V.kwargs
    ) -> Result:
        return self._open_thread().run(verb(*args, **kwargs))

    def _open_thread(self) -> LoopThread:
        with self._lock:
            if self._is_closed:
                raise ClientClosed("This client is closed. Make a new one, or enter it with `with`.")
            if self._thread is None:
                self._thread = LoopThread()
                weakref.finalize(self, _close, self._thread, self._pulse)
            return self._thread

    def _forget_thread(self) -> None:
        # The lock too: in a forked child it may be held by a thread that does not exist there.
        self._lock = threading.Lock()
        self._thread = None


def _close(thread: LoopThread, pulse: Pulse) -> None:
    if thread.is_over:
        return  # the finalizer comes again at exit, after a close() by hand
    with contextlib.suppress(Exception):
        thread.run(pulse._close_session(), tuning.EXIT_TIMEOUT_SECONDS)
    thread.stop()


def _forget_threads() -> None:
    for client in list(_clients):
        client._forget_thread()


_clients: weakref.WeakSet[SyncPulse] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
