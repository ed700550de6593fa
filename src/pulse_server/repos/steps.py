"""The port to the steps of jobs and the signals to them. Every write is fenced by the claim of its worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pulse_server.domain.jobs import Claim, Ended
from pulse_server.domain.reports import NewStep, SuspendReport
from pulse_server.domain.steps import Sent, Signal, Step, StepBounds, Swept, Take


class StepRepo(Protocol):
    async def store_steps(self, steps: Sequence[NewStep], bounds: StepBounds) -> list[bool | None]:
        """Store the steps. Answers for each, in order: None if the claim does not hold or its row
        is locked, False if the job has a step of that name or the step does not fit."""
        ...

    async def suspend_jobs(
        self, reports: Sequence[SuspendReport], bounds: StepBounds
    ) -> dict[Claim, tuple[Ended, bool]]:
        """Put jobs whose claims still hold back to wait. This costs no attempt.

        Returns the claims that counted. The flag is set if the job is ready again because its
        signal is there.
        """
        ...

    async def take_signal(self, claim: Claim, step: str, signal: str, bounds: StepBounds) -> Take | None:
        """Store the oldest signal of the names, one name per line, as a step, or store the timeout.

        Returns the stored step, or no step if the job has to wait. None: the claim does not hold,
        or its row is locked.
        """
        ...

    async def find_step(self, job_id: str, name: str) -> Step | None:
        """The stored step of that name."""
        ...

    async def list_steps(self, job_id: str) -> list[Step]:
        """The steps of a job, in order. A completed job's steps have no values."""
        ...

    async def signal_job(self, signal: Signal, bounds: StepBounds) -> Sent | None:
        """Store a signal for an unfinished job. None: the job is finished, missing or locked."""
        ...

    async def knows_signal(self, signal: Signal) -> bool:
        """Whether this signal was stored before."""
        ...

    async def forget_steps(self, after: str, limit: int) -> Swept:
        """Delete steps of deleted jobs. Looks at the jobs after `after`."""
        ...

    async def forget_signals(self, after: str, limit: int) -> Swept:
        """Delete signals of deleted jobs. Looks at the jobs after `after`."""
        ...
