"""Runs handlers in runners: tasks that run one ready job after the other.

A handler that returns without waiting needs no separate task. A handler that waits keeps its runner, which
ends with it, and another runner continues. So canceling a task cancels one job. A handler is called in the
event loop, a thread or a child process, with contextvars of its own.

Each attempt has an isolation scope of Sentry: the tags, the user and the breadcrumbs of its events. A copy of
contextvars refers to the same scope as the original, so that what one handler sets would be on the events of
all later ones. Sentry's own integrations fork the scope for each request or task. This module does not import
sentry_sdk: applications that do not use it pay nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import os
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from time import perf_counter
from types import CoroutineType
from typing import Any, cast

from pulse import failpoints, tuning
from pulse.handlers.context import make_current, request_stop, steps_of
from pulse.handlers.handler import Call
from pulse.outcomes import SUCCEEDED, Cancelled, Outcome
from pulse.tracing.optional import start_run
from pulse.worker.held_jobs import ClaimedJob, Shared, lease_clock
from pulse.worker.outcomes import concluded, failed, given_up, outcome_of, succeeded
from pulse.worker.processes import Child, Processes, RanInProcess
from pulse.worker.threads import HandlerThreads, LostSlots, TimeLimits

# Shorter than the grace after a time limit: a child process is killed when the grace ends.
_SEND_SECONDS = 2.0


def contextvars_of_process() -> contextvars.Context:
    """Return a copy of the caller's contextvars, which refers to the same scope.

    Call it before resources are opened: tags that they set in the scope are then on the events of
    all attempts.
    """
    if (scopes := _scopes()) is not None:
        scopes.get_isolation_scope()  # makes it, if it is not there
    return contextvars.copy_context()


def copies_for_attempts(process: contextvars.Context) -> Callable[[], contextvars.Context]:
    """Return a function that makes the contextvars of an attempt: a copy with a forked scope.

    Call it after resources are opened: a resource may be the first to import sentry_sdk.
    """
    scopes = _scopes()
    if scopes is None:
        return process.copy
    process.run(scopes.get_isolation_scope)

    def copy() -> contextvars.Context:
        own = process.copy()
        try:
            own.run(_fork, scopes)
        except Exception:
            return process.copy()  # the job matters more than its tags
        return own

    return copy


def send_events() -> None:
    """Wait until Sentry has sent the events so far. Call it before the process is killed.

    A thread sends them. At an ordinary exit Sentry itself waits for the thread, for the same time.
    """
    sentry = sys.modules.get("sentry_sdk")
    if sentry is not None:
        with contextlib.suppress(Exception):
            sentry.flush(timeout=_SEND_SECONDS)


def _scopes() -> Any:
    """Return the class that has the scopes, or None if sentry_sdk is not used or is older than 2.0."""
    scopes = getattr(sys.modules.get("sentry_sdk"), "Scope", None)
    return scopes if hasattr(scopes, "set_isolation_scope") else None


def _fork(scopes: Any) -> None:
    # Not `with isolation_scope()`: the scope lasts until the outcome is logged, and a generator that is never
    # closed would reset the contextvars of another context when it is collected.
    own = scopes.get_isolation_scope().fork()
    own.clear_breadcrumbs()  # of the worker: they do not concern this attempt
    own.set_new_propagation_context()  # else all jobs would be of one trace
    scopes.set_isolation_scope(own)
    scopes.set_current_scope(scopes.get_current_scope().fork())


# ---------------------------------------------------------------- calls


class Late(Exception):
    """The thread started when the claim was lost, or may have been."""


def in_time(job: ClaimedJob, call: Callable[..., Any], *args: Any) -> Any:
    """Call the function in the thread of a job. Raises Late if the claim may be lost."""
    # A thread may start long after the event loop checked: on a busy machine, or after a freeze.
    if job.stop_reason or lease_clock() >= job.start_by:
        raise Late
    return call(*args)


class HandlerCalls:
    """The calls of one worker, and the threads and processes that they run in."""

    def __init__(self, shared: Shared, time_limits: TimeLimits, processes: Processes) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker_id = shared.worker_id
        self._terms = shared.terms
        self._time_limits = time_limits
        self._threads = HandlerThreads(self._loop, shared.window.concurrency)
        self._processes = processes

    def close(self) -> None:
        """End the threads and processes."""
        self._threads.close()
        self._processes.close()

    @failpoints.before("worker.starting")
    def start(self, job: ClaimedJob) -> Begun | Outcome | None:
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

    async def _run_in_thread(self, job: ClaimedJob, call: Call, arguments: Any) -> Any:
        job.call = started = self._threads.start(in_time, job, call, arguments, job.context)
        try:
            result = await self._threads.result(started)
        finally:
            if started.is_over:  # else the event loop ends, and the thread goes on
                job.call = None
        # A plain function may return a coroutine: dropping it would look like success.
        return await result if inspect.isawaitable(result) else result

    async def _run_in_process(self, job: ClaimedJob) -> bytes | None:
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

    def __init__(self, processes: Processes, job: ClaimedJob, loaded: Callable[[], object]) -> None:
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


# A job whose handler waits for something, its coroutine and contextvars, and its start.
Waiting = tuple[ClaimedJob, Begun, contextvars.Context, float]


# ---------------------------------------------------------------- runners


class Runners:
    """Runs at most `concurrency` jobs at once, in the order in which they became ready."""

    def __init__(
        self,
        shared: Shared,
        *,
        confirm: Callable[[ClaimedJob], None],
        report: Callable[[ClaimedJob], None],
        fatal: Callable[[BaseException], None],
        lost: LostSlots,
        processes: Processes,
    ) -> None:
        """`confirm` gets jobs whose claims are confirmed before they start, `report` those that ended."""
        self._concurrency = shared.window.concurrency
        self._window = shared.window
        self._terms = shared.terms
        self._unstarted = shared.held.unstarted
        self._confirm, self._report, self._fatal = confirm, report, fatal
        # After a moment leases are extended: the attempts count.
        self._send_heartbeat, self._lost = shared.woken.set, lost
        self._first_heartbeat: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        # Every handler starts with the contextvars of run(), not of the handler before it.
        self._contextvars = contextvars_of_process()
        self._copy_contextvars = self._contextvars.copy
        self.time_limits = TimeLimits(self._give_up)
        self.cancel = self.time_limits.cancel
        """Interrupt the handler of a job, if it has started."""
        self._calls = HandlerCalls(shared, self.time_limits, processes)
        self._ready: deque[ClaimedJob] = deque()
        # The number of jobs that are being confirmed. Each has a slot: it starts with the answer.
        self._confirming = 0
        self._suspended: set[ClaimedJob] = set()
        self._suspended_in_a_row = 0
        # The number of runners that take jobs. Each other runner belongs to a suspended job.
        self._taking = 0
        self._is_stopping = False
        _all.add(self)

    def prepare(self) -> None:
        """Prepare to start handlers. Call it before the first job, once the resources are open."""
        self._copy_contextvars = copies_for_attempts(self._contextvars)

    def add(self, jobs: Iterable[ClaimedJob]) -> None:
        """Queue the jobs. They start as slots become free."""
        self._ready.extend(jobs)
        self._go_on()

    def confirmed(self, jobs: list[ClaimedJob]) -> None:
        """Start the confirmed jobs, before all others. The slots of the rest are free again."""
        self._confirming -= len(jobs)
        self._ready.extendleft(job for job in reversed(jobs) if not job.confirm)
        self._go_on()

    def stop_starting(self) -> None:
        """Start no further handler."""
        self._is_stopping = True

    def running_tasks(self) -> set[asyncio.Task[None]]:
        """Return the tasks of the running handlers."""
        return {job.task for job in self._suspended if job.task is not None and not job.task.done()}

    def cancel_running(self) -> None:
        """Cancel all running handlers, because the worker stops."""
        for job in list(self._suspended):
            self.cancel(job)

    def kill_running(self) -> bool:
        """Kill the running handlers that are processes. Returns whether there were any."""
        return sum(job.call.kill() for job in list(self._suspended) if job.call is not None) > 0

    def stop_in_child(self) -> None:
        """Start no handler in a child that a handler has forked, and end it after that handler."""
        self._is_stopping = True
        self._ready.clear()
        with contextlib.suppress(RuntimeError):  # another thread forked: this loop does not run in the child
            self._loop.call_soon(os._exit, os.EX_SOFTWARE)

    def close(self) -> None:
        """End the threads."""
        if self._first_heartbeat is not None:
            self._first_heartbeat.cancel()
        self.time_limits.close()
        self._calls.close()

    # ------------------------------------------------------------ runners

    def _go_on(self) -> None:
        """Start as many runners as the ready jobs seem to need, unless some are starting."""
        if self._taking or not self._ready or self._is_stopping:
            return
        # One, as long as handlers do not wait. If some did, more will, and must start in this turn.
        self._taking = max(0, min(len(self._ready), self._free_slots, 1 + self._suspended_in_a_row))
        for _ in range(self._taking):
            # Not create_task: an eager factory would run the jobs right here, each nested in the last.
            asyncio.Task(self._run(), loop=self._loop, name="pulse-runner", context=self._contextvars.copy())

    @property
    def _free_slots(self) -> int:
        return self._concurrency - len(self._suspended) - self._confirming - len(self._lost)

    async def _run(self) -> None:
        try:
            suspended = self._take_jobs(cast("asyncio.Task[None]", asyncio.current_task(self._loop)))
        finally:
            self._taking -= 1
        self._go_on()
        if suspended is None:
            return
        job, begun, own, began = suspended
        outcome: Outcome | None = SUCCEEDED
        try:
            value = await rest_of(begun, own)
            if value is not None:
                outcome = own.run(succeeded, job, value, self._terms)
        except Late:
            outcome = None
            self._put_back(job)
        except BaseException as error:
            if job.limit is None or not job.limit.is_lost:  # else it is reported already
                outcome = self._failed(job, own, error)
        job.task = None  # a claim may be lost before its result is stored: nothing is left to interrupt
        if not self._lost.discard(job):
            self._suspended.discard(job)
            self._window.observe(perf_counter() - began)
            self._end(job, outcome, own)
        self._go_on()

    def _take_jobs(self, task: asyncio.Task[None]) -> Waiting | None:
        """Run ready jobs until the turn is over or a handler waits. Returns the job that waits."""
        ready, take, copy_contextvars = self._ready, self._unstarted.remove, self._copy_contextvars
        start, end = self._calls.start, self._end
        suspended: Waiting | None = None
        # Runners that start together share a turn.
        finished, most = 0, tuning.TURN_JOBS if self._taking == 1 else 1
        now = lease_clock()
        began = turn_began = perf_counter()
        turn_ends = began + tuning.TURN_SECONDS
        while ready and not self._is_stopping and finished < most and began < turn_ends:
            job = ready.popleft()
            if job.confirm or now >= job.start_by:
                # The claim has to be confirmed. Only as many as can start at once are: from the confirmation
                # on the attempt counts. ADR-0043
                if job not in self._unstarted:
                    continue
                if self._free_slots < 1:
                    ready.appendleft(job)
                    break
                job.confirm = True
                self._confirming += 1
                self._confirm(job)
                continue
            try:
                take(job)
            except KeyError:
                continue  # it was stopped or released
            job.has_begun = True
            task.set_name(job.job_id)
            own = copy_contextvars()
            try:
                begun = own.run(start, job)
            except BaseException as error:
                end(job, self._failed(job, own, error))
            else:
                if begun is not SUCCEEDED and isinstance(begun, tuple):
                    job.task, job.begun_at = task, now
                    self._suspended.add(job)
                    if self._first_heartbeat is None and not job.is_counted:
                        self._first_heartbeat = self._loop.call_later(
                            tuning.FIRST_HEARTBEAT_SECONDS, self._send_first_heartbeat
                        )
                    suspended = job, begun, own, began
                    break
                end(job, begun, own)
            finished += 1
            began = perf_counter()
            if task.cancelling():
                break  # its handler canceled it; the next handler must not be affected
        if finished:
            self._suspended_in_a_row = 0
            self._window.observe(began - turn_began, finished)
        self._suspended_in_a_row += suspended is not None
        return suspended

    def _send_first_heartbeat(self) -> None:
        """Have the first heartbeat sent for jobs that have run for a moment. Repeats for later ones."""
        latest = lease_clock() - tuning.FIRST_HEARTBEAT_SECONDS
        uncounted = [job.begun_at for job in self._suspended if not job.is_counted]
        self._first_heartbeat = None
        if any(begun_at <= latest for begun_at in uncounted):
            self._send_heartbeat()
        if any(begun_at > latest for begun_at in uncounted):
            self._first_heartbeat = self._loop.call_later(
                tuning.FIRST_HEARTBEAT_SECONDS, self._send_first_heartbeat
            )

    def _put_back(self, job: ClaimedJob) -> None:
        """Queue a job that has not started after all. It is the next one to be confirmed."""
        job.has_begun, job.task, job.confirm = False, None, True
        if not job.stop_reason:
            job.release_by = lease_clock() + tuning.HOLD_SECONDS
            self._unstarted.add(job)
            self._ready.appendleft(job)

    # ------------------------------------------------------------ the end of a job

    def _failed(self, job: ClaimedJob, own: contextvars.Context, error: BaseException) -> Outcome | None:
        """Return the outcome of a handler that raised, or None. Call it in the handler's task."""
        outcome = own.run(outcome_of, job, error, self._exit)
        if job.is_interrupted and not job.context.cancelled:
            self._loop.call_later(tuning.CANCELED_SECONDS, own.run, self._fail_canceled, job, error)
        return outcome

    def _fail_canceled(self, job: ClaimedJob, error: BaseException) -> None:
        """Fail a job that canceled its own task. Nothing else would end its claim.

        An event loop that shuts down also cancels the worker. The worker then stops first and
        releases the job.
        """
        job.span = None  # it has ended
        if not self._is_stopping and (outcome := failed(job, error)) is not None:
            job.is_interrupted = False
            job.outcome = outcome
            self._report(job)

    def _end(self, job: ClaimedJob, outcome: Outcome | None, own: contextvars.Context | None = None) -> None:
        """Report the outcome. `own` has the contextvars of the handler, if it has returned."""
        if job.limit is not None:
            self.time_limits.end(job)
        if own is not None and steps_of(job.context) is not None:
            outcome = own.run(concluded, job, outcome)
        if job.span is not None:
            job.span.end(outcome, job.stop_reason)
        if outcome is not None and not job.stop_reason:
            job.outcome = outcome
            self._report(job)

    def _give_up(self, job: ClaimedJob) -> None:
        """Report a job whose handler does not end, and continue without its slot."""
        stack = job.stack()
        self._suspended.discard(job)
        self._end(job, given_up(job, stack))
        self._lost.add(job, stack)

    def _exit(self, error: BaseException) -> None:
        self._is_stopping = True
        self._fatal(error)


_all: weakref.WeakSet[Runners] = weakref.WeakSet()


def _stop_in_child() -> None:
    """Keep a child that a handler has forked from running the same jobs, and reporting them.

    docs/figures.md#forks-and-gevent
    """
    for runners in list(_all):
        runners.stop_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stop_in_child)
