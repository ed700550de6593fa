"""The child process that runs handlers with process=True: one attempt at a time, until its worker is gone."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import inspect
import logging
import math
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any, TypeVar

from pulse import tuning
from pulse.error_text import JsonFormatter
from pulse.handlers.context import add_job_to_log_records, make_current, on_progress, request_stop, steps_of
from pulse.handlers.registry import Registry
from pulse.handlers.step_calls import StepCalls
from pulse.handlers.workflows import on_complete
from pulse.outcomes import SUCCEEDED, Cancelled, Failed, Outcome, TimedOut
from pulse.supervision.supervised import Origin, load
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.worker.held_jobs import ClaimedJob, TimeLimit
from pulse.worker.outcomes import concluded, encoded, outcome_of
from pulse.worker.processes import Answers, Done, Load, Loaded, Run, Stop, receive, send
from pulse.worker.runners import awaited, contextvars_of_process, copies_for_attempts, send_events
from pulse.worker.threads import raise_in_thread

_PR_SET_PDEATHSIG = 1


def configure_logging(first: Load) -> None:
    """Log as the worker does, unless the application has configured its log."""
    multiprocessing.current_process().name = first.process_name
    add_job_to_log_records()
    if logging.getLogger().handlers:
        return  # an application that logs has configured it when it was imported
    handler = logging.StreamHandler()
    name = "" if first.process_name == "MainProcess" else "%(processName)s "
    line = f"%(asctime)s {name}%(levelname)s %(name)s: %(message)s%(pulse_job)s"
    text = logging.Formatter(line, defaults={"pulse_job": ""})
    handler.setFormatter(JsonFormatter() if first.logs_json else text)
    logging.basicConfig(level=first.log_level, handlers=[handler])


def die_with(lifeline: int, worker_pid: int) -> None:
    """Have the kernel kill this process and the processes of its handlers when the worker is gone.

    On other systems than Linux the closed pipe does it, unless a handler keeps the interpreter's
    lock.
    """
    if sys.platform == "linux":
        try:
            # The pipe closes with the worker, which sends its readers a signal: here to the process
            # group. The signal of a parent's death would reach this process alone, before it could
            # kill its group.
            fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        except OSError:  # a sandbox that does not know it
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker_pid:
        os._exit(1)


Result = TypeVar("Result")


def main(fd: int, lifeline: int, worker_pid: int) -> None:
    """Serve the worker at the other end of this pipe, for as long as it holds the lifeline."""
    die_with(lifeline, worker_pid)
    worker = Pipe(fd)
    first = receive(worker)
    if not isinstance(first, Load):
        return
    try:
        client = load(Origin(first.module, first.path, first.attribute), first.imports)
        configure_logging(first)
        child = _Child(worker, client)
        child.open()
    except BaseException as error:
        send(worker, Loaded([], f"{type(error).__name__}: {error}"))
        return
    send(worker, Loaded(list(client._registry)))
    child.serve()


@dataclass(frozen=True, slots=True)
class _Ended:
    """How an async handler has ended."""

    error: BaseException | None
    result: Any = None

    def get(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


class _Child:
    def __init__(self, worker: Pipe, client: Any) -> None:
        self._worker = worker
        self._answers = Answers(worker)
        self._client = client
        self._registry: Registry = client._registry
        self._process = os.getpid()
        self._thread_id = threading.get_ident()
        self._attempts: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        # In a thread, as sync handlers are in a worker: their clients and resources need a loop that runs.
        self._loop = asyncio.new_event_loop()
        # One connection for all attempts, opened with the first step: a handler that forks has none.
        self._step_calls = StepCalls(self._connect, self._loop, "", client)
        self._connection: Connection | None = None
        client._live_in(self._loop)
        self._contextvars = contextvars_of_process()
        self._copy_contextvars = self._contextvars.copy
        self._job: ClaimedJob | None = None
        # The worker sends one at the most, for the attempt that it has sent or is about to send.
        self._stopped_by: Stop | None = None
        # A Stop finds an attempt, and its task, or they find the Stop: it is never lost in between.
        self._stopping = threading.Lock()
        self._is_open = asyncio.Event()
        self._may_close = asyncio.Event()

    def open(self) -> None:
        """Open the resources, and put the handlers into their middleware. Raises ResourceFailed."""
        threading.Thread(target=self._run_loop, name="pulse-child-loop", daemon=True).start()
        self._in_loop(self._open())
        self._copy_contextvars = copies_for_attempts(self._contextvars)

    def _run_loop(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            os._exit(os.EX_SOFTWARE)  # a handler has stopped it: without the loop no attempt would end

    def _in_loop(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _open(self) -> None:
        self._holding = asyncio.create_task(self._hold(), name="pulse-resources")
        opened = asyncio.ensure_future(self._is_open.wait())
        await asyncio.wait({self._holding, opened}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if self._holding.done():
            await self._holding

    async def _hold(self) -> None:
        # In one task: the task that enters an async context manager has to exit it.
        handlers = [handler for topic in self._registry if (handler := self._registry.get(topic))]
        own = [handler for handler in handlers if handler.options.process]
        async with self._registry.surroundings.opened(own):
            self._is_open.set()
            await self._may_close.wait()

    def _connect(self) -> Connection:
        self._connection = Connection(self._client._endpoint)
        return self._connection

    async def _close(self) -> None:
        self._may_close.set()
        await asyncio.wait({self._holding})
        if self._connection is not None:
            await self._step_calls.close()
            await self._connection.close()
        closing = self._client.close()
        if inspect.isawaitable(closing):
            await closing

    def serve(self) -> None:
        """Run attempts until the worker is gone, or until one is interrupted.

        The error of an interrupted attempt could come up in the next one.
        """
        threading.Thread(target=self._read, name="pulse-child", daemon=True).start()
        while (attempt := self._attempts.get()) is not None:
            outcome = self._run(attempt)
            if os.getpid() != self._process:
                os._exit(os.EX_SOFTWARE)  # the handler forked, and this is the child: the parent answers
            self._job = None
            if self._stopped_by is not None and isinstance(outcome, Failed):
                # The worker kills a process that it has interrupted. The error may come up only
                # now.
                with contextlib.suppress(Cancelled):
                    send_events()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # the handler may have closed or replaced it
                    stream.flush()
            self._answers.done(Done.of(outcome))
            if self._stopped_by is not None:
                return
        self._in_loop(self._close())

    # ------------------------------------------------------------ one attempt

    def _run(self, attempt: Run) -> Outcome | None:
        assignment = pb.JobAssignment.FromString(attempt.assignment)
        handler = self._registry.get(assignment.topic)
        assert handler is not None, "the worker has compared the topics"
        steps = self._step_calls
        steps.worker_id, steps.most_bytes = attempt.worker_id, attempt.max_step_bytes
        steps.completion_key = pb.CompletionKey.FromString(attempt.completion_key)
        job = ClaimedJob(assignment.job_id, assignment, handler, math.inf, math.inf, math.inf, steps)
        job.has_begun = True
        on_progress(job.context, self._answers.progressed)
        on_complete(job.context, self._answers.completes)
        return self._copy_contextvars().run(self._run_in_context, job, attempt.max_result_bytes)

    def _run_in_context(self, job: ClaimedJob, max_result_bytes: int) -> Outcome | None:
        make_current(job.context)
        error: BaseException
        try:
            self._begin(job)
            result = job.handler.call(job.handler.decode(job.assignment.payload), job.context)
            if inspect.isawaitable(result):
                result = self._in_loop(self._until_done(job, result)).get()
            outcome = SUCCEEDED if result is None else encoded(job, result, max_result_bytes)
            return outcome if steps_of(job.context) is None else concluded(job, outcome)
        except asyncio.CancelledError as canceled:
            error = Cancelled().with_traceback(canceled.__traceback__) if self._stopped_by else canceled
        except BaseException as raised:
            error = raised
        return outcome_of(job, error, lambda _: None)

    def _begin(self, job: ClaimedJob) -> None:
        """Let a Stop interrupt this job from now on. Raises the error of an earlier Stop."""
        with self._stopping:
            self._job = job
            if self._stopped_by is not None:
                request_stop(job.context)
                raise _set_limit(job, self._stopped_by)

    async def _until_done(self, job: ClaimedJob, result: Any) -> _Ended:
        with self._stopping:
            job.task = task = asyncio.current_task()
            if self._stopped_by is not None and task is not None:
                task.cancel()  # the error was raised in the thread, which waits for this task
        try:
            return _Ended(None, await awaited(result))
        except BaseException as error:
            return _Ended(error)  # a task that raises SystemExit would end the event loop

    # ------------------------------------------------------------ in the reading thread

    def _read(self) -> None:
        while (message := receive(self._worker)) is not None:
            if isinstance(message, Run):
                self._attempts.put(message)
            elif isinstance(message, Stop):
                with self._stopping:
                    self._stopped_by = message
                    if (job := self._job) is not None:
                        self._stop(job, message)
        # The worker is gone, or needs this process no longer.
        if self._job is not None:
            os.killpg(0, signal.SIGKILL)
        self._attempts.put(None)
        threading.Event().wait(tuning.CHILD_EXIT_SECONDS)
        os.killpg(0, signal.SIGKILL)

    def _stop(self, job: ClaimedJob, message: Stop) -> None:
        error = _set_limit(job, message)
        task = job.task
        if task is None:
            request_stop(job.context)
            while not raise_in_thread(self._thread_id, error, lambda: self._job is not job):
                time.sleep(tuning.FIRST_INTERRUPT_SECONDS)
            return
        loop = task.get_loop()
        loop.call_soon_threadsafe(request_stop, job.context)
        loop.call_soon_threadsafe(task.cancel)


def _set_limit(job: ClaimedJob, message: Stop) -> type[Cancelled]:
    """Have the job end as the worker asks. Returns the error to raise in its handler."""
    job.limit = TimeLimit(message.limit_seconds, 0.0, None, message.is_timed_out, is_interrupted=True)
    return TimedOut if message.is_timed_out else Cancelled
