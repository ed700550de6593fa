"""Workflows over gRPC: submit, read, wait, cancel and retry. ADR-0077"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.rows import each_row
from tests.transport.bad_workflow_requests import BAD_NODES
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.refusals import refusal_of
from tests.transport.workflow_requests import ended, jobs_of, node, submitting


async def test_jobs_run_in_the_order_of_the_workflow(server: ServerUnderTest) -> None:
    stored = await submitting(server, node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c"))
    assert not stored.duplicate
    view = await server.get(stored.job_ids[3])
    assert (view.status, view.workflow_id, view.waits_for_jobs) == ("PENDING", stored.workflow_id, True)
    assert not view.HasField("next_run_at")
    order = []
    async with server.worker(capacity=1) as worker:
        for _ in range(4):
            job = await worker.take_one()
            order.append(job.payload.decode())
            await worker.complete(job)
    assert order[0] == "a"
    assert order[3] == "d"
    workflow = await ended(server, stored.workflow_id)
    assert (workflow.status, workflow.succeeded, workflow.unfinished) == ("succeeded", 4, 0)


async def test_children_start_at_once_and_not_at_a_tick(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settler is nudged by the completion, and a claim looks below its floors."""
    from tests.transport.pulse_server_under_test import SECOND

    monkeypatch.setattr("pulse_server.workflows.service.SETTLE_INTERVAL", 600 * SECOND)
    async with server_under_test(database_dsn) as server:
        await submitting(server, node("a"), node("b", "a"), node("c", "b"))
        async with server.worker() as worker:
            for expected in (b"a", b"b", b"c"):
                job = await worker.take_one()
                assert job.payload == expected
                await worker.complete(job)


async def test_repeated_submit_is_a_duplicate_and_another_one_is_refused(server: ServerUnderTest) -> None:
    workflow_id = str(uuid4())
    first = await submitting(server, node("a"), node("b", "a"), workflow_id=workflow_id)
    again = await submitting(server, node("a"), node("b", "a"), workflow_id=workflow_id, size=1)
    assert again.duplicate
    assert again.job_ids == first.job_ids
    for other in ([node("a")], [node("a"), node("b", "a", priority=1)]):
        error = await refusal_of(submitting(server, *other, workflow_id=workflow_id))
        assert error.code() is grpc.StatusCode.ALREADY_EXISTS
    assert await server.table.count() == 2


async def test_ids_come_in_the_order_of_the_request(server: ServerUnderTest) -> None:
    """A job may stand before the jobs that it waits for."""
    stored = await submitting(server, node("last", "first"), node("first"))
    views = [await server.get(job_id) for job_id in stored.job_ids]
    assert [view.payload for view in views] == [b"last", b"first"]
    assert [view.waits_for_jobs for view in views] == [True, False]


BAD_SUBMITS: list[tuple[str, list[pb.WorkflowJob], dict[str, str], str]] = [
    ("no jobs", [], {}, "jobs is empty"),
    ("no name", [node("a")], {"name": ""}, "name is empty"),
    ("malformed id", [node("a")], {"workflow_id": "42"}, "workflow_id"),
    ("cycle", [node("a", "c"), node("b", "a"), node("c", "b"), node("d")], {}, "'a', 'c' and 'b'"),
    ("waits for itself", [node("a", "a")], {}, "cycle: 'a'"),
    ("unknown parent", [node("a", "x")], {}, "'x'"),
    ("same name twice", [node("a"), node("a")], {}, "'a' twice"),
    ("before", [node("a", before=["b"])], {}, "before"),
    ("one key twice", [node(name, unique=pb.Unique(key="k")) for name in "ab"], {}, "both 'a' and 'b'"),
    *((name, [bad], {}, words) for name, (bad, words) in BAD_NODES.items()),
]


async def test_bad_submit_is_refused_by_name_and_stores_nothing(server: ServerUnderTest) -> None:
    for name, nodes, how, words in BAD_SUBMITS:
        error = await refusal_of(submitting(server, *nodes, **how))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, name
        assert words in str(error.details()), name
        assert str(error.details()).endswith("."), name
    empty = await refusal_of(server.stub.SubmitWorkflow(_nothing()))
    assert empty.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await server.table.count() == 0


async def _nothing() -> AsyncIterator[pb.SubmitWorkflowRequest]:
    for _ in ():
        yield pb.SubmitWorkflowRequest()


async def test_workflow_beyond_the_bounds_is_refused(database_dsn: str) -> None:
    async with server_under_test(database_dsn, max_workflow_jobs=5) as server:
        error = await refusal_of(submitting(server, *(node(str(number)) for number in range(6))))
        assert "PULSE_MAX_WORKFLOW_JOBS" in str(error.details())
        dense = [node(str(number), *map(str, range(number))) for number in range(5)]
        await submitting(server, *dense)
        error = await refusal_of(submitting(server, node("a"), node("b", *["a"] * 51)))
        assert "51 names" in str(error.details())


async def test_failure_cancels_what_waits_and_a_retry_brings_it_back(server: ServerUnderTest) -> None:
    stored = await submitting(server, node("a"), node("b", "a"), node("oops", "a", when="failed"))
    async with server.worker() as worker:
        await worker.fail(await worker.take_one(), discard=True)
        job = await worker.take_one()
        assert job.payload == b"oops"
        await worker.complete(job)
        workflow = await ended(server, stored.workflow_id)
        assert (workflow.status, workflow.failed, workflow.canceled, workflow.succeeded) == (
            "failed",
            1,
            1,
            1,
        )
        listed = await jobs_of(server, stored.workflow_id)
        assert (listed["b"].state, listed["b"].status, listed["b"].outcome) == (
            "dropped",
            "CANCELED",
            "canceled",
        )
        request = pb.RetryWorkflowRequest(workflow_id=stored.workflow_id)
        assert (await server.stub.RetryWorkflow(request)).retried == 1
        for expected in (b"a", b"b"):
            job = await worker.take_one()
            assert job.payload == expected
            await worker.complete(job)
    assert (await ended(server, stored.workflow_id)).status == "succeeded"


async def test_answer_to_a_retry_shows_the_jobs_that_came_back(server: ServerUnderTest) -> None:
    stored = await submitting(server, node("a"), node("b", "a", when="always"))
    await server.stub.CancelWorkflow(pb.CancelWorkflowRequest(workflow_id=stored.workflow_id))
    assert (await ended(server, stored.workflow_id)).status == "canceled"
    answer = await server.stub.RetryWorkflow(pb.RetryWorkflowRequest(workflow_id=stored.workflow_id))
    assert (answer.workflow.status, answer.workflow.unfinished) == ("running", 2)
    listed = await jobs_of(server, stored.workflow_id)
    assert {name: (job.state, job.unended) for name, job in listed.items()} == {
        "a": ("ready", 0),
        "b": ("waiting", 1),
    }


async def test_canceled_workflow_stops_its_jobs_and_starts_no_other(server: ServerUnderTest) -> None:
    stored = await submitting(server, node("a"), node("b", "a", when="always"))
    async with server.worker() as worker:
        job = await worker.take_one()
        request = pb.CancelWorkflowRequest(workflow_id=stored.workflow_id, reason="wrong day")
        assert (await server.stub.CancelWorkflow(request)).canceled == 1
        assert [claim.job_id for claim in await worker.stops()] == [job.job_id]
        workflow = await ended(server, stored.workflow_id)
    assert (workflow.status, workflow.canceled) == ("canceled", 2)
    assert (await server.get(job.job_id)).last_error == "wrong day"
    assert (await server.get(stored.job_ids[1])).last_error == "Its workflow was canceled."
    again = await server.stub.CancelWorkflow(pb.CancelWorkflowRequest(workflow_id=stored.workflow_id))
    assert (again.canceled, again.workflow.status) == (0, "canceled")


async def test_pages_of_jobs_and_workflows(server: ServerUnderTest) -> None:
    first = await submitting(server, *(node(str(number)) for number in range(5)))
    second = await submitting(server, node("a"), name="other")
    seen: list[str] = []
    token = ""
    while True:
        request = pb.ListWorkflowJobsRequest(workflow_id=first.workflow_id, limit=2, page_token=token)
        page = await server.stub.ListWorkflowJobs(request)
        seen += [job.name for job in page.jobs]
        token = page.next_page_token
        if not token:
            break
    assert seen == [str(number) for number in range(5)]
    newest = await server.stub.ListWorkflows(pb.ListWorkflowsRequest(limit=1))
    assert [workflow.workflow_id for workflow in newest.workflows] == [second.workflow_id]
    older = await server.stub.ListWorkflows(pb.ListWorkflowsRequest(page_token=newest.next_page_token))
    assert [workflow.workflow_id for workflow in older.workflows] == [first.workflow_id]
    named = await server.stub.ListWorkflows(pb.ListWorkflowsRequest(name="other", status="running"))
    assert len(named.workflows) == 1


async def test_wait_ends_in_time_and_at_once_when_the_workflow_ends(server: ServerUnderTest) -> None:
    stored = await submitting(server, node("a"))
    request = pb.GetWorkflowRequest(workflow_id=stored.workflow_id, wait=Duration(nanos=50_000_000))
    assert (await server.stub.GetWorkflow(request)).workflow.status == "running"
    waiting = asyncio.create_task(ended(server, stored.workflow_id))
    async with server.worker() as worker:
        await worker.complete(await worker.take_one())
        assert (await waiting).status == "succeeded"


async def test_jobs_that_wait_for_others_are_counted_apart(server: ServerUnderTest) -> None:
    await submitting(server, node("a"), node("b", "a"), node("c", "a"))

    async def depth() -> pb.TopicView | None:
        topics = (await server.stub.ListTopics(pb.ListTopicsRequest())).topics
        return next((topic for topic in topics if topic.topic == "mail"), None)

    topic = await eventually(depth)
    assert (topic.ready, topic.waiting, topic.waiting_for_jobs) == (1, 0, 2)


@each_row("call", ["cancel", "delete"])
async def test_waiting_job_can_be_canceled_but_not_deleted(server: ServerUnderTest, call: str) -> None:
    stored = await submitting(server, node("a"), node("b", "a"), node("c"))
    if call == "cancel":
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=stored.job_ids[1]))
        assert (await server.get(stored.job_ids[1])).status == "CANCELED"
        return
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=stored.job_ids[1]))
    error = await refusal_of(server.stub.DeleteJob(pb.DeleteJobRequest(job_id=stored.job_ids[1])))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "workflow" in str(error.details())


async def test_job_that_waits_in_a_canceled_workflow_is_not_retried(server: ServerUnderTest) -> None:
    """It answered OK, and the job was canceled again."""
    stored = await submitting(server, node("a"), node("b", "a"), node("c", "b"))
    await server.stub.CancelWorkflow(pb.CancelWorkflowRequest(workflow_id=stored.workflow_id))
    await ended(server, stored.workflow_id)
    refusal = await refusal_of(server.stub.RetryJob(pb.RetryJobRequest(job_id=stored.job_ids[1])))
    assert refusal.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert f"workflow {stored.workflow_id}, which was canceled" in (refusal.details() or "")
    wanted = pb.JobFilter(status="CANCELED")
    answer = await server.stub.RetryJobs(pb.RetryJobsRequest(filter=wanted))
    assert (answer.retried, answer.in_canceled_workflows, answer.locked) == (1, 2, 0)
    assert list(answer.canceled_workflows) == [stored.workflow_id]


async def test_name_with_a_nul_character_is_refused(server: ServerUnderTest) -> None:
    stored = await submitting(server, node("a"))
    request = pb.ListWorkflowJobsRequest(workflow_id=stored.workflow_id, names=["a\0"])
    refusal = await refusal_of(server.stub.ListWorkflowJobs(request))
    assert refusal.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "names" in (refusal.details() or "")
