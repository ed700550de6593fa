"""Releases jobs that have not started, so that they can run elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import grpc

from pulse import failpoints, tuning
from pulse.supervision.supervised import stack_of_thread
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import Held, HeldJob
from pulse.worker.window import Window

logger = logging.getLogger("pulse.worker")

_ASYNCIO = str(Path(asyncio.__file__).parent) + os.sep
_SELECTORS = f"{os.sep}selectors.py"


class Releases:
    """Releases jobs that were recalled, and jobs that have waited too long for a handler.

    `send` runs in the heartbeat thread: jobs behind a handler that blocks the event loop are released too,
    and the capacity is reduced until the loop responds. The thread that removes a job from `unstarted` owns
    it. ADR-0043
    """

    def __init__(
        self,
        worker_id: str,
        window: Window,
        held: Held,
        woken: threading.Event,
        announce: Callable[[], None],
    ) -> None:
        """`woken` wakes the heartbeat thread. `announce` is called in the event loop after a stall."""
        self._worker_id = worker_id
        self._window = window
        self._held = held.jobs
        self._unstarted = held.unstarted
        self._released = held.settled
        self._woken = woken
        self._announce = announce
        self._loop = asyncio.get_running_loop()
        self._loop_thread_id = threading.get_ident()
        self._waiting: deque[HeldJob] = deque()
        # The server has a capacity below the window, until the event loop responds.
        self._is_stalled = False
        # That capacity, until the server has acknowledged it.
        self._capacity = 0
        self._asked_loop_at: float | None = None
        self._looked_at = lease_clock()
        self._is_block_logged = False

    def take(self, jobs: Iterable[HeldJob]) -> list[HeldJob]:
        """Remove jobs from `unstarted`. Returns the removed jobs: their handlers do not start."""
        taken = []
        for job in jobs:
            try:
                self._unstarted.remove(job)
            except KeyError:
                continue  # it has started, or another thread took it
            taken.append(job)
        return taken

    def add(self, jobs: Iterable[HeldJob]) -> None:
        """Release the jobs that have not started, soon."""
        self._waiting.extend(self.take(jobs))
        self._woken.set()

    def send(self, call: Callable[[pb.ReleaseRequest], pb.ReleaseResponse]) -> bool:
        """Release due jobs. Returns whether every call succeeded; the next call sends the rest."""
        now = lease_clock()
        # list() of a set is atomic: the event loop cannot change the set during the copy.
        overdue = self.take([job for job in list(self._unstarted) if now >= job.release_by])
        self._waiting.extend(overdue)
        is_blocked = self._is_blocked(now)
        if overdue or (is_blocked and not self._is_stalled):
            self._capacity = self._stall(len(overdue))
        while self._waiting or self._capacity or is_blocked:
            size = min(len(self._waiting), tuning.CLAIMS_PER_RELEASE)
            jobs = [self._waiting.popleft() for _ in range(size)]
            is_answered, again = self._release(call, jobs, is_blocked)
            # Repeated until the server has answered, even after the lease: a confirmation of the job may have
            # been stored, and then only the release gives its attempt back.
            self._waiting.extendleft(job for job in reversed(again) if not job.stop_reason)
            if again or not is_answered:
                return False
            is_blocked = False
        return True

    def _is_blocked(self, now: float) -> bool:
        """True if the event loop has not responded for as long as a job may wait."""
        # If this thread stood still as well, the whole process did.
        stood_still = now >= self._looked_at + tuning.HOLD_SECONDS
        self._looked_at = now
        if self._asked_loop_at is not None:
            is_blocked = now >= self._asked_loop_at + tuning.HOLD_SECONDS
            if is_blocked and not (stood_still or self._is_block_logged):
                self._log_block(now - self._asked_loop_at)
            return is_blocked
        if self._held or self._is_stalled:
            self._asked_loop_at = now
            self._call_in_loop(self._loop_responds)
        return False

    def _log_block(self, seconds: float) -> None:
        """Log the handler's code that blocks the event loop, once for each time that it is blocked."""
        frame = sys._current_frames().get(self._loop_thread_id)
        if frame is None or frame.f_code.co_filename.startswith(_ASYNCIO):
            return  # about to run: the machine was busy
        if frame.f_code.co_filename.endswith(_SELECTORS):
            return  # idle
        self._is_block_logged = True
        logger.warning(
            "The event loop has been blocked for %.1f s. No other job of the worker goes on meanwhile. "
            "Use async calls, `await asyncio.to_thread(…)`, or make the handler a `def`. It is here:\n%s",
            seconds,
            stack_of_thread(self._loop_thread_id),
        )

    def _loop_responds(self) -> None:
        self._asked_loop_at, self._is_block_logged = None, False
        if self._is_stalled:
            self._is_stalled, self._capacity = False, 0
            self._announce()

    def _capacity_was_sent(self, capacity: int) -> None:
        """Announce the window again if the event loop responds: this capacity overwrote it."""
        if not self._is_stalled:
            self._window.acknowledged(capacity)
            self._announce()

    @failpoints.before("worker.returning")
    def _release(
        self, call: Callable[[pb.ReleaseRequest], pb.ReleaseResponse], jobs: list[HeldJob], is_blocked: bool
    ) -> tuple[bool, list[HeldJob]]:
        """Release the jobs. Returns whether the server answered, and the jobs to release again."""
        request = pb.ReleaseRequest(
            worker_id=self._worker_id, claims=[job.claim() for job in jobs], capacity=self._capacity
        )
        if is_blocked:
            # Deliveries since then are not among these, and nothing here can read them.
            request.is_blocked = True
            request.held.extend(job.claim() for job in list(self._held.values()) if not job.stop_reason)
        try:
            response = call(request)
        except grpc.RpcError:
            return False, jobs
        finally:
            if request.capacity:
                self._call_in_loop(self._capacity_was_sent, request.capacity)
        self._capacity = 0
        # Another session of the database has these rows locked.
        locked = {claim.job_id for claim in response.locked}
        released = [job for job in jobs if job.job_id not in locked]
        for job in released:
            job.stop_reason = "it was released"
        self._call_in_loop(self._released, released)
        return True, [job for job in jobs if job.job_id in locked]

    def _stall(self, overdue: int) -> int:
        """Reduce the capacity to the running jobs, until the event loop responds. Returns it."""
        running = sum(1 for job in list(self._held.values()) if job.has_begun and job.outcome is None)
        capacity = max(1, running)
        self._window.stall(capacity)
        self._is_stalled = True
        if overdue:
            logger.info(
                "%d jobs waited more than %.0f s for a handler and are released to run elsewhere.",
                overdue,
                tuning.HOLD_SECONDS,
            )
        return capacity

    def _call_in_loop(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return  # the event loop is closed; no handler runs
