"""Jobs with steps in the store and in the model, and shortcuts for tests of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pulse_server.base.bounds import StepBounds
from pulse_server.base.ids import new_id
from pulse_server.database.connections import Database
from pulse_server.jobs.reports import NewStep, SuspendReport
from pulse_server.jobs.rules import Claim, Ended, Step
from pulse_server.steps.rules import Sent, Signal
from pulse_server.steps.store import PostgresStepRepo
from tests.fakes.store import Store
from tests.model.jobs import ModelTime
from tests.model.steps import StepModel
from tests.postgres.sessions import Connection

HOUR = timedelta(hours=1)
BOUNDS = StepBounds(steps=10, bytes=10_000)


@dataclass
class Stepped:
    store: Store
    steps: PostgresStepRepo | StepModel

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


class ModeledSteps(Stepped):
    """In the model."""

    def __init__(self) -> None:
        self._model = StepModel()
        super().__init__(Store(self._model, ModelTime(self._model)), self._model)

    async def rows(self) -> tuple[int, int]:
        return self._model.rows()

    async def end_waits(self) -> None:
        self._model.end_waits(self._model.now() - HOUR)
