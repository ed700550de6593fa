"""Workflows. Each method sends the SQL section of the same name. ADR-0077"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from datetime import datetime, timedelta

import asyncpg

from pulse_server.domain.errors import WorkflowExists
from pulse_server.domain.jobs import Claim, Level, PageKey
from pulse_server.domain.workflows import (
    Addition,
    NewNode,
    Node,
    Settled,
    Stored,
    Workflow,
    WorkflowBounds,
    WorkflowsLocked,
)
from pulse_server.postgres.columns import DEFINED, NEW_JOB
from pulse_server.postgres.database import Database, Fetch, Rows
from pulse_server.postgres.statements import statements

_SQL = statements("workflows.sql")
_TAKEN = "PU003"
_TAKEN_MEANWHILE = "Another submit has just taken the unique key of a job in this workflow. Try again."


class PostgresWorkflowRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

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
            *("settle_workflows", _SQL["settle_workflows"], workflows, notices, rounds, jobs, wanted),
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

    async def cancel_workflow(self, workflow_id: str) -> bool:
        """Let no further job become ready. Returns whether a job had not ended."""
        (row,) = await self._act("cancel_workflow", workflow_id)
        return bool(row["is_canceled"])

    async def leave_workflow(self, workflow_id: str) -> list[str]:
        """Have the waiting jobs of a canceled workflow canceled. Returns the others that have not ended."""
        return [str(row["id"]) for row in await self._act("leave_workflow", workflow_id)]

    async def unsuccessful_workflow_jobs(self, workflow_id: str) -> list[str]:
        """The jobs that ended without success, but for those that the workflow canceled."""
        return [str(row["id"]) for row in await self._act("unsuccessful_workflow_jobs", workflow_id)]

    async def reopen_workflow(self, workflow_id: str) -> None:
        """End the cancel of the workflow, if it was canceled as a whole."""
        await self._act("reopen_workflow", workflow_id)

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

    async def _act(self, name: str, *args: object) -> Sequence[asyncpg.Record]:
        return await self._database.operators.fetch(name, _SQL[name], *args)

    async def _read(self, name: str, *args: object) -> Sequence[asyncpg.Record]:
        return await self._database.reads.fetch(name, _SQL[name], *args)


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
