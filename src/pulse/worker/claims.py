"""Takes delivered jobs, and stops jobs whose claim is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from pulse import failpoints, tuning
from pulse.error_text import in_a_line
from pulse.handlers.registry import Registry
from pulse.handlers.step_calls import StepCalls
from pulse.handlers.workflows import completes_in_transaction
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import Held, HeldJob, LeaseTerms
from pulse.worker.releases import Releases
from pulse.worker.runners import Runners

logger = logging.getLogger("pulse.worker")


class Claims:
    """The jobs that this worker holds.

    A job is held until the server has its result or the claim is lost. It is in `unstarted` until its handler
    starts, or it is stopped or released: the thread that removes it owns it.
    """

    def __init__(
        self,
        held: Held,
        registry: Registry,
        terms: LeaseTerms,
        steps: StepCalls,
        runners: Runners,
        releases: Releases,
        stopped: Callable[[HeldJob], None] = lambda _job: None,
    ) -> None:
        """`stopped` receives each job whose claim is lost."""
        self.held = held.jobs
        self.unstarted = held.unstarted
        self._registry = registry
        self._terms = terms
        self._steps = steps
        self._runners = runners
        self._release_soon = releases.add
        self._stopped = stopped

    # ------------------------------------------------------------ deliveries

    @failpoints.before("worker.received")
    def accept(self, assignments: Iterable[pb.JobAssignment], age_seconds: float = 0.0) -> None:
        """Take delivered jobs. `age_seconds` is the time since they were claimed."""
        now = lease_clock()
        lease_end = now + self._terms.lease_seconds - age_seconds
        start_by = min(now + tuning.START_WITHIN_SECONDS - age_seconds, lease_end)
        release_by = now + tuning.HOLD_SECONDS
        held, handler_of, steps = self.held, self._registry.get, self._steps
        ready: list[HeldJob] = []
        for assignment in assignments:
            job_id = assignment.job_id
            known = held.get(job_id)
            if known is not None and not known.stop_reason:
                if known.run == assignment.run:
                    continue  # delivered twice: the first delivery runs
                if known in ready:  # it came with the same message
                    ready.remove(known)
                self.stop([known], "it was claimed again")
            handler = handler_of(assignment.topic)
            if handler is None:
                logger.warning(
                    "Job %s has the topic %s, which has no handler.", job_id, in_a_line(assignment.topic)
                )
                continue
            job = HeldJob(job_id, assignment, handler, lease_end, start_by, release_by, steps)
            held[job_id] = job
            ready.append(job)
        self.unstarted.update(ready)
        self._runners.add(ready)

    def recall(self, topics: Collection[str]) -> None:
        """Release unstarted jobs of the topics; of all topics if `topics` is empty."""
        self._release_soon([job for job in list(self.unstarted) if not topics or job.handler.topic in topics])

    def confirm_unstarted(self) -> None:
        """Confirm every job before it starts. For a lost stream: the server may have released the jobs."""
        for job in list(self.unstarted):
            job.confirm = True

    # ------------------------------------------------------------ stopping jobs

    def find(self, claims: Iterable[pb.Claim]) -> list[HeldJob]:
        """Return the held jobs of the claims."""
        found = (self.held.get(claim.job_id) for claim in claims)
        return [job for job, claim in zip(found, claims, strict=True) if job and job.run == claim.run]

    def stop(self, jobs: Iterable[HeldJob], reason: str) -> None:
        """Cancel jobs whose claim is lost. Nothing is reported for them.

        A handler that has called `ctx.complete` goes on: its transaction may have been committed, which also
        ends the claim. If the claim was lost before, the transaction is refused.
        """
        for job in jobs:
            if self.held.get(job.job_id) is not job or completes_in_transaction(job.context):
                continue
            del self.held[job.job_id]
            self.unstarted.discard(job)
            job.stop_reason = reason
            if job.has_begun and job.outcome is None:
                logger.info("Job %s (%s) is stopped: %s.", job.job_id, job.handler.topic, reason)
            self._runners.cancel(job)
            self._stopped(job)
