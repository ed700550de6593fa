"""Runs handlers in runners: tasks that take one ready job after the other.

A handler that returns without waiting for anything costs no task of its own. One that waits keeps its runner
to itself until it is done, and the runner ends with it, while another one goes on with the jobs behind. So no
two handlers that wait ever share a task, and to cancel a task is to cancel one job.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from types import CoroutineType
from typing import Any, cast

from pulse import failpoints, tuning
from pulse.handlers.calls import Call
from pulse.handlers.context import make_current
from pulse.outcomes import SUCCEEDED, Outcome
from pulse.tracing.optional import start_run
from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import HeldJob
from pulse.worker.steps import Steps, awaited, remaining_steps
from pulse.worker.threads import HandlerThreads
from pulse.worker.verdicts import judge
from pulse.worker.window import Window


class _Late(Exception):
    """The thread got to the job when it was not ours any more, or may not have been."""


# A job whose handler waits for something, its contextvars, and when it began.
Suspended = tuple[HeldJob, Steps, contextvars.Context, float]


class Runners:
    """Runs at most `concurrency` jobs at once, and starts them in the order in which they became ready."""

    def __init__(
        self,
        concurrency: int,
        window: Window,
        worker_id: str,
        unstarted: set[HeldJob],
        *,
        confirm: Callable[[HeldJob], None],
        beat: Callable[[], None],
        report: Callable[[HeldJob], None],
        fatal: Callable[[BaseException], None],
    ) -> None:
        """`beat`: have the handlers beaten that have run for a moment. Their attempts count from then on."""
        self._concurrency = concurrency
        self._window = window
        self._worker_id = worker_id
        self._unstarted = unstarted
        self._confirm = confirm
        self._beat = beat
        self._first_beat: asyncio.TimerHandle | None = None
        self._report = report
        self._fatal = fatal
        self._loop = asyncio.get_running_loop()
        self._threads = HandlerThreads(self._loop, concurrency)
        self._ready: deque[HeldJob] = deque()
        # How many jobs the server is asked about. Each has its slot: it starts with the answer.
        self._confirming = 0
        self._suspended: set[HeldJob] = set()
        self._suspended_in_a_row = 0
        # How many runners take jobs. All others each belong to a job that is suspended.
        self._taking = 0
        self._is_stopping = False
        # Every handler begins with the contextvars of run(), not with what the handler before it left behind.
        self._contextvars = contextvars.copy_context()

    def add(self, jobs: Iterable[HeldJob]) -> None:
        """Start the jobs soon, as far as there is room, or let them wait for their turn."""
        self._ready.extend(jobs)
        self._go_on()

    def confirmed(self, jobs: list[HeldJob]) -> None:
        """Start the jobs that the server has confirmed, before all others. Their slots are free again."""
        self._confirming -= len(jobs)
        self._ready.extendleft(job for job in reversed(jobs) if not job.confirm)
        self._go_on()

    def suspended(self) -> list[HeldJob]:
        """Return the jobs whose handlers have begun and are not done. Each has its task."""
        return list(self._suspended)

    def stop_starting(self) -> None:
        """Start no handler any more."""
        self._is_stopping = True

    def close(self) -> None:
        """End the threads."""
        if self._first_beat is not None:
            self._first_beat.cancel()
        self._threads.close()

    # ------------------------------------------------------------ runners

    def _go_on(self) -> None:
        """Have as many runners take jobs as the ready ones seem to need, unless some are about to."""
        if self._taking or not self._ready or self._is_stopping:
            return
        # One, as long as handlers do not wait. Where some did, more will: they are not to start one by one,
        # each in a later turn of the event loop.
        self._taking = max(0, min(len(self._ready), self._free_slots, 1 + self._suspended_in_a_row))
        for _ in range(self._taking):
            # Not by create_task: an eager factory would run the jobs here and now, and nest each in the last.
            asyncio.Task(self._run(), loop=self._loop, name="pulse-runner", context=self._contextvars.copy())

    @property
    def _free_slots(self) -> int:
        return self._concurrency - len(self._suspended) - self._confirming

    async def _run(self) -> None:
        try:
            suspended = self._take_jobs(cast("asyncio.Task[None]", asyncio.current_task(self._loop)))
        finally:
            self._taking -= 1
        self._go_on()
        if suspended is None:
            return
        job, steps, own, began = suspended
        outcome: Outcome | None = SUCCEEDED
        try:
            await remaining_steps(steps, own)
        except _Late:
            outcome = None
            self._put_back(job)
        except BaseException as error:
            outcome = own.run(judge, job, error, self._exit)
        self._suspended.discard(job)
        self._window.observe(perf_counter() - began)
        self._end(job, outcome)
        self._go_on()

    def _take_jobs(self, task: asyncio.Task[None]) -> Suspended | None:
        """Run ready jobs until others of the event loop are due, or one suspends. Returns that one."""
        ready, start, end, copy_contextvars = self._ready, self._start, self._end, self._contextvars.copy
        take = self._unstarted.remove
        suspended: Suspended | None = None
        # Runners that take jobs together have their turns together.
        finished, most = 0, tuning.TURN_JOBS if self._taking == 1 else 1
        now = lease_clock()
        began = turn_began = perf_counter()
        turn_ends = began + tuning.TURN_SECONDS
        while ready and not self._is_stopping and finished < most and began < turn_ends:
            job = ready.popleft()
            if job.confirm or now >= job.start_by:
                # The claim alone is not enough, or not any more: the server is asked first. Only for as many
                # as can start at once, because from its answer on an attempt counts. ADR-0043
                if job not in self._unstarted:
                    continue
                if self._free_slots < 1:
                    ready.appendleft(job)
                    break
                self._ask(job)
                continue
            try:
                take(job)
            except KeyError:
                continue  # it was stopped, or is released
            job.has_begun = True
            task.set_name(job.job_id)
            own = copy_contextvars()
            try:
                steps = own.run(start, job)
            except BaseException as error:
                end(job, own.run(judge, job, error, self._exit))
            else:
                if steps is not None:
                    job.task, job.begun_at = task, now
                    self._suspended.add(job)
                    if self._first_beat is None and not job.is_counted:
                        self._first_beat = self._loop.call_later(tuning.FIRST_BEAT_SECONDS, self._beat_first)
                    suspended = job, steps, own, began
                    break
                end(job, SUCCEEDED)
            finished += 1
            began = perf_counter()
            if task.cancelling():
                break  # its own handler has cancelled it, and the next one would feel it
        if finished:
            self._suspended_in_a_row = 0
            self._window.observe(began - turn_began, finished)
        self._suspended_in_a_row += suspended is not None
        return suspended

    def _beat_first(self) -> None:
        """Have those beaten that have run for a moment, and look again for those that began since."""
        latest = lease_clock() - tuning.FIRST_BEAT_SECONDS
        uncounted = [job.begun_at for job in self._suspended if not job.is_counted]
        self._first_beat = None
        if any(begun_at <= latest for begun_at in uncounted):
            self._beat()
        if any(begun_at > latest for begun_at in uncounted):
            self._first_beat = self._loop.call_later(tuning.FIRST_BEAT_SECONDS, self._beat_first)

    def _ask(self, job: HeldJob) -> None:
        job.confirm = True
        self._confirming += 1
        self._confirm(job)

    def _put_back(self, job: HeldJob) -> None:
        """The job has not started after all: it is the next one that the server is asked about."""
        job.has_begun, job.task, job.confirm = False, None, True
        if not job.stop_reason:
            job.return_by = lease_clock() + tuning.HOLD_SECONDS
            self._unstarted.add(job)
            self._ready.appendleft(job)

    # ------------------------------------------------------------ one job

    @failpoints.before("worker.starting")
    def _start(self, job: HeldJob) -> Steps | None:
        """Call the handler and step it once. Returns None if it is done."""
        handler, context = job.handler, job.context
        make_current(context)
        job.span = start_run(job.assignment, self._worker_id)
        arguments = handler.decode(job.assignment.payload)
        if handler.is_async:
            coroutine = handler.call(arguments, context)
            if type(coroutine) is not CoroutineType:
                coroutine = awaited(coroutine)
        else:
            coroutine = self._run_in_thread(job, handler.call, arguments)
        try:
            return coroutine, coroutine.send(None)
        except StopIteration:
            return None

    async def _run_in_thread(self, job: HeldJob, call: Call, arguments: Any) -> None:
        result = await self._threads.run(_call_in_time, job, call, arguments)
        if inspect.isawaitable(result):
            await result  # a plain function that made a coroutine: forgetting it would look like success

    def _end(self, job: HeldJob, outcome: Outcome | None) -> None:
        if job.span is not None:
            job.span.end(outcome, job.stop_reason)
        if outcome is not None and not job.stop_reason:
            job.outcome = outcome
            self._report(job)

    def _exit(self, error: BaseException) -> None:
        self._is_stopping = True
        self._fatal(error)


def _call_in_time(job: HeldJob, call: Call, arguments: Any) -> Any:
    # A thread may get its turn long after the event loop looked: on a busy machine, or after a freeze.
    if job.stop_reason or lease_clock() >= job.start_by:
        raise _Late
    return call(arguments, job.context)
