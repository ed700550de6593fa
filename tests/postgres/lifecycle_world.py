"""A real store beside its model, driven step by step from synchronous code, with every change on record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import asyncpg
import uvloop

from pulse_server.base.errors import PulseError
from pulse_server.database.connections import Database
from pulse_server.jobs.leases import PostgresLeaseCheckRepo
from pulse_server.jobs.reads import job_from_row
from pulse_server.jobs.reports import Completions
from pulse_server.jobs.rules import Claim, ClaimedJob, Ended, Job, JobStatus
from pulse_server.jobs.store import PostgresJobRepo
from tests.fakes.time_machines import PostgresTimeMachine
from tests.model.jobs import JobModel, ModelTime

Answer = TypeVar("Answer")

# Records each status that a row takes, by any change.
_AUDIT = """
CREATE TABLE public.audit (number bigserial PRIMARY KEY, job_id uuid, old_status text, new_status text);
CREATE FUNCTION public.record_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.audit (job_id, old_status, new_status)
    VALUES (NEW.id, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status);
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_inserted AFTER INSERT ON pulse.jobs
    FOR EACH ROW EXECUTE FUNCTION public.record_status();
CREATE TRIGGER jobs_updated AFTER UPDATE ON pulse.jobs
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION public.record_status();

-- A completed job is deleted in one table and inserted into the other.
CREATE TABLE public.deleted (number bigserial PRIMARY KEY, job_id uuid, old_status text);
CREATE FUNCTION public.record_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.deleted (job_id, old_status) VALUES (OLD.id, OLD.status);
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_deleted AFTER DELETE ON pulse.jobs
    FOR EACH ROW EXECUTE FUNCTION public.record_delete();
CREATE FUNCTION public.record_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.audit (job_id, old_status, new_status)
    SELECT NEW.id, deleted.old_status, 'COMPLETED'
    FROM public.deleted WHERE deleted.job_id = NEW.id ORDER BY deleted.number DESC LIMIT 1;
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_moved AFTER INSERT ON pulse.completed_jobs
    FOR EACH ROW EXECUTE FUNCTION public.record_move();
"""

_JOBS = "SELECT * FROM pulse.all_jobs"
_UNCHECKED = """
SELECT count(*) FROM pulse.jobs AS job
WHERE job.locked_by IS NOT NULL AND NOT EXISTS (
    SELECT FROM pulse.lease_checks AS lease_check
    WHERE job.id = ANY (lease_check.ids) AND lease_check.check_at <= job.lease_until
)
"""


class Sight(NamedTuple):
    jobs: dict[str, Job]
    current: Collection[Claim]
    changes: list[tuple[str | None, str]]  # of status, in order


class World:
    """Owns an event loop and the connections to one database."""

    def __init__(self, dsn: str) -> None:
        self._loop = uvloop.new_event_loop()  # a walk is thousands of short statements
        self._database = Database(dsn)
        self._connection: Any = self.run(asyncpg.connect(dsn, timeout=60, command_timeout=60))
        self.run(self._connection.execute(_AUDIT))
        self.repo = PostgresJobRepo(self._database)
        self._lease_checks = PostgresLeaseCheckRepo(self._database)
        self._time = PostgresTimeMachine(self._connection)
        self.forget_everything()

    def run(self, action: Awaitable[Answer]) -> Answer:
        return self._loop.run_until_complete(action)

    def forget_everything(self) -> None:
        """Start over with no job, here and in the model."""
        self.run(
            self._connection.execute(
                "DELETE FROM pulse.jobs; DELETE FROM pulse.completed_jobs; DELETE FROM pulse.lease_checks; "
                "DELETE FROM public.audit"
            )
        )
        self.model = JobModel()
        self._model_time = ModelTime(self.model)

    def both(self, ask: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """Ask the store and the model. Returns the answer that they agree on."""

        async def ask_both() -> tuple[Answer, Answer]:
            return await ask(self.repo), await ask(self.model)

        real, predicted = self.run(ask_both())
        assert _comparable(real) == _comparable(predicted)
        return real

    def travel(self, move: Callable[[Any], Awaitable[None]]) -> None:
        async def move_both() -> None:
            await move(self._time)
            await move(self._model_time)

        self.run(move_both())

    def postpone(self, job_ids: Collection[str]) -> None:
        """Put off the next attempt by a day: no wait may pass by itself while a test is slow."""
        self.run(
            self._connection.execute(
                "UPDATE pulse.jobs SET next_run_at = next_run_at + interval '1 day' "
                "WHERE id = ANY($1::uuid[]) AND status = 'RETRYING'",
                list(job_ids),
            )
        )
        for job_id in job_ids:
            job = self.model.jobs[job_id]
            if job.status is JobStatus.RETRYING:
                self.model.jobs[job_id] = replace(job, next_run_at=job.next_run_at + timedelta(days=1))

    def settle_claims(self) -> None:
        """The claims so far are a few seconds old, and the settler passes by."""
        self.run(self._connection.execute("UPDATE pulse.lease_checks SET check_at = now() WHERE NOT settled"))
        self.run(self._lease_checks.settle_claims(1000))

    def look(self, issued: Sequence[Claim]) -> Sight:
        """What is stored now, which of the claims are good, and what has happened since the last look."""

        async def look() -> Sight:
            assert not await self._connection.fetchval(_UNCHECKED), "its lease could expire unnoticed"
            jobs = map(job_from_row, await self._connection.fetch(_JOBS))
            changes = await self._connection.fetch(
                "DELETE FROM public.audit RETURNING number, old_status, new_status"
            )
            return Sight(
                jobs={job.id: job for job in jobs},
                current=await self.repo.current_claims(issued),
                changes=[(change["old_status"], change["new_status"]) for change in sorted(changes)],
            )

        return self.run(look())

    def close(self) -> None:
        self.run(self._database.close())
        self._connection.terminate()
        self.run(asyncio.sleep(0))  # the transports close in the next turn of the loop
        self._loop.close()


_MOMENTS = ("submitted_at", "next_run_at", "lease_until", "started_at", "finished_at")
_other_facts = attrgetter(
    *(part.name for part in fields(Job) if part.name not in (*_MOMENTS, "history", "metadata"))
)


def without_moments(job: Job) -> Any:
    """The job with each moment replaced by whether there is one: the two clocks do not agree."""
    return (
        _other_facts(job),
        (job.lease_until is None, job.started_at is None, job.finished_at is None),
        tuple((past.attempt, past.worker_id, past.outcome, past.error) for past in job.history),
    )


def _comparable(answer: Any) -> Any:
    """An answer in a form in which the store's and the model's are equal if they mean the same."""
    if isinstance(answer, Job):
        return without_moments(answer)
    if isinstance(answer, PulseError):
        return type(answer), str(answer)
    if isinstance(answer, Completions):
        return dict(answer.with_topics())
    if isinstance(answer, Ended):
        return answer._replace(ran_seconds=0.0)
    if isinstance(answer, ClaimedJob):
        return answer._replace(waited_seconds=0.0, age_seconds=None)
    if isinstance(answer, dict):
        return {key: _comparable(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [_comparable(item) for item in answer]
    return answer
