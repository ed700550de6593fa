"""Workflows in a transaction of the application. ADR-0077"""

from __future__ import annotations

import base64
from datetime import UTC
from typing import Any

import msgspec

from pulse import connections
from pulse.blocking.enqueue_middleware import surround_topics_blocking
from pulse.blocking.workflows import SyncWorkflow, SyncWorkflowHandle
from pulse.client import Pulse
from pulse.connections import Statement
from pulse.errors import InvalidArgument, InvalidMiddleware
from pulse.handlers.registry import surround_topics
from pulse.messages import storable
from pulse.sql.sending import finished
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.redirection import check_database
from pulse.workflows import Workflow, WorkflowHandle

_CALL = (
    "SELECT job_ids::text[], duplicate "
    "FROM pulse.enqueue_workflow(name => $1::text, jobs => $2::jsonb, id => $3::uuid)"
)


def enqueue_workflow(connection: Any, workflow: Workflow | SyncWorkflow, /, *, strict: bool = False) -> Any:
    """Store a workflow in the transaction of the connection. Returns its handle: await it if that is async.

    `workflow` has no block: `workflow = p.workflow("nightly")`, then `workflow.add(…)` as usual. All
    its jobs are stored with your rows, or none. Its jobs have no unique keys here. The rest is as for
    `enqueue`.
    """
    if not isinstance(workflow, Workflow | SyncWorkflow):
        raise InvalidArgument(f"Give a workflow, as p.workflow(…) makes it, not {workflow!r}.")
    check_database()
    client: Any = workflow._client
    topics = workflow._topics()
    is_async = connections.is_async(connection)

    async def store() -> WorkflowHandle | SyncWorkflowHandle:
        values = [workflow.name, _definition(workflow), workflow.id]
        statement = Statement(_CALL, values, "enqueue_workflow", needs_transaction=strict)
        if is_async:
            job_ids, duplicate = await connections.fetch_async(connection, statement)
        else:
            job_ids, duplicate = connections.fetch(connection, statement)
        assert isinstance(client, Pulse)
        connections.call_after_commit(connection, client._wake)
        handle = workflow._handle_of(job_ids, duplicate=duplicate)
        workflow._handle = workflow._wrapped(handle) if isinstance(workflow, SyncWorkflow) else handle
        return workflow.handle

    if not isinstance(workflow, SyncWorkflow):
        storing = surround_topics(client._enqueue_middleware, topics, store)
        return storing if is_async else finished(storing)
    middleware = workflow._blocking._enqueue_middleware
    if not is_async:
        return surround_topics_blocking(middleware, topics, lambda: finished(store()))
    if middleware:
        raise InvalidMiddleware(
            "The middleware of a SyncPulse cannot surround an enqueue with an async connection: use a Pulse."
        )
    return store()


def _definition(workflow: Workflow | SyncWorkflow) -> str:
    return msgspec.json.encode([_job(job) for job in workflow._jobs.values()]).decode()


def _job(job: pb.WorkflowJob) -> dict[str, Any]:
    """Return the job as pulse.enqueue_workflow takes it."""
    request = storable(job.job)
    if request.HasField("unique"):
        raise InvalidArgument(
            f"The job {job.name!r} is unique. Jobs of a workflow in a transaction have no unique keys."
        )
    given: dict[str, Any] = {
        "name": job.name,
        "topic": request.topic,
        "payload_base64": base64.b64encode(request.payload).decode(),
        "after": list(job.after),
        "when": job.when,
        "priority": request.priority,
        "metadata": dict(request.metadata),
        "lane": request.lane,
    }
    if request.HasField("run_at"):
        given["run_at"] = request.run_at.ToDatetime(tzinfo=UTC).isoformat()
    if request.HasField("delay"):
        given["delay"] = request.delay.ToTimedelta().total_seconds()
    if request.HasField("start_within"):
        given["start_within"] = request.start_within.ToTimedelta().total_seconds()
    if request.HasField("max_attempts"):
        name = "default_attempts" if request.max_attempts_is_default else "max_attempts"
        given[name] = request.max_attempts
    return {name: value for name, value in given.items() if value or name == "payload_base64"}
