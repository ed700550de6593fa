"""The port to the steps of jobs and the signals to them. Every write is fenced by the claim of its worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pulse_server.domain.jobs import Claim, Ended
from pulse_server.domain.reports import SuspendReport
from pulse_server.domain.steps import NewStep, Sent, Signal, Step, StepLimits, Swept, Take


class StepRepo(Protocol):
    async def store_steps(self, steps: Sequence[NewStep], limits: StepLimits) -> list[bool | None]:
        """Store the steps. Answers for each, in order: None if the claim does not hold or its row is locked,
        False if a step of the name is there or it does not fit."""
        ...

    async def suspend_jobs(
        self, reports: Sequence[SuspendReport], limits: StepLimits
    ) -> dict[Claim, tuple[Ended, bool]]:
        """Let what the claims still hold wait, without costing an attempt.

        Returns the claims that counted, and whether their jobs are ready again: the signal has come.
        """
        ...

    async def take_signal(self, claim: Claim, step: str, signal: str, limits: StepLimits) -> Take | None:
        """Store the oldest signal of the names, one in each line, as a step, or that it did not come in time.

        Returns the stored step, or none if the job has to wait. None: the claim does not hold, or its row is
        locked.
        """
        ...

    async def find_step(self, job_id: str, name: str) -> Step | None:
        """The stored step of that name."""
        ...

    async def list_steps(self, job_id: str) -> list[Step]:
        """The steps of a job, in order. Those of a completed one are without values."""
        ...

    async def signal_job(self, signal: Signal, limits: StepLimits) -> Sent | None:
        """Store a signal for a job that is not finished. None: it is, or there is none, or it is locked."""
        ...

    async def knows_signal(self, signal: Signal) -> bool:
        """Whether this signal was stored before."""
        ...

    async def forget_steps(self, after: str, limit: int) -> Swept:
        """Delete steps whose job is gone, of the jobs after this one."""
        ...

    async def forget_signals(self, after: str, limit: int) -> Swept:
        """Delete signals whose job is gone, of the jobs after this one."""
        ...
