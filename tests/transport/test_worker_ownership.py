"""A worker id belongs to its user: no other user can report or release its jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import Role, User
from pulse_server.steps.rpcs import StepRpcs
from pulse_server.topics.rpcs import TopicRpcs
from pulse_server.work.worker_rpcs import WorkRpcs
from pulse_server.workflows.rpcs import WorkflowRpcs
from tests.transport.authorized import PASSWORD, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker, claim_of

USERS = tuple(User(name, PASSWORD, Role.WORKER) for name in ("ann", "bob"))


@pytest.fixture
async def server(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with server_under_test(database_dsn, users=USERS) as server:
        yield server


class Users:
    """Return the stubs of both users, and a job that ann's worker w1 holds."""

    def __init__(self, server: ServerUnderTest) -> None:
        self.server = server
        self.ann, self.bob = caller(server.channel, "ann"), caller(server.channel, "bob")

    async def job_of(self, worker: StreamingWorker) -> pb.JobAssignment:
        await self.ann.SubmitJob(pb.SubmitJobRequest(topic="mail"))
        return await worker.take_one()

    async def row(self, job: pb.JobAssignment) -> dict[str, Any]:
        return await self.server.table.row(job.job_id)


@pytest.fixture
def users(server: ServerUnderTest) -> Users:
    return Users(server)


async def test_worker_reports_beats_and_releases_its_own_jobs(users: Users) -> None:
    async with StreamingWorker(users.ann, "w1") as worker:
        first = await users.job_of(worker)
        assert not await worker.beat(first)
        await worker.complete(first)
        second = await users.job_of(worker)
        assert await worker.release(second) == 1
        assert (await users.row(first))["finished_by"] == "ann:w1"


async def test_report_under_the_worker_id_of_another_user_is_refused(users: Users) -> None:
    async with StreamingWorker(users.ann, "w1") as worker:
        job = await users.job_of(worker)
        before = await users.row(job)
        results = [pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, success=True)]
        answer = await users.bob.ReportResults(pb.ReportResultsRequest(worker_id="w1", results=results))
        assert [one.refusal.code for one in answer.refused] == [grpc.StatusCode.FAILED_PRECONDITION.value[0]]
        for worker_id in ("w1", "ann:w1", ""):
            report = pb.ReportResultRequest(job_id=job.job_id, worker_id=worker_id, success=True)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await users.bob.ReportResult(report)
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert await users.row(job) == before
        await worker.complete(job)


async def test_line_of_another_user_is_bound_as_well(users: Users) -> None:
    async with StreamingWorker(users.ann, "w1") as worker:
        job = await users.job_of(worker)
        results = [pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, success=True)]
        request = pb.ReportResultsRequest(worker_id="w1", results=results)
        line = users.bob.StreamReports()
        await line.write(pb.StreamReportsRequest(number=1, request=request))
        answer = await line.read()
        assert len(answer.response.refused) == 1
        line.cancel()
        assert (await users.row(job))["status"] == "RUNNING"


async def test_beat_and_release_under_the_worker_id_of_another_user_do_nothing(users: Users) -> None:
    async with StreamingWorker(users.ann, "w1") as worker:
        job = await users.job_of(worker)
        before = await users.row(job)
        claims = [claim_of(job)]
        beaten = await users.bob.Heartbeats(pb.HeartbeatsRequest(worker_id="w1", claims=claims))
        assert list(beaten.stop) == claims
        old = await users.bob.Heartbeat(pb.HeartbeatRequest(job_id=job.job_id, worker_id="w1"))
        assert old.should_stop
        released = await users.bob.Release(pb.ReleaseRequest(worker_id="w1", claims=claims))
        assert released.released == 0
        assert await users.row(job) == before
        assert not await worker.beat(job)


async def test_stream_under_the_worker_id_of_another_user_takes_nothing_over(users: Users) -> None:
    async with StreamingWorker(users.ann, "w1") as worker:
        job = await users.job_of(worker)
        before = await users.row(job)
        async with StreamingWorker(users.bob, "w1", topics=["other"], held=[claim_of(job)]):
            assert await users.row(job) == before
            assert await users.job_of(worker)  # the stream is still fed
        assert await users.row(job) == before


async def test_caller_of_the_original_contract_reports_its_own_job(users: Users) -> None:
    async with StreamingWorker(users.ann, "w1") as worker:
        job = await users.job_of(worker)
        for _ in range(2):  # the answer was lost, perhaps
            await users.ann.ReportResult(pb.ReportResultRequest(job_id=job.job_id, success=True))
        assert (await users.row(job))["status"] == "COMPLETED"


async def test_worker_reports_through_another_server_and_after_a_restart(
    users: Users, database_dsn: str
) -> None:
    async with StreamingWorker(users.ann, "w1", run_id="first") as worker:
        first, second = await users.job_of(worker), await users.job_of(worker)
    async with server_under_test(database_dsn, users=USERS) as there:
        ann = caller(there.channel, "ann")  # a server that has never seen this user
        assert not (await ann.Heartbeats(pb.HeartbeatsRequest(worker_id="w1", claims=[claim_of(first)]))).stop
        async with StreamingWorker(ann, "w1", run_id="second", held=[claim_of(second)]) as worker:
            await worker.complete(first, second)
    assert (await users.row(first))["status"] == (await users.row(second))["status"] == "COMPLETED"


async def test_name_that_is_too_long_with_its_user_is_refused_in_a_sentence(users: Users) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async with StreamingWorker(users.ann, "w" * 253):
            pass
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "together with the name of its user" in (refused.value.details() or "")


def test_every_request_that_names_a_worker_is_bound_to_its_user() -> None:
    methods = {
        "StreamJobs": WorkRpcs.stream_jobs,
        "ReportResult": WorkRpcs.report_result,
        "ReportResults": WorkRpcs.report_results,
        "Heartbeat": WorkRpcs.heartbeat,
        "Heartbeats": WorkRpcs.heartbeats,
        "Release": WorkRpcs.release,
        "DeclareTopics": TopicRpcs.declare_topics,
        "StoreSteps": StepRpcs.store_steps,
        "TakeSignal": StepRpcs.take_signal,
        "AddToWorkflow": WorkflowRpcs.add_to_workflow,
    }
    described = pb.DESCRIPTOR.services_by_name["PulseService"].methods
    naming = {one.name for one in described if "worker_id" in one.input_type.fields_by_name}
    of_operators = {"SetWorkerState"}  # it names the worker of another user
    assert naming - of_operators == methods.keys()
    assert all(getattr(method, "binds_worker_id", False) for method in methods.values())
