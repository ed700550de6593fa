"""Workflows as tests submit and read them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest


def node(name: str, *after: str, when: str = "", before: Iterable[str] = (), **job: Any) -> pb.WorkflowJob:
    request = pb.SubmitJobRequest(**({"topic": "mail", "payload": name.encode()} | job))
    return pb.WorkflowJob(job=request, name=name, after=after, when=when, before=before)


def submitting(
    server: ServerUnderTest,
    *nodes: pb.WorkflowJob,
    workflow_id: str = "",
    name: str = "nightly",
    size: int = 2,
) -> Any:
    """Submit the jobs in pieces."""

    async def pieces() -> AsyncIterator[pb.SubmitWorkflowRequest]:
        head = {"workflow_id": workflow_id or str(uuid4()), "name": name}
        for begin in range(0, len(nodes), size) or [0]:
            yield pb.SubmitWorkflowRequest(**head, jobs=nodes[begin : begin + size])
            head = {}

    return server.stub.SubmitWorkflow(pieces())


async def ended(server: ServerUnderTest, workflow_id: str) -> pb.WorkflowView:
    """The workflow, once it has ended."""
    request = pb.GetWorkflowRequest(workflow_id=workflow_id, wait=Duration(seconds=30))
    view: pb.WorkflowView = (await server.stub.GetWorkflow(request)).workflow
    assert view.HasField("finished_at")
    return view


async def jobs_of(server: ServerUnderTest, workflow_id: str, **which: Any) -> dict[str, pb.WorkflowJobView]:
    request = pb.ListWorkflowJobsRequest(workflow_id=workflow_id, **which)
    return {job.name: job for job in (await server.stub.ListWorkflowJobs(request)).jobs}
