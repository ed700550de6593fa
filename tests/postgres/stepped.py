"""Jobs with steps in each store, and shortcuts for tests of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pulse_server.domain.ids import new_id
from pulse_server.domain.jobs import Claim, Ended
from pulse_server.domain.reports import SuspendReport
from pulse_server.domain.status import JobStatus
from pulse_server.domain.steps import NewStep, Sent, Signal, Step, StepBounds
from pulse_server.memory.jobs import InMemoryJobRepo
from pulse_server.memory.steps import InMemoryStepRepo
from pulse_server.postgres.database import Database
from pulse_server.repos.steps import StepRepo
from tests.fakes.store import Store
from tests.fakes.time_machines import InMemoryTimeMachine
from tests.postgres.sessions import Connection

HOUR = timedelta(hours=1)
BOUNDS = StepBounds(steps=10, bytes=10_000)


@dataclass
class Stepped:
    store: Store
    steps: StepRepo

    async def step(self, claim: Claim, name: str = "fetch", value: bytes = b"1") -> bool | None:
        (answer,) = await self.steps.store_steps([NewStep(claim, name, value)], BOUNDS)
        return answer

    async def sleep(self, claim: Claim, delay: timedelta = HOUR, step: str = "sleep") -> Ended | None:
        return await self.suspend(claim, step, delay=delay)

    async def wait(
        self, claim: Claim, signal: str = "approved", delay: timedelta | None = None, step: str = ""
    ) -> Ended | None:
        return await self.suspend(claim, step or signal, signal=signal, delay=delay)

    async def suspend(self, claim: Claim, step: str, **how: Any) -> Ended | None:
        answers = await self.steps.suspend_jobs([SuspendReport(claim, step, **how)], BOUNDS)
        return answers[claim][0] if claim in answers else None

    async def take(self, claim: Claim, signal: str = "approved", step: str = "") -> Step | None:
        taken = await self.steps.take_signal(claim, step or signal, signal, BOUNDS)
        assert taken is not None, "the claim does not hold"
        return taken.step

    async def signal(
        self, job_id: str, name: str = "approved", value: bytes = b"true", signal_id: str = ""
    ) -> Sent | None:
        return await self.steps.signal_job(Signal(signal_id or new_id(), job_id, name, value), BOUNDS)

    async def values(self, job_id: str) -> dict[str, bytes | None]:
        return {step.name: step.value for step in await self.steps.list_steps(job_id)}

    async def names(self, job_id: str) -> list[str]:
        return [step.name for step in await self.steps.list_steps(job_id)]

    async def rows(self) -> tuple[int, int]:
        """How many steps with their values, and how many signals, are stored in all."""
        raise NotImplementedError

    async def end_waits(self) -> None:
        """Move the end of all sleeps and waits into the past."""
        raise NotImplementedError

    async def is_ready(self, job_id: str) -> bool:
        return (await self.store.job(job_id)).ready


@dataclass
class StoredSteps(Stepped):
    """Over Postgres."""

    database: Database
    connection: Connection

    async def rows(self) -> tuple[int, int]:
        return (
            await self.connection.fetchval("SELECT count(*) FROM pulse.job_steps"),
            await self.connection.fetchval("SELECT count(*) FROM pulse.job_signals"),
        )

    async def end_waits(self) -> None:
        await self.connection.execute(
            "UPDATE pulse.job_steps SET until = now() - interval '1 hour' WHERE until IS NOT NULL"
        )


class StepsInMemory(Stepped):
    def __init__(self) -> None:
        self._jobs = InMemoryJobRepo()
        super().__init__(Store(self._jobs, InMemoryTimeMachine(self._jobs)), InMemoryStepRepo(self._jobs))

    async def rows(self) -> tuple[int, int]:
        jobs = self._jobs.jobs
        completed = {job_id for job_id in jobs if jobs[job_id].status is JobStatus.COMPLETED}
        return (
            sum(len(rows) for job_id, rows in self._jobs.steps.items() if job_id not in completed),
            sum(map(len, self._jobs.signals.values())),
        )

    async def end_waits(self) -> None:
        past = self._jobs.clock.now() - HOUR
        for rows in self._jobs.steps.values():
            rows[:] = [row._replace(until=past) if row.until else row for row in rows]
