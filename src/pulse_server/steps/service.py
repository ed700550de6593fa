"""Steps: store them, list them, and pass signals to jobs. ADR-0069

Suspensions are reports (work/attempts.py). A loop forgets steps and signals whose job is gone. The statements
that complete or delete a job delete its steps and signals too. Leftovers come from servers of the release
before, which do not know steps.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from pulse_server.base.bounds import StepBounds
from pulse_server.base.errors import InvalidTransition, JobLocked, JobNotFound, PulseError, ResourceExhausted
from pulse_server.base.loops import Loop
from pulse_server.base.sharing import GroupCommit
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.reports import NewStep, SuspendReport, lost
from pulse_server.jobs.rules import TERMINAL, Claim, Ended, Step
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.steps.rules import (
    Signal,
    Swept,
    Take,
    too_large,
    too_large_signal,
    too_many_signals,
    too_many_steps,
)
from pulse_server.steps.store import PostgresStepRepo

# Rows per statement: enough to spread the cost of a commit, few enough that the statement stays at ~20 ms.
STEP_BATCH = 500
# Two statements in flight keep the database busy while this process prepares the next batch.
STEP_SLOTS = 2


class Steps:
    def __init__(
        self,
        steps: PostgresStepRepo,
        jobs: PostgresJobRepo,
        publisher: Publisher,
        bounds: StepBounds,
        *,
        grouping: type[GroupCommit[Any, Any]] = GroupCommit,
    ) -> None:
        self._steps = steps
        self._jobs = jobs
        self._publisher = publisher
        self.bounds = bounds
        self._commits: GroupCommit[NewStep, bool | None] = grouping(
            lambda new: self._steps.store_steps(new, bounds),
            slots=STEP_SLOTS,
            limit=STEP_BATCH,
            size_of=lambda step: step.size,
        )

    async def store(self, steps: Sequence[NewStep]) -> Sequence[Step | PulseError | None]:
        """Store the steps. Answers for each, in order: None if it was stored, else why not.

        This is the step that was stored under its name before; InvalidTransition, JobNotFound or JobLocked if
        the claim does not hold; ResourceExhausted if the step does not fit.
        """
        stored = await self._commits.add_all(steps)
        if all(stored):
            return [None] * len(steps)
        missed = {
            step.claim.job_id for step, is_stored in zip(steps, stored, strict=True) if is_stored is None
        }
        jobs = await self._jobs.look_up_jobs(missed) if missed else {}
        answers: list[Step | PulseError | None] = []
        for step, is_stored in zip(steps, stored, strict=True):
            if is_stored is None:
                answers.append(lost(step.claim, jobs.get(step.claim.job_id)))
            else:
                answers.append(None if is_stored else await self._known_or_too_much(step))
        return answers

    async def _known_or_too_much(self, step: NewStep) -> Step | ResourceExhausted:
        job_id = step.claim.job_id
        found = await self._steps.find_step(job_id, step.name)
        return found or ResourceExhausted(await self._what_is_too_much(job_id, step.name, step.size))

    async def take(self, claim: Claim, step: str, signal: str) -> Step | None:
        """Store the signal as a step and return it, or that it did not come in time.

        None: the job has to wait. Raises the errors that `store` answers with.
        """
        take = await self._steps.take_signal(claim, step, signal, self.bounds)
        if take is None:
            jobs = await self._jobs.look_up_jobs([claim.job_id])
            raise lost(claim, jobs.get(claim.job_id))
        if take == Take(None, is_over=True):
            raise ResourceExhausted(too_many_steps(self.bounds.steps))
        return take.step

    async def suspend(self, reports: Sequence[SuspendReport]) -> Mapping[Claim, Ended]:
        """Let the jobs of the claims that hold wait. Returns these claims."""
        suspended = await self._steps.suspend_jobs(reports, self.bounds)
        ended = {claim: end for claim, (end, _) in suspended.items()}
        ready = {end.topic for end, is_ready in suspended.values() if is_ready}
        self._publisher.suspended(ended, ready, too_many_steps(self.bounds.steps))
        return ended

    async def list(self, job_id: str) -> list[Step]:
        """Return the steps of the job, in order."""
        steps = await self._steps.list_steps(job_id)
        if not steps and await self._jobs.get_job(job_id) is None:
            raise JobNotFound(job_id)
        return steps

    async def signal(self, signal: Signal, *, by_operator: bool = True) -> None:
        """Pass a signal to a job that is not finished. A repeat changes nothing.

        Some room is left to operators: the signals of a program cannot keep theirs out.
        """
        bounds = self.bounds if by_operator else self.bounds.of_programs
        sent = await self._steps.signal_job(signal, bounds)
        if sent is not None and sent.is_stored:
            if sent.is_ready:
                self._publisher.promoted([sent.topic])
            return
        if await self._steps.knows_signal(signal):
            return
        if sent is not None:
            size = len(signal.name.encode()) + len(signal.value)
            raise ResourceExhausted(
                too_many_signals(bounds.steps, self.bounds.steps - bounds.steps)
                if sent.is_over
                else too_large_signal(
                    signal.name, size, bounds.signal_bytes, self.bounds.signal_bytes - bounds.signal_bytes
                )
            )
        job = await self._jobs.get_job(signal.job_id)
        if job is None:
            raise JobNotFound(signal.job_id)
        if job.status not in TERMINAL:
            raise JobLocked(job.id)
        raise InvalidTransition(
            job.id, f"Job {job.id} is {job.status}: only jobs that are not finished take signals."
        )

    async def _what_is_too_much(self, job_id: str, name: str, size: int) -> str:
        steps = await self._steps.list_steps(job_id)
        if len(steps) >= self.bounds.steps:
            return too_many_steps(self.bounds.steps)
        return too_large(name, size, self.bounds.bytes)


# Between two passes, and between two statements of one.
SWEEP_INTERVAL = timedelta(minutes=30)
SWEEP_PAUSE = timedelta(milliseconds=200)
# Rows looked at per statement: about 5 ms if all of them stay.
SWEEP_BATCH = 1000

_FIRST = str(UUID(int=0))

log = logging.getLogger(__name__)


class StepSweep:
    """Walks over the steps, then over the signals, one statement per tick, and rests in between."""

    def __init__(self, repo: PostgresStepRepo) -> None:
        self._walks: tuple[Callable[[str, int], Awaitable[Swept]], ...] = (
            repo.forget_steps,
            repo.forget_signals,
        )
        self._walk = 0
        self._reached = _FIRST
        self._forgotten = 0
        self.loop = Loop("steps", self.tick, SWEEP_INTERVAL)

    async def tick(self) -> timedelta:
        """Look at one batch. Returns how long to rest: shortly within a pass, an interval after it."""
        swept = await self._walks[self._walk](self._reached, SWEEP_BATCH)
        self._forgotten += swept.forgotten
        if swept.looked_at == SWEEP_BATCH and swept.reached is not None:
            self._reached = swept.reached
            return SWEEP_PAUSE
        self._reached = _FIRST
        self._walk = (self._walk + 1) % len(self._walks)
        if self._walk:
            return SWEEP_PAUSE
        if self._forgotten:
            log.info("steps_forgotten", extra={"rows": self._forgotten})
            self._forgotten = 0
        return SWEEP_INTERVAL
