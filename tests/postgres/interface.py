"""The store as applications reach it: jobs are stored by the functions of the interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from pulse.handlers import workflows
from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.errors import AlreadyExists, PulseError
from pulse_server.base.ids import completion_key
from pulse_server.database.connections import Database
from pulse_server.database.statements import metadata_to_json
from pulse_server.jobs.new_jobs import NewJob, Submitted
from pulse_server.jobs.rules import Claim
from pulse_server.jobs.store import PostgresJobRepo
from tests.postgres.sessions import Connection
from tests.postgres_cluster import SECRET


async def enqueue(connection: Connection, **arguments: Any) -> tuple[str, bool, bool]:
    """Call pulse.enqueue. Returns the id, whether it is a duplicate, and whether that was replaced."""
    named = ", ".join(f"{name} => ${number}" for number, name in enumerate(arguments, 1))
    row = await connection.fetchrow(f"SELECT * FROM pulse.enqueue({named})", *arguments.values())
    return str(row["job_id"]), row["duplicate"], row["replaced"]


async def complete(connection: Connection, claim: Claim, result: bytes | None = None) -> None:
    """Call pulse.complete_job as the worker of the claim does."""
    await complete_with(connection, claim, token_of(claim), result)


async def complete_with(
    connection: Connection, claim: Claim, token: bytes | None, result: bytes | None = None
) -> None:
    """Call pulse.complete_job with this token."""
    await connection.execute(
        "SELECT pulse.complete_job($1, $2, $3, $4, $5)",
        *(UUID(claim.job_id), claim.worker_id, claim.run, token, result),
    )


def token_of(claim: Claim, secret: bytes = SECRET) -> bytes:
    """The token that the worker of the claim makes of its key."""
    assert claim.worker_id is not None
    assignment = pb.JobAssignment(job_id=claim.job_id, run=claim.run or 0)
    token = workflows.token_of(completion_key(secret, claim.worker_id), assignment)
    assert token is not None
    return token


class InterfaceRepo(PostgresJobRepo):
    """The real store, with pulse.enqueue in place of the statements that insert."""

    def __init__(self, database: Database, connection: Connection) -> None:
        super().__init__(database)
        self._connection = connection

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        return [await self._enqueue(job) for job in jobs]

    async def insert_rich_jobs(self, jobs: Sequence[NewJob]) -> list[Submitted | PulseError]:
        return [await self._enqueue(job) for job in jobs]

    async def _enqueue(self, job: NewJob) -> Submitted | PulseError:
        given: dict[str, Any] = {
            "topic": job.topic,
            "payload": job.payload,
            "priority": job.priority,
            "run_at": job.run_at,
            "delay": job.delay,
            "max_attempts": job.max_attempts,
            "start_within": job.start_within,
            "lane": job.lane,
            "key": job.idempotency_key,
            "metadata": metadata_to_json(job.metadata),
            "id": job.id,
        }
        if job.unique is not None:
            given |= {
                "unique_key": job.unique.key,
                "unique_scope": job.unique.scope.value,
                "on_conflict": job.unique.on_conflict.value,
                "period": job.unique.period,
                "longest": job.unique.longest,
            }
            if job.unique.on_conflict.value == "debounce":
                given["delay"] = None
        try:
            job_id, duplicate, replaced = await enqueue(self._connection, **given)
            return Submitted(job_id, duplicate, is_replaced=replaced)
        except asyncpg.UniqueViolationError as error:
            named_by = (
                f"job_id {job.id}" if "The id" in str(error) else f"idempotency_key {job.idempotency_key!r}"
            )
            return AlreadyExists(named_by, str(error.as_dict()["detail"]))
