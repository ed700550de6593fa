"""Workflows. Each method sends the SQL section of the same name. ADR-0077"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import cast
from uuid import UUID

import asyncpg

from pulse_server.base import tuning
from pulse_server.base.errors import Unavailable, WorkflowExists
from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Database
from pulse_server.database.statements import DEFINED, NEW_JOB, Fetch, Rows, statements
from pulse_server.jobs.inserts import TRIES
from pulse_server.jobs.new_jobs import Scope
from pulse_server.jobs.reads import cancellation_from_row, job_from_row
from pulse_server.jobs.reports import rest_of_canceled
from pulse_server.jobs.rules import LIVE, REDRIVABLE, Claim, Job, Level
from pulse_server.workflows.rules import (
    Addition,
    CanceledWorkflow,
    NewNode,
    Node,
    Settled,
    Stored,
    Workflow,
    WorkflowBounds,
    WorkflowsLocked,
)

_SQL = statements("workflows/store.sql", "jobs/transitions/jobs.sql", "jobs/queries.sql")
# Jobs that a cancel of a workflow locks and cancels in its first transaction, and for how long. A larger
# workflow, or a slow database, is canceled in further ones.
CANCELED_AT_ONCE = 20_000
CANCELED_WITHIN = timedelta(seconds=2)
# A retry is one transaction, of 100,000 jobs at the most. It takes 1 s for 10,000.
RETRIED_WITHIN = timedelta(seconds=15)
# Jobs of one statement.
BATCH = 1000
_PUBLISHED = frozenset(
    {"id", "topic", "workflow_id", "status", "priority", "attempts", "max_attempts", "submitted_at"}
    | {"next_run_at", "ended_worker_id", "ended_attempt", "ended_run"}
)
_TAKEN = "PU003"
_TAKEN_MEANWHILE = "Another submit has just taken the unique key of a job in this workflow. Try again."


class PostgresWorkflowRepo:
    def __init__(self, database: Database, lease: timedelta = tuning.LEASE_TTL) -> None:
        self._database = database
        self._lease = lease

    async def store_workflow(
        self, workflow_id: str, name: str, digest: bytes, nodes: Sequence[NewNode]
    ) -> Stored:
        """Store the workflow with all its jobs, or find it. Parents come before their children.

        Raises WorkflowExists if unique keys are taken: nothing is stored then.
        """
        definition = await asyncio.to_thread(_definition, nodes)
        try:
            ((is_new, is_same, ids),) = await self._database.operators.fetch(
                "store_workflow", _SQL["store_workflow"], workflow_id, name, digest, None, definition
            )
        except asyncpg.UniqueViolationError as error:
            raise WorkflowExists(_TAKEN_MEANWHILE) from error
        except asyncpg.PostgresError as error:
            if error.sqlstate != _TAKEN:
                raise
            raise WorkflowExists(
                f"Other jobs hold the unique keys of {error.args[0]}: nothing of the workflow was stored."
            ) from error
        return Stored(is_new, is_same is True, [str(job_id) for job_id in ids or ()])

    async def add_to_workflow(
        self, claim: Claim, nodes: Sequence[NewNode], bounds: WorkflowBounds
    ) -> Addition:
        definition = json.dumps(
            [_job(node) | {"after": list(node.after), "before": list(node.before)} for node in nodes],
            default=_written,
        )
        try:
            ((problem, names, workflow_id, ids, added),) = await self._database.hot.fetch(
                "add_to_workflow", _SQL["add_to_workflow"], *claim, definition, *bounds
            )
        except asyncpg.UniqueViolationError as error:
            raise WorkflowExists(_TAKEN_MEANWHILE) from error
        return Addition(
            problem,
            names or (),
            str(workflow_id) if workflow_id else None,
            [str(job_id) for job_id in ids or ()],
            added,
        )

    async def noticed_workflows(self, limit: int) -> list[str]:
        rows = await self._database.hot.fetch("noticed_workflows", _SQL["noticed_workflows"], limit)
        return [str(workflow_id) for (workflow_id,) in rows]

    async def settle_workflows(
        self, *, workflows: int, notices: int, rounds: int, jobs: int, wanted: Sequence[str] | None = None
    ) -> Settled:
        rows = await self._database.hot.fetch(
            "settle_workflows",
            _SQL["settle_workflows"],
            workflows,
            notices,
            rounds,
            jobs,
            wanted,
            if_locked=_leave_them,
        )
        levels: list[Level] = []
        dropped: dict[str, list[str]] = {}
        finished: list[str] = []
        ready, is_more = 0, False
        for kind, topic, priority, count, age_seconds, ids in rows:
            if kind == "ready":
                levels.append(Level(topic, priority, age_seconds))
                ready += count
            elif kind == "dropped":
                dropped.setdefault(topic, []).extend(map(str, ids))
            elif kind == "finished":
                finished = [str(workflow_id) for workflow_id in ids]
            else:
                is_more = True
        return Settled(levels, ready, dropped, finished, is_more)

    async def cancel_workflow(self, workflow_id: str, reason: str) -> CanceledWorkflow:
        """Let no further job become ready or start, if one has not ended.

        Jobs that do not wait are canceled in the same transaction; settlers cancel the waiting ones.
        """
        left: list[str] = []
        end = monotonic() + CANCELED_WITHIN.total_seconds()

        async def work(fetch: Fetch) -> Rows:
            marked = await fetch(_SQL["cancel_workflow"], workflow_id)
            rows = list(marked)
            if marked[0]["is_canceled"]:
                unended = await fetch(_SQL["leave_workflow"], workflow_id, CANCELED_AT_ONCE)
                left.extend(str(row["id"]) for row in unended if not row["is_free"])
                for ids in _batches([row["id"] for row in unended if row["is_free"]]):
                    if monotonic() > end:
                        left.extend(map(str, ids))
                        continue
                    rows += _brief(await fetch(_SQL["cancel_jobs"], ids, reason, list(LIVE), None))
            return rows

        marked, *rows = await self._database.operators.transact("cancel_workflow", work)
        return CanceledWorkflow(
            bool(marked["is_canceled"]), [cancellation_from_row(row) for row in rows], left
        )

    async def retry_workflow(self, workflow_id: str, attempts: int, *, at_once: bool = False) -> list[Job]:
        """Retry the jobs that ended without success, and end the cancel of the workflow.

        In one transaction: a retry that fails changes nothing. Returns the jobs, without those that the
        workflow itself had canceled.
        """
        rest = rest_of_canceled(self._lease)
        is_careful = False

        async def work(fetch: Fetch) -> Rows:
            marked = await fetch(_SQL["retry_workflow"], workflow_id)
            rows = list(marked)
            ids = [row["id"] for row in await fetch(_SQL["unsuccessful_workflow_jobs"], workflow_id)]
            if is_careful:
                held = await fetch(_SQL["unique_holders"], ids, [Scope.LIVE.value])
                ids = list(set(ids).difference(row["id"] for row in held))
            for some in _batches(ids):
                wanted = list(REDRIVABLE)
                rows += _brief(
                    await fetch(_SQL["retry_jobs"], some, attempts, wanted, False, rest, at_once, None)
                )
            if marked and marked[0]["was_canceled"]:
                await fetch(_SQL["bring_back"], workflow_id)
            return rows

        for _ in range(TRIES):
            try:
                rows = await self._database.operators.transact("retry_workflow", work, RETRIED_WITHIN)
            except asyncpg.UniqueViolationError:
                is_careful = True  # a job whose unique key another job holds now stays as it is
            else:
                return [job_from_row(row) for row in rows[1:]]
        raise Unavailable("Jobs with the unique keys of these kept coming and going. Try again.")

    async def get_workflow(self, workflow_id: str) -> Workflow | None:
        rows = await self._read("get_workflow", workflow_id)
        return _workflow(rows[0]) if rows else None

    async def list_workflows(
        self, name: str | None, status: str | None, *, limit: int, after: PageKey | None
    ) -> list[Workflow]:
        moment, last_id = (after.moment, after.id) if after else (None, None)
        return [
            _workflow(row) for row in await self._read("list_workflows", name, status, moment, last_id, limit)
        ]

    async def list_workflow_jobs(
        self,
        workflow_id: str,
        *,
        child: str | None,
        names: Sequence[str] | None,
        unended: bool,
        results: bool,
        after: int,
        limit: int,
    ) -> list[Node]:
        """The jobs after this number, in order; only parents of the child, or jobs with the names."""
        rows = await self._read(
            "list_workflow_jobs", workflow_id, child, names, unended, after, limit, results
        )
        return [Node(**{**row, "job_id": str(row["job_id"])}) for row in rows]

    async def find_workflow_job(self, job_id: str) -> str | None:
        """The workflow of the job."""
        rows = await self._read("find_workflow_job", job_id)
        return str(rows[0]["workflow_id"]) if rows else None

    async def _read(self, name: str, *args: object) -> Sequence[asyncpg.Record]:
        return await self._database.reads.fetch(name, _SQL[name], *args)


def _batches(ids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    ordered = sorted(ids)
    for begin in range(0, len(ordered), BATCH):
        yield ordered[begin : begin + BATCH]


def _brief(rows: Rows) -> Rows:
    """The columns that are published and audited. Metadata and errors of 10,000 jobs take much memory."""
    brief = [{name: value for name, value in row.items() if name in _PUBLISHED} for row in rows]
    return cast("Rows", brief)


def _definition(nodes: Sequence[NewNode]) -> str:
    numbers = {node.name: number for number, node in enumerate(nodes, 1)}
    return json.dumps(
        [_job(node) | {"after": sorted({numbers[parent] for parent in node.after})} for node in nodes],
        default=_written,
    )


def _workflow(row: asyncpg.Record) -> Workflow:
    schedule_id = row["schedule_id"]
    return Workflow(**{**row, "id": str(row["id"]), "schedule_id": str(schedule_id) if schedule_id else None})


def _job(node: NewNode) -> dict[str, object]:
    """The job as the functions take it: without the fields that have their defaults."""
    columns: dict[str, object] = {name: NEW_JOB[name].of(node.job) for name in DEFINED}
    columns["metadata"] = node.job.metadata
    given = {name: value for name, value in columns.items() if value or name == "payload"}
    return {"name": node.name, "when": node.when.value} | given


async def _leave_them(_: Fetch) -> Rows:
    raise WorkflowsLocked("Another session of the database has locked rows of these workflows.")


def _written(value: object) -> object:
    """A value as the functions read it."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
    raise TypeError(f"{value!r} cannot be in the definition of a workflow.")
