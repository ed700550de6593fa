"""Ends handlers that have reached their time limit, or were canceled. ADR-0061

A handler is interrupted: a task is canceled, an error is raised in a thread or a process. A process
that does not stop is killed. A handler that still runs after a grace is given up: its slot is lost
until it ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from pulse import tuning
from pulse.error_text import in_a_line
from pulse.errors import SlotsLost
from pulse.handlers.context import records_of, request_stop
from pulse.outcomes import Cancelled, TimedOut
from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import HeldJob, TimeLimit
from pulse.worker.threads import raise_in_thread, take_back
from pulse.worker.window import Window


class TimeLimits:
    """Watches the handlers that have a limit, with one timer. It does not know other handlers."""

    def __init__(self, lose: Callable[[HeldJob], None]) -> None:
        """`lose` is called for a job whose handler is given up."""
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        # The contextvars of the worker: the timer that one job sets ends other jobs too.
        self._contextvars = contextvars.copy_context()
        self._thread_id = threading.get_ident()
        # At most one for each slot: a search at each deadline is cheaper than a sorted order.
        self._watched: dict[HeldJob, TimeLimit] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def begin(self, job: HeldJob) -> None:
        """Watch a job that starts now and has a limit. Call it in its task and contextvars."""
        seconds = _limit_of(job).total_seconds()
        due = lease_clock() + seconds
        if job.handler.options.process:
            due += tuning.CHILD_START_SECONDS
        task = asyncio.current_task(self._loop)
        job.limit = TimeLimit(seconds, due, task, own=contextvars.copy_context())
        self._watch(job, job.limit)

    def restart(self, job: HeldJob) -> None:
        """Count the time of a job from now on: its process has imported the application."""
        limit = self._watched.get(job)
        if limit is not None and not limit.is_interrupted:
            limit.due = lease_clock() + limit.seconds
            self._watch(job, limit)

    def end(self, job: HeldJob) -> None:
        """Forget a job whose handler has ended."""
        self._watched.pop(job, None)

    def cancel(self, job: HeldJob) -> None:
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

    def _watch(self, job: HeldJob, limit: TimeLimit) -> None:
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

    def _advance(self, job: HeldJob, limit: TimeLimit) -> None:
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

    def _interrupt(self, job: HeldJob, limit: TimeLimit, error: type[Cancelled]) -> None:
        limit.is_interrupted = True
        limit.due = lease_clock() + tuning.TIME_LIMIT_GRACE_SECONDS
        if job.call is not None:
            job.call.interrupt(error)
        elif job.task is not None:
            job.task.cancel()

    # ------------------------------------------------------------ in the heartbeat thread

    def look_at_blocked_loop(self) -> HeldJob | None:
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


def _limit_of(job: HeldJob) -> timedelta:
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
        slots: int,
        exit_at: int | None,
        window: Window,
        *,
        announce: Callable[[], None],
        stop: Callable[[BaseException], None],
    ) -> None:
        """`stop` is called once `exit_at` slots are lost; None means half of them."""
        self._slots = slots
        self._exit_at = min(exit_at or (slots + 1) // 2, slots)
        self._window = window
        self._announce = announce
        self._stop = stop
        self._jobs: set[HeldJob] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: HeldJob, stack: str) -> None:
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

    def discard(self, job: HeldJob) -> bool:
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
