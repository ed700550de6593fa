"""Running jobs over gRPC: they add jobs to their workflow, and read their parents. ADR-0077"""

from __future__ import annotations

from uuid import uuid4

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.refusals import refusal_of
from tests.transport.streaming_worker import claim_of
from tests.transport.workflow_requests import node, submitting


async def test_running_job_adds_jobs_and_reads_its_parents(server: ServerUnderTest) -> None:
    stored = await submitting(server, node("fetch"), node("collect", "fetch"))
    async with server.worker() as worker:
        job = await worker.take_one()
        request = pb.AddToWorkflowRequest(
            worker_id="w1", claim=claim_of(job), jobs=[node("page", before=["collect"])]
        )
        added = await server.stub.AddToWorkflow(request)
        assert added.added == 1
        repeated = await server.stub.AddToWorkflow(request)
        assert (repeated.added, repeated.job_ids) == (0, added.job_ids)
        page = await worker.take_one()
        assert page.payload == b"page"
        await worker.complete(job, page)
        collect = await worker.take_one()
        parents = pb.ListWorkflowJobsRequest(parents_of=collect.job_id, results=True)
        answer = await server.stub.ListWorkflowJobs(parents)
        assert {parent.name for parent in answer.jobs} == {"fetch", "page"}
        assert answer.workflow_id == stored.workflow_id
        late = pb.AddToWorkflowRequest(
            worker_id="w1", claim=claim_of(collect), jobs=[node("x", before=["collect"])]
        )
        error = await refusal_of(server.stub.AddToWorkflow(late))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "'collect' no longer waits" in str(error.details())


async def test_client_that_is_still_sending_receives_the_refusal(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC answered "Internal error from Core" instead."""
    monkeypatch.setattr("pulse_server.workflows.rpcs.WORKFLOW_BYTES", 2**20)
    large = [node(str(number), payload=bytes(2**20 - 1000)) for number in range(40)]
    error = await refusal_of(submitting(server, *large))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "jobs take more than 1 MiB" in str(error.details())
    assert await server.table.count() == 0


async def test_workflow_that_is_being_sent_ends_when_the_server_has_to_stop_reading(
    server: ServerUnderTest,
) -> None:
    call = server.stub.SubmitWorkflow()
    head = pb.SubmitWorkflowRequest(workflow_id=str(uuid4()), name="nightly", jobs=[node("a")])
    await call.write(head)
    await eventually(lambda: is_open(server))
    server.app.doors.lines.end()
    error = await refusal_of(call)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "The workflow is not stored. Try again." in str(error.details())
    assert await server.table.count() == 0


async def is_open(server: ServerUnderTest) -> bool:
    return bool(server.app.doors.lines._open)


async def test_job_cannot_add_a_job_under_its_own_name(server: ServerUnderTest) -> None:
    await server.submit("mail")
    async with server.worker() as worker:
        job = await worker.take_one()
        request = pb.AddToWorkflowRequest(worker_id="w1", claim=claim_of(job), jobs=[node("mail")])
        error = await refusal_of(server.stub.AddToWorkflow(request))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "'mail' is the name of the running job" in str(error.details())


async def test_worker_cannot_add_for_another_worker(server: ServerUnderTest) -> None:
    await submitting(server, node("a"))
    async with server.worker() as worker:
        job = await worker.take_one()
        request = pb.AddToWorkflowRequest(worker_id="w2", claim=claim_of(job), jobs=[node("x")])
        error = await refusal_of(server.stub.AddToWorkflow(request))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert await server.table.count() == 1


async def test_parents_of_a_plain_job_are_refused_with_a_sentence(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    error = await refusal_of(server.stub.ListWorkflowJobs(pb.ListWorkflowJobsRequest(parents_of=job_id)))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "belongs to no workflow" in str(error.details())
