"""Holds jobs from their delivery to their end, and stops those that are not ours any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from pulse import failpoints, tuning
from pulse.handlers.context import tell_to_stop
from pulse.handlers.registry import Registry
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import HeldJob, LeaseTerms
from pulse.worker.runners import Runners
from pulse.worker.window import Window

logger = logging.getLogger("pulse.worker")


class Executor:
    """Holds jobs and runs at most `concurrency` of them at once, in the order of their arrival.

    A job is held until its result was taken or its claim is lost. It is in `unstarted` until its handler
    starts, or it is stopped or released: it belongs to the thread that takes it out.
    """

    def __init__(
        self,
        registry: Registry,
        concurrency: int,
        terms: LeaseTerms,
        window: Window,
        worker_id: str,
        *,
        confirm: Callable[[HeldJob], None],
        give_back: Callable[[Iterable[HeldJob]], None],
        beat: Callable[[], None],
        report: Callable[[HeldJob], None],
        fatal: Callable[[BaseException], None],
    ) -> None:
        self.held: dict[str, HeldJob] = {}
        self.unstarted: set[HeldJob] = set()
        self._registry = registry
        self._terms = terms
        self._give_back = give_back
        self._runners = Runners(
            concurrency,
            window,
            worker_id,
            self.unstarted,
            confirm=confirm,
            beat=beat,
            report=report,
            fatal=fatal,
        )
        self.confirmed = self._runners.confirmed
        """Go on with jobs that the server was asked about."""
        self.wait = self._runners.add
        """Let jobs wait for their turn once more."""

    # ------------------------------------------------------------ taking

    @failpoints.before("worker.received")
    def accept(self, assignments: Iterable[pb.JobAssignment], age_seconds: float = 0.0) -> None:
        """Take jobs that the server delivered, having claimed them so long ago."""
        now = lease_clock()
        lease_end = now + self._terms.lease_seconds - age_seconds
        start_by = min(now + tuning.START_WITHIN_SECONDS - age_seconds, lease_end)
        return_by = now + tuning.HOLD_SECONDS
        held, handler_of = self.held, self._registry.get
        ready: list[HeldJob] = []
        released_again: list[HeldJob] = []
        for assignment in assignments:
            job_id = assignment.job_id
            known = held.get(job_id)
            # Once released, it may come back as the same attempt before it was let go of here.
            if known is not None and not known.stop_reason:
                if known.attempt == assignment.attempt:
                    if not known.has_begun and known not in self.unstarted and known not in ready:
                        # Its release was stored. A repeat would end this claim under its handler.
                        released_again.append(known)
                    continue  # delivered twice: the execution that stands speaks for it
                if known in ready:  # it came with this very message
                    ready.remove(known)
                self.stop([known], "it was delivered again, as another attempt")
            handler = handler_of(assignment.topic)
            if handler is None:
                logger.warning("Job %s has the topic %s, which nobody serves.", job_id, assignment.topic)
                continue
            job = held[job_id] = HeldJob(job_id, assignment, handler, lease_end, start_by, return_by)
            ready.append(job)
        self.unstarted.update(ready)
        self._runners.add(ready)
        if released_again:
            self.unstarted.update(released_again)
            self._give_back(released_again)

    def recall(self, topics: Collection[str]) -> None:
        """Give back the jobs of these topics, or of all if none is named, whose handlers have not started."""
        self._give_back([job for job in list(self.unstarted) if not topics or job.handler.topic in topics])

    def doubt(self) -> None:
        """The stream is broken: the server may have given away what has not started. Ask before it starts."""
        for job in list(self.unstarted):
            job.confirm = True

    def settled(self, jobs: Iterable[HeldJob]) -> None:
        """Let go of jobs: their results were taken or refused, or the claims were released."""
        held = self.held
        for job in jobs:
            if held.get(job.job_id) is job:
                del held[job.job_id]

    # ------------------------------------------------------------ stopping jobs

    def find(self, claims: Iterable[pb.Claim]) -> list[HeldJob]:
        """Return the jobs that are held by these very claims."""
        found = (self.held.get(claim.job_id) for claim in claims)
        return [job for job, claim in zip(found, claims, strict=True) if job and job.attempt == claim.attempt]

    def stop(self, jobs: Iterable[HeldJob], reason: str) -> None:
        """Cancel jobs whose claim is not ours any more. Nothing is reported for them."""
        for job in jobs:
            if self.held.get(job.job_id) is not job:
                continue
            del self.held[job.job_id]
            self.unstarted.discard(job)
            job.stop_reason = reason
            if job.has_begun and job.outcome is None:
                logger.info("Job %s (%s) is stopped: %s.", job.job_id, job.handler.topic, reason)
            self._cancel(job)

    def _cancel(self, job: HeldJob) -> None:
        tell_to_stop(job.context)
        # The task of a sync handler waits for its thread, which goes on until it looks at ctx.cancelled.
        if job.task is not None and job.handler.is_async:
            job.task.cancel()

    # ------------------------------------------------------------ stopping the worker

    def stop_starting(self) -> None:
        """Start no handler any more."""
        self._runners.stop_starting()

    def running_tasks(self) -> set[asyncio.Task[None]]:
        """Return the tasks of the handlers that run."""
        return {job.task for job in self._runners.suspended() if job.task is not None and not job.task.done()}

    def cancel_running(self) -> None:
        """Cancel every handler that runs, because the worker stops."""
        for job in self._runners.suspended():
            self._cancel(job)

    def not_begun(self) -> list[HeldJob]:
        """Return the jobs whose handler has not started, those that wait to be released among them."""
        return [job for job in self.held.values() if not (job.has_begun or job.stop_reason)]

    def given_back(self) -> list[HeldJob]:
        """Return the jobs whose handler was cancelled because the worker stops."""
        return [job for job in self.held.values() if job.is_given_back]

    def close(self) -> None:
        """End the threads."""
        self._runners.close()
