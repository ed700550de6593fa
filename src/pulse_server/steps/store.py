"""Steps and signals. Each method sends the SQL section of the same name. ADR-0069"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pulse_server.base.bounds import StepBounds, error_group
from pulse_server.database.connections import Connections, Database
from pulse_server.database.statements import Rows, statements
from pulse_server.jobs.leases import RowLocks, step_from_row
from pulse_server.jobs.reads import claim_columns, ended_from_rows, progress_column
from pulse_server.jobs.reports import NewStep, SuspendReport
from pulse_server.jobs.rules import Claim, Ended, Step, StepKind
from pulse_server.steps.rules import Sent, Signal, Swept, Take, too_many_steps

_SQL = statements("steps/transitions.sql", "steps/store.sql", "jobs/locks.sql")


class PostgresStepRepo:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = RowLocks(_SQL)

    async def store_steps(self, steps: Sequence[NewStep], bounds: StepBounds) -> list[bool | None]:
        """Store the steps. Answers for each, in order: None if the claim does not hold or its row
        is locked, False if the job has a step of that name or the step does not fit."""
        order = sorted(range(len(steps)), key=lambda index: steps[index].claim.job_id)
        ordered = [steps[index] for index in order]
        rows = await self._rows.fetch(
            self._database.hot,
            "store_steps",
            *claim_columns([step.claim for step in ordered]),
            [step.name for step in ordered],
            [step.value for step in ordered],
            [step.ran for step in ordered],
            *bounds,
        )
        answers: list[bool | None] = [None] * len(steps)
        for place, is_stored in rows:
            answers[order[place - 1]] = is_stored
        return answers

    async def suspend_jobs(
        self, reports: Sequence[SuspendReport], bounds: StepBounds
    ) -> dict[Claim, tuple[Ended, bool]]:
        """Put jobs whose claims still hold back to wait. This costs no attempt.

        Returns the claims that counted. The flag is set if the job is ready again because its
        signal is there.
        """
        ordered = sorted(reports, key=lambda report: report.claim.job_id)
        problem = too_many_steps(bounds.steps)
        rows = await self._rows.fetch(
            self._database.hot,
            "suspend_jobs",
            *claim_columns([report.claim for report in ordered]),
            [report.step for report in ordered],
            [report.signal for report in ordered],
            [report.delay for report in ordered],
            bounds.steps,
            problem,
            error_group(problem),
            progress_column(report.progress for report in ordered),
        )
        ended = ended_from_rows(tuple(row)[:-1] for row in rows)
        return {claim: (end, row["queued"]) for (claim, end), row in zip(ended.items(), rows, strict=True)}

    async def take_signal(self, claim: Claim, step: str, signal: str, bounds: StepBounds) -> Take | None:
        """Store the oldest signal of the names, one name per line, as a step, or store the timeout.

        Returns the stored step, or no step if the job has to wait. None: the claim does not hold,
        or its row is locked.
        """
        rows = await self._rows.fetch(
            self._database.hot,
            "take_signal",
            [claim.job_id],
            *claim[1:],
            step,
            signal,
            bounds.steps,
        )
        if not rows:
            return None
        ((is_over, is_stored),) = rows
        # A statement that runs at the same time may have stored it.
        found = await self.find_step(claim.job_id, step) if is_stored or is_over else None
        return Take(found, is_over)

    async def find_step(self, job_id: str, name: str) -> Step | None:
        """The stored step of that name."""
        rows = await self._fetch(self._database.hot, "find_step", job_id, name)
        return step_from_row(rows[0]) if rows else None

    async def list_steps(self, job_id: str) -> list[Step]:
        """The steps of a job, in order. A completed job's steps have no values."""
        rows = await self._fetch(self._database.reads, "list_steps", job_id)
        if rows:
            return [step_from_row(row) for row in rows]
        done = await self._fetch(self._database.reads, "timeline_of_completed", job_id)
        return steps_of_timeline(done[0]["timeline"]) if done else []

    async def signal_job(self, signal: Signal, bounds: StepBounds) -> Sent | None:
        """Store a signal for an unfinished job. None: the job is finished, missing or locked."""
        rows = await self._rows.fetch(
            self._database.hot,
            "signal_job",
            [signal.job_id],
            signal.id,
            signal.name,
            signal.value,
            bounds.steps,
            bounds.signal_bytes,
        )
        return Sent(*rows[0]) if rows else None

    async def knows_signal(self, signal: Signal) -> bool:
        """Whether this signal was stored before."""
        ((is_known,),) = await self._fetch(self._database.hot, "knows_signal", signal.job_id, signal.id)
        return bool(is_known)

    async def forget_steps(self, after: str, limit: int) -> Swept:
        """Delete steps of deleted jobs. Looks at the jobs after `after`."""
        return await self._forget("forget_steps", after, limit)

    async def forget_signals(self, after: str, limit: int) -> Swept:
        """Delete signals of deleted jobs. Looks at the jobs after `after`."""
        return await self._forget("forget_signals", after, limit)

    async def _forget(self, name: str, after: str, limit: int) -> Swept:
        ((looked_at, forgotten, reached),) = await self._fetch(self._database.hot, name, after, limit)
        return Swept(looked_at, forgotten, None if reached is None else str(reached))

    async def _fetch(self, connections: Connections, name: str, *args: object) -> Rows:
        return await connections.fetch(name, _SQL[name], *args)


def steps_of_timeline(timeline: str | None) -> list[Step]:
    """The steps in the JSON of a completed job."""
    return [] if timeline is None else [_step_of_timeline(entry) for entry in json.loads(timeline)]


def _step_of_timeline(entry: dict[str, Any]) -> Step:
    """The step of a completed job."""
    started_at, stored_at, until = (
        datetime.fromisoformat(entry[name]) if name in entry else None
        for name in ("started_at", "stored_at", "until")
    )
    assert started_at is not None, "every step has started"
    return Step(
        name=entry["name"],
        kind=StepKind(entry["kind"]),
        attempt=entry["attempt"],
        started_at=started_at,
        stored_at=stored_at,
        until=until,
        signal_id=entry.get("signal"),
        value=None,
        size=entry.get("bytes", 0),
        is_due=True,
    )
