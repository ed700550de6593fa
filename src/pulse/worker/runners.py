"""Runs handlers in runners: tasks that run one ready job after the other.

A handler that returns without waiting needs no separate task. A handler that waits keeps its runner,
which ends with it, and another runner continues. So canceling a task cancels one job.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import cast

from pulse import tuning
from pulse.handlers.context import steps_of
from pulse.outcomes import SUCCEEDED, Outcome
from pulse.worker.clock import lease_clock
from pulse.worker.handler_calls import Begun, HandlerCalls, Late, rest_of
from pulse.worker.handler_errors import failed, given_up, outcome_of
from pulse.worker.held_jobs import Held, HeldJob, LeaseTerms
from pulse.worker.processes import Processes
from pulse.worker.returned import concluded, succeeded
from pulse.worker.sentry import contextvars_of_process, copies_for_attempts
from pulse.worker.time_limits import LostSlots, TimeLimits
from pulse.worker.window import Window

# A job whose handler waits for something, its coroutine and contextvars, and its start.
Waiting = tuple[HeldJob, Begun, contextvars.Context, float]


class Runners:
    """Runs at most `concurrency` jobs at once, in the order in which they became ready."""

    def __init__(
        self,
        concurrency: int,
        window: Window,
        worker_id: str,
        terms: LeaseTerms,
        held: Held,
        *,
        confirm: Callable[[HeldJob], None],
        send_heartbeat: Callable[[], None],
        report: Callable[[HeldJob], None],
        fatal: Callable[[BaseException], None],
        lost: LostSlots,
        processes: Processes,
    ) -> None:
        """`send_heartbeat` extends leases after a moment: the attempts count."""
        self._concurrency = concurrency
        self._window = window
        self._terms = terms
        self._unstarted = held.unstarted
        self._confirm, self._report, self._fatal = confirm, report, fatal
        self._send_heartbeat, self._lost = send_heartbeat, lost
        self._first_heartbeat: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        # Every handler starts with the contextvars of run(), not of the handler before it.
        self._contextvars = contextvars_of_process()
        self._copy_contextvars = self._contextvars.copy
        self.time_limits = TimeLimits(self._give_up)
        self.cancel = self.time_limits.cancel
        """Interrupt the handler of a job, if it has started."""
        self._calls = HandlerCalls(self._loop, concurrency, worker_id, terms, self.time_limits, processes)
        self._ready: deque[HeldJob] = deque()
        # The number of jobs that are being confirmed. Each has a slot: it starts with the answer.
        self._confirming = 0
        self._suspended: set[HeldJob] = set()
        self._suspended_in_a_row = 0
        # The number of runners that take jobs. Each other runner belongs to a suspended job.
        self._taking = 0
        self._is_stopping = False
        _all.add(self)

    def prepare(self) -> None:
        """Prepare to start handlers. Call it before the first job, once the resources are open."""
        self._copy_contextvars = copies_for_attempts(self._contextvars)

    def add(self, jobs: Iterable[HeldJob]) -> None:
        """Queue the jobs. They start as slots become free."""
        self._ready.extend(jobs)
        self._go_on()

    def confirmed(self, jobs: list[HeldJob]) -> None:
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

    def _put_back(self, job: HeldJob) -> None:
        """Queue a job that has not started after all. It is the next one to be confirmed."""
        job.has_begun, job.task, job.confirm = False, None, True
        if not job.stop_reason:
            job.release_by = lease_clock() + tuning.HOLD_SECONDS
            self._unstarted.add(job)
            self._ready.appendleft(job)

    # ------------------------------------------------------------ the end of a job

    def _failed(self, job: HeldJob, own: contextvars.Context, error: BaseException) -> Outcome | None:
        """Return the outcome of a handler that raised, or None. Call it in the handler's task."""
        outcome = own.run(outcome_of, job, error, self._exit)
        if job.is_interrupted and not job.context.cancelled:
            self._loop.call_later(tuning.CANCELED_SECONDS, own.run, self._fail_canceled, job, error)
        return outcome

    def _fail_canceled(self, job: HeldJob, error: BaseException) -> None:
        """Fail a job that canceled its own task. Nothing else would end its claim.

        An event loop that shuts down also cancels the worker. The worker then stops first and
        releases the job.
        """
        job.span = None  # it has ended
        if not self._is_stopping and (outcome := failed(job, error)) is not None:
            job.is_interrupted = False
            job.outcome = outcome
            self._report(job)

    def _end(self, job: HeldJob, outcome: Outcome | None, own: contextvars.Context | None = None) -> None:
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

    def _give_up(self, job: HeldJob) -> None:
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
