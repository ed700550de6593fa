"""Holds jobs from delivery to their end, and stops those whose claim is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from pulse import failpoints, tuning
from pulse.handlers.registry import Registry
from pulse.handlers.step_line import StepLine
from pulse.log_text import in_a_line
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import HeldJob, LeaseTerms
from pulse.worker.late_results import LateResults
from pulse.worker.lost_slots import LostSlots
from pulse.worker.processes import Processes
from pulse.worker.runners import Runners
from pulse.worker.window import Window

logger = logging.getLogger("pulse.worker")


class Executor:
    """Holds jobs and runs at most `concurrency` of them at once, in order of arrival.

    A job is held until the server has its result or the claim is lost. It is in `unstarted` until its handler
    starts, or it is stopped or released: the thread that removes it owns it.
    """

    def __init__(
        self,
        registry: Registry,
        concurrency: int,
        terms: LeaseTerms,
        window: Window,
        line: StepLine,
        *,
        confirm: Callable[[HeldJob], None],
        release_soon: Callable[[Iterable[HeldJob]], None],
        send_heartbeat: Callable[[], None],
        report: Callable[[HeldJob], None],
        fatal: Callable[[BaseException], None],
        lost: LostSlots,
        late_results: LateResults,
        processes: Processes,
    ) -> None:
        self.held: dict[str, HeldJob] = {}
        self.unstarted: set[HeldJob] = set()
        self._registry = registry
        self._terms = terms
        self._line = line
        self._release_soon = release_soon
        self._late_results = late_results
        self._runners = Runners(
            concurrency,
            window,
            line.worker_id,
            terms,
            self.unstarted,
            confirm=confirm,
            send_heartbeat=send_heartbeat,
            report=report,
            fatal=fatal,
            lost=lost,
            processes=processes,
        )
        self.confirmed = self._runners.confirmed
        """Continue with jobs that were confirmed, or could not be."""
        self.wait = self._runners.add
        """Queue jobs again."""
        self.prepare = self._runners.prepare
        """Prepare to start handlers, once the resources are open."""
        self.look_at_blocked_loop = self._runners.limits.look_at_blocked_loop

    # ------------------------------------------------------------ deliveries

    @failpoints.before("worker.received")
    def accept(self, assignments: Iterable[pb.JobAssignment], age_seconds: float = 0.0) -> None:
        """Take delivered jobs. `age_seconds` is the time since they were claimed."""
        now = lease_clock()
        lease_end = now + self._terms.lease_seconds - age_seconds
        start_by = min(now + tuning.START_WITHIN_SECONDS - age_seconds, lease_end)
        release_by = now + tuning.HOLD_SECONDS
        held, handler_of, line = self.held, self._registry.get, self._line
        late_results = self._late_results or ()
        ready: list[HeldJob] = []
        released_again: list[HeldJob] = []
        for assignment in assignments:
            job_id = assignment.job_id
            known = held.get(job_id)
            # A released job may be delivered again, as the same attempt, before it is removed here.
            if known is not None and not known.stop_reason:
                if known.attempt == assignment.attempt:
                    if not known.has_begun and known not in self.unstarted and known not in ready:
                        # Its release was stored. A repeat of it would end this claim while the handler runs.
                        released_again.append(known)
                    continue  # delivered twice: the first delivery runs
                if known in ready:  # it came with the same message
                    ready.remove(known)
                self.stop([known], "it was delivered again, as another attempt")
            if late_results and (job_id, assignment.attempt) in late_results:
                continue  # the result that came late has ended this claim
            handler = handler_of(assignment.topic)
            if handler is None:
                logger.warning(
                    "Job %s has the topic %s, which has no handler.", job_id, in_a_line(assignment.topic)
                )
                continue
            job = HeldJob(job_id, assignment, handler, lease_end, start_by, release_by, line)
            held[job_id] = job
            ready.append(job)
        self.unstarted.update(ready)
        self._runners.add(ready)
        if released_again:
            self.unstarted.update(released_again)
            self._release_soon(released_again)

    def recall(self, topics: Collection[str]) -> None:
        """Release the jobs of these topics that have not started; of all topics if none is named."""
        self._release_soon([job for job in list(self.unstarted) if not topics or job.handler.topic in topics])

    def confirm_unstarted(self) -> None:
        """Confirm every job before it starts. For a lost stream: the server may have released the jobs."""
        for job in list(self.unstarted):
            job.confirm = True

    def settled(self, jobs: Iterable[HeldJob]) -> None:
        """Remove jobs whose results were accepted or refused, or whose claims were released."""
        held = self.held
        for job in jobs:
            if held.get(job.job_id) is job:
                del held[job.job_id]

    # ------------------------------------------------------------ stopping jobs

    def find(self, claims: Iterable[pb.Claim]) -> list[HeldJob]:
        """Return the held jobs of these claims."""
        found = (self.held.get(claim.job_id) for claim in claims)
        return [job for job, claim in zip(found, claims, strict=True) if job and job.attempt == claim.attempt]

    def stop(self, jobs: Iterable[HeldJob], reason: str) -> None:
        """Cancel jobs whose claim is lost. Nothing is reported for them."""
        for job in jobs:
            if self.held.get(job.job_id) is not job:
                continue
            del self.held[job.job_id]
            self.unstarted.discard(job)
            job.stop_reason = reason
            if job.has_begun and job.outcome is None:
                logger.info("Job %s (%s) is stopped: %s.", job.job_id, job.handler.topic, reason)
            self._runners.limits.cancel(job)

    # ------------------------------------------------------------ stopping the worker

    def stop_starting(self) -> None:
        """Start no further handler."""
        self._runners.stop_starting()

    def running_tasks(self) -> set[asyncio.Task[None]]:
        """Return the tasks of the running handlers."""
        return {job.task for job in self._runners.suspended() if job.task is not None and not job.task.done()}

    def cancel_running(self) -> None:
        """Cancel all running handlers, because the worker stops."""
        for job in self._runners.suspended():
            self._runners.limits.cancel(job)

    def kill_running(self) -> bool:
        """Kill the running handlers that are processes. Returns whether there were any."""
        return sum(job.call.kill() for job in self._runners.suspended() if job.call is not None) > 0

    def not_begun(self) -> list[HeldJob]:
        """Return the jobs that have not started, including those that wait to be released."""
        return [job for job in self.held.values() if not (job.has_begun or job.stop_reason)]

    def interrupted(self) -> list[HeldJob]:
        """Return the jobs whose handler was canceled because the worker stops."""
        return [job for job in self.held.values() if job.is_interrupted]

    def close(self) -> None:
        """End the threads."""
        self._runners.close()
