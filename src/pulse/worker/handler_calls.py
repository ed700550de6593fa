"""Calls handlers in the event loop, a thread or a child process, each with separate contextvars."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any

from pulse import failpoints
from pulse.handlers.context import make_current, request_stop
from pulse.handlers.handler import Call
from pulse.outcomes import SUCCEEDED, Cancelled, Outcome
from pulse.tracing.optional import start_run
from pulse.worker.child_messages import RanInProcess
from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import HeldJob, LeaseTerms
from pulse.worker.processes import Child, Processes
from pulse.worker.returned import succeeded
from pulse.worker.threads import HandlerThreads
from pulse.worker.time_limits import TimeLimits


class Late(Exception):
    """The thread started when the claim was lost, or may have been."""


def in_time(job: HeldJob, call: Callable[..., Any], *args: Any) -> Any:
    """Call the function in the thread of a job. Raises Late if the claim may be lost."""
    # A thread may start long after the event loop checked: on a busy machine, or after a freeze.
    if job.stop_reason or lease_clock() >= job.start_by:
        raise Late
    return call(*args)


class HandlerCalls:
    """The calls of one worker, and the threads and processes that they run in."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        concurrency: int,
        worker_id: str,
        terms: LeaseTerms,
        time_limits: TimeLimits,
        processes: Processes,
    ) -> None:
        self._loop = loop
        self._worker_id = worker_id
        self._terms = terms
        self._time_limits = time_limits
        self._threads = HandlerThreads(loop, concurrency)
        self._processes = processes

    def close(self) -> None:
        """End the threads and processes."""
        self._threads.close()
        self._processes.close()

    @failpoints.before("worker.starting")
    def start(self, job: HeldJob) -> Begun | Outcome | None:
        """Call the handler and run it until it waits. Returns the outcome if it is done.

        Call it in the contextvars of the handler.
        """
        handler, context, assignment = job.handler, job.context, job.assignment
        make_current(context)
        job.span = start_run(assignment, self._worker_id)
        if handler.options.timeout is not None or assignment.HasField("timeout"):
            self._time_limits.begin(job)
        if handler.runs_in_loop:
            coroutine = handler.call(handler.decode(assignment.payload), context)
            if type(coroutine) is not CoroutineType:
                coroutine = awaited(coroutine)
        elif handler.options.process:
            coroutine = self._run_in_process(job)
        else:
            coroutine = self._run_in_thread(job, handler.call, handler.decode(assignment.payload))
        try:
            return coroutine, coroutine.send(None)
        except StopIteration as ended:
            value = ended.value
        return SUCCEEDED if value is None else succeeded(job, value, self._terms)

    async def _run_in_thread(self, job: HeldJob, call: Call, arguments: Any) -> Any:
        job.call = started = self._threads.start(in_time, job, call, arguments, job.context)
        try:
            result = await self._threads.result(started)
        finally:
            if started.is_over:  # else the event loop ends, and the thread goes on
                job.call = None
        # A plain function may return a coroutine: dropping it would look like success.
        return await result if inspect.isawaitable(result) else result

    async def _run_in_process(self, job: HeldJob) -> bytes | None:
        """Returns the result as the process has encoded it."""
        loaded = functools.partial(self._loop.call_soon_threadsafe, self._time_limits.restart, job)
        job.call = call = ProcessCall(self._processes, job, loaded)
        started = self._threads.start(in_time, job, call.run)
        try:
            result: bytes | None = await self._threads.result(started)
            return result
        finally:
            if started.is_over:
                job.call = None


class ProcessCall:
    """An attempt that runs in a child process. A thread waits for it."""

    thread_id = None

    def __init__(self, processes: Processes, job: HeldJob, loaded: Callable[[], object]) -> None:
        """`loaded` is called once the process has imported the application."""
        self._processes = processes
        self._loaded = loaded
        self._job = job
        self._child: Child | None = None
        self._interrupted_by: type[Cancelled] | None = None
        self._is_killed = False
        # A message for this attempt must not reach the next attempt of the same process.
        self._lock = threading.Lock()

    def run(self) -> bytes | None:
        """Run the attempt. Returns the result of the handler, encoded.

        Raises RanInProcess unless the handler returned, and ProcessDied. Cancelled if no process can run
        handlers: the worker stops, and releases the job.
        """
        if not self._processes.wait_for_check(self._raise_if_interrupted):
            request_stop(self._job.context)
            raise Cancelled("No process can run this handler: the worker stops.")
        child = self._child = self._processes.take()
        try:
            self._raise_if_interrupted()
            child.topics()
            self._loaded()
            self._raise_if_interrupted()  # from here on the child keeps a Stop for its attempt
            done = child.run(self._processes.attempt(self._job), self._job.context)
        except BaseException:
            self._let_go()
            self._processes.drop(child)
            if self._is_killed and self._interrupted_by is not None:
                raise self._interrupted_by from None
            raise
        if self._let_go():
            self._processes.give_back(child)
        else:
            self._processes.drop(child)  # the error may come up after the attempt
        if done.is_interrupted or (outcome := done.failed or done.snoozed or done.suspended) is not None:
            raise RanInProcess(None if done.is_interrupted else outcome)
        return done.result

    def interrupt(self, error: type[Cancelled]) -> None:
        """Raise the error in the process."""
        limit = self._job.limit
        assert limit is not None
        with self._lock:
            self._interrupted_by = error
            if self._child is not None:
                self._child.stop(limit.seconds, limit.is_timed_out)

    def kill(self) -> bool:
        """Kill the process."""
        with self._lock:
            self._is_killed = True
            if self._child is not None:
                self._child.kill()
        return True

    def _raise_if_interrupted(self) -> None:
        if self._interrupted_by is not None:
            raise self._interrupted_by

    def _let_go(self) -> bool:
        """Take the process from this attempt. Returns whether it can run another."""
        with self._lock:
            self._child = None
            return self._interrupted_by is None


# A coroutine that waits, and the future that it waits for.
Begun = tuple[Coroutine[Any, Any, Any], Any]


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """Await anything. Makes a coroutine of an awaitable that is not one."""
    return await awaitable


@types.coroutine
def rest_of(begun: Begun, run_in: contextvars.Context) -> Generator[Any, Any, Any]:
    """Await the rest of a coroutine, each step in the contextvars of `run_in`. Returns its result.

    The coroutine runs as part of the awaiting task: the task awaits its futures, passes on
    cancellation, and is `asyncio.current_task()`. Only the contextvars differ.
    """
    coroutine, waits_for = begun
    error: BaseException | None
    try:
        while True:
            result = error = None
            try:
                result = yield waits_for
            except BaseException as raised:
                error = raised
            # Not within the `except`: the coroutine would see this error as being handled.
            if error is None:
                waits_for = run_in.run(coroutine.send, result)
            else:
                waits_for = run_in.run(coroutine.throw, error)
    except StopIteration as ended:
        return ended.value
    finally:
        del error  # its traceback refers to this frame
