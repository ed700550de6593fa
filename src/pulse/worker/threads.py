"""The threads of sync handlers, and the end of handlers at their time limit or after a cancel. ADR-0061

A handler is interrupted: a task is canceled, an error is raised in a thread or a process. A process that does
not stop is killed. A handler that still runs after a grace is given up: its slot is lost until it ends.

An error that comes up between taking a lock and the `try` that releases it leaves the lock taken. In
`logging`, or in an import, it would block every thread of the process for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pulse import tuning
from pulse.error_text import in_a_line
from pulse.errors import SlotsLost
from pulse.handlers.context import records_of, request_stop
from pulse.outcomes import Cancelled, TimedOut
from pulse.worker.held_jobs import ClaimedJob, TimeLimit, Window, lease_clock

_Outcome = tuple[Any, BaseException | None]


class ThreadCall:
    """A function that runs in a thread, or is about to."""

    __slots__ = (
        "_args",
        "_context",
        "_function",
        "ends_thread",
        "future",
        "interrupted_by",
        "is_delivered",
        "is_over",
        "outcome",
        "thread_id",
    )

    def __init__(
        self, future: asyncio.Future[_Outcome], function: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self.future = future
        self.thread_id: int | None = None
        self.outcome: _Outcome | None = None
        self.is_over = self.is_delivered = self.ends_thread = False
        self.interrupted_by: type[Cancelled] | None = None
        self._context = contextvars.copy_context()
        self._function = function
        self._args = args

    def run(self) -> None:
        """Call the function, unless it was interrupted before. In its thread."""
        self.thread_id = threading.get_ident()
        try:
            if self.interrupted_by is not None:
                raise self.interrupted_by
            self.outcome = self._context.run(self._function, *self._args), None
        except BaseException as error:
            self.outcome = None, error

    def interrupt(self, error: type[Cancelled]) -> None:
        """Raise the error in the thread, at its next bytecode. Not while it waits in C code.

        The thread may end the call first. Then it must not take another call: the error could come
        up there. So the call is marked before. A thread that ends a marked call ends itself.
        """
        if self.interrupted_by is not None:
            return
        self.interrupted_by = error
        if self.thread_id is not None and not raise_in_thread(self.thread_id, error, lambda: self.is_over):
            insisting = threading.Thread(target=self._insist, args=(self.thread_id, error), daemon=True)
            insisting.start()

    def _insist(self, thread_id: int, error: type[Cancelled]) -> None:
        pause = tuning.FIRST_INTERRUPT_SECONDS
        while not raise_in_thread(thread_id, error, lambda: self.is_over):
            time.sleep(pause)
            pause = min(pause * 1.5, tuning.LONGEST_INTERRUPT_SECONDS)

    def kill(self) -> bool:
        """Return False: a thread cannot be killed."""
        return False


class HandlerThreads:
    """Runs functions in threads, which are started when needed and reused.

    They are daemon threads, unlike the threads of concurrent.futures: a handler that never returns
    must not keep the process alive after the worker has stopped.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._process = os.getpid()
        self._most = most
        self._threads = 0
        self._started = 0
        self._busy = 0
        self._queue: queue.SimpleQueue[ThreadCall | None] = queue.SimpleQueue()

    def start(self, function: Callable[..., Any], *args: Any) -> ThreadCall:
        """Call the function in a thread, in a copy of this task's contextvars."""
        call = ThreadCall(self._loop.create_future(), function, args)
        self._busy += 1
        self._queue.put(call)
        self._start_thread()
        return call

    async def result(self, call: ThreadCall) -> Any:
        """Wait for the call. Returns its result, or raises its error."""
        result, error = await call.future
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """End the threads, each after its current call."""
        for _ in range(self._threads):
            self._queue.put(None)
        self._threads = self._most = 0

    def _start_thread(self) -> None:
        if self._threads < min(self._busy, self._most):
            self._threads += 1
            self._started += 1
            threading.Thread(target=self._work, name=f"pulse-handler-{self._started}", daemon=True).start()

    def _work(self) -> None:
        current: list[ThreadCall] = []
        while True:
            try:
                return self._take_calls(current)
            except Cancelled:
                continue  # it came up when the function had returned: the call has to be delivered

    def _take_calls(self, current: list[ThreadCall]) -> None:
        """Run calls, and deliver them. `current` has the call to deliver."""
        while True:
            if not current:
                if (taken := self._queue.get()) is None:
                    return
                current.append(taken)
                taken.run()
                del taken  # otherwise the thread would keep the last job in memory until the next one
            (call,) = current
            if os.getpid() != self._process:
                os._exit(os.EX_SOFTWARE)  # the function forked, and this is the child
            call.outcome = call.outcome or (None, Cancelled())
            call.is_over = True
            # After that no error is raised any more, and before it the call was marked.
            call.ends_thread = call.interrupted_by is not None
            if not self._post(call) or call.ends_thread:
                return
            current.clear()
            del call

    def _post(self, call: ThreadCall) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._deliver, call)
        except RuntimeError:
            return False  # the loop was closed
        return True

    def _deliver(self, call: ThreadCall) -> None:
        if call.is_delivered:
            return  # the thread was interrupted while it delivered, and repeated it
        call.is_delivered = True
        self._busy -= 1
        if call.ends_thread:
            self._threads -= 1
            self._start_thread()
        if not call.future.done():
            call.future.set_result(call.outcome or (None, None))


_FILES_WITH_SHARED_LOCKS = frozenset({logging.__file__, "<frozen importlib._bootstrap>"})


def raise_in_thread(thread_id: int, error: type[BaseException], is_over: Callable[[], bool]) -> bool:
    """Raise the error in the thread, at its next bytecode, unless it is over. Not while it waits in C code.

    Returns False if the thread is inside of shared locks: try again a moment later.
    """
    import ctypes  # not before it is needed: few workers do

    # Release the interpreter's lock and take it again. No other thread gets it within the next
    # milliseconds, so the thread stays at the position that is checked below.
    time.sleep(0)
    if is_over():
        return True
    if _is_inside_shared_locks(thread_id):
        return False
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))
    return True


def take_back(thread_id: int) -> None:
    """Take back an error that has not come up yet."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), None)


def _is_inside_shared_locks(thread_id: int) -> bool:
    frame = sys._current_frames().get(thread_id)
    while frame is not None:
        if frame.f_code.co_filename in _FILES_WITH_SHARED_LOCKS:
            return True
        frame = frame.f_back
    return False


# ---------------------------------------------------------------- time limits


class TimeLimits:
    """Watches the handlers that have a limit, with one timer. It does not know other handlers."""

    def __init__(self, lose: Callable[[ClaimedJob], None]) -> None:
        """`lose` is called for a job whose handler is given up."""
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        # The contextvars of the worker: the timer that one job sets ends other jobs too.
        self._contextvars = contextvars.copy_context()
        self._thread_id = threading.get_ident()
        # At most one for each slot: a search at each deadline is cheaper than a sorted order.
        self._watched: dict[ClaimedJob, TimeLimit] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def begin(self, job: ClaimedJob) -> None:
        """Watch a job that starts now and has a limit. Call it in its task and contextvars."""
        seconds = _limit_of(job).total_seconds()
        due = lease_clock() + seconds
        if job.handler.options.process:
            due += tuning.CHILD_START_SECONDS
        task = asyncio.current_task(self._loop)
        job.limit = TimeLimit(seconds, due, task, own=contextvars.copy_context())
        self._watch(job, job.limit)

    def restart(self, job: ClaimedJob) -> None:
        """Count the time of a job from now on: its process has imported the application."""
        limit = self._watched.get(job)
        if limit is not None and not limit.is_interrupted:
            limit.due = lease_clock() + limit.seconds
            self._watch(job, limit)

    def end(self, job: ClaimedJob) -> None:
        """Forget a job whose handler has ended."""
        self._watched.pop(job, None)

    def cancel(self, job: ClaimedJob) -> None:
        """Interrupt a running handler because its job is canceled, or the worker stops."""
        request_stop(job.context)
        if job.task is None:
            return  # it has not started, or runs right now
        limit = job.limit = job.limit or TimeLimit(0.0, 0.0, job.task)
        if limit.is_lost or limit.is_interrupted:
            return
        self._interrupt(job, limit, Cancelled)
        self._watch(job, limit)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        self._watched.clear()

    def _watch(self, job: ClaimedJob, limit: TimeLimit) -> None:
        self._watched[job] = limit
        if self._timer is None or limit.due < self._timer_at:
            self._set_timer(limit.due)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(
            max(0.0, due - lease_clock()), self._look, context=self._contextvars
        )

    def _look(self) -> None:
        self._timer = None
        now = lease_clock()
        for job, limit in [(job, limit) for job, limit in self._watched.items() if limit.due <= now]:
            self._advance(job, limit)
        if self._watched:
            self._set_timer(min(limit.due for limit in self._watched.values()))

    def _advance(self, job: ClaimedJob, limit: TimeLimit) -> None:
        if not limit.is_interrupted:
            limit.is_timed_out = True
            request_stop(job.context)
            self._interrupt(job, limit, TimedOut)
        elif not limit.is_killed and job.call is not None and job.call.kill():
            limit.is_killed = True
            limit.due = lease_clock() + tuning.TIME_LIMIT_GRACE_SECONDS
        else:
            del self._watched[job]
            limit.is_lost = True
            self._lose(job)

    def _interrupt(self, job: ClaimedJob, limit: TimeLimit, error: type[Cancelled]) -> None:
        limit.is_interrupted = True
        limit.due = lease_clock() + tuning.TIME_LIMIT_GRACE_SECONDS
        if job.call is not None:
            job.call.interrupt(error)
        elif job.task is not None:
            job.task.cancel()

    # ------------------------------------------------------------ in the heartbeat thread

    def look_at_blocked_loop(self) -> ClaimedJob | None:
        """End a handler that blocks the event loop past its limit. Returns it if it does not end.

        Called from another thread, since no timer runs in a loop that is blocked.
        """
        now = lease_clock()
        # list() of a dict's items is atomic: the event loop cannot change the dict during the copy.
        for job, limit in list(self._watched.items()):
            # The timer of a loop that runs would have moved it on.
            if limit.due + tuning.BLOCKED_LOOP_SECONDS > now or not self._runs_now(limit):
                continue
            if limit.is_interrupted:
                return job
            limit.is_timed_out = limit.is_interrupted = True
            if not raise_in_thread(self._thread_id, TimedOut, functools.partial(self._has_ended, limit)):
                limit.is_timed_out = limit.is_interrupted = False  # it logs: the next look ends it
                continue
            limit.due = now + tuning.TIME_LIMIT_GRACE_SECONDS
            if not self._runs_now(limit):
                take_back(self._thread_id)  # it has just ended: the error is not for the next one
        return None

    def _has_ended(self, limit: TimeLimit) -> bool:
        return not self._runs_now(limit)

    def _runs_now(self, limit: TimeLimit) -> bool:
        return limit.task is not None and asyncio.current_task(self._loop) is limit.task


def _limit_of(job: ClaimedJob) -> timedelta:
    """Return the limit of the attempt: by the settings of the topic, else by the handler's options."""
    if job.assignment.HasField("timeout"):
        return job.assignment.timeout.ToTimedelta()
    assert job.handler.options.timeout is not None
    return job.handler.options.timeout


logger = logging.getLogger("pulse.worker")


class LostSlots:
    """Counts the slots of handlers that were given up. A handler that ends after all gives its slot back.

    The capacity that the server knows shrinks with each, so that it sends fewer jobs. Too many end the
    worker: its supervisor starts a fresh one.
    """

    def __init__(
        self,
        window: Window,
        exit_at: int | None,
        *,
        announce: Callable[[], None],
        stop: Callable[[BaseException], None],
    ) -> None:
        """`stop` is called once `exit_at` slots are lost; None means half of them."""
        slots = self._slots = window.concurrency
        self._exit_at = min(exit_at or (slots + 1) // 2, slots)
        self._window = window
        self._announce = announce
        self._stop = stop
        self._jobs: set[ClaimedJob] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: ClaimedJob, stack: str) -> None:
        """Count the slot of a handler that is given up."""
        self._jobs.add(job)
        # A warning: what becomes of the job is logged apart, as an error if it is a dead letter.
        with records_of(job.context):
            logger.warning(
                "Job %s (%s) does not end although it was interrupted: its slot is lost (%d of %d). "
                "It is here:\n%s",
                job.job_id,
                in_a_line(job.handler.topic),
                len(self._jobs),
                self._slots,
                stack or "(its stack is not known)",
            )
        self._resize()
        if len(self._jobs) >= self._exit_at:
            self._stop(
                SlotsLost(
                    f"{len(self._jobs)} of {self._slots} slots are lost to handlers that do not end, so the "
                    "worker stops. Start a fresh one, and see its log for where they are stuck."
                )
            )

    def discard(self, job: ClaimedJob) -> bool:
        """Give back the slot of a handler whose task has ended. Returns whether it was lost.

        A thread may outlive its task, which ends with the event loop. Its slot stays lost.
        """
        if job not in self._jobs:
            return False
        if job.call is not None:
            return True
        self._jobs.remove(job)
        with records_of(job.context):
            topic = in_a_line(job.handler.topic)
            logger.info("Job %s (%s) has ended at last: its slot is free.", job.job_id, topic)
        self._resize()
        return True

    def _resize(self) -> None:
        self._window.resize(max(1, self._slots - len(self._jobs)))
        self._announce()
