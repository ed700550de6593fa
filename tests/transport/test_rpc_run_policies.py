"""Run policies over gRPC: declared by workers, overridden by operators, counted at the next submit."""

from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.authorized import USERS, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker


def seconds(count: float) -> Duration:
    span = Duration()
    span.FromTimedelta(timedelta(seconds=count))
    return span


BACKOFF = pb.Backoff(first=seconds(2), factor=3, longest=seconds(3600), jitter=0.2)
A_DAY_OF_RETRIES = pb.Backoff(first=seconds(1), factor=2, longest=seconds(7200), jitter=0.2)
RUN = pb.RunPolicy(backoff=BACKOFF, max_attempts=8, timeout=seconds(120), max_crashes=2)


async def declare(stub: Any, worker_id: str = "worker-1", **runs: pb.RunPolicy) -> list[pb.ReplacedPolicy]:
    policies = [pb.DeclaredPolicy(topic=topic, run=run) for topic, run in runs.items()]
    request = pb.DeclareTopicPoliciesRequest(worker_id=worker_id, policies=policies)
    return list((await stub.DeclareTopicPolicies(request)).replaced)


async def override(stub: Any, *returned: str, **entries: Any) -> pb.TopicPolicy:
    run = pb.RunPolicy(**entries) if entries else None
    request = pb.SetTopicPolicyRequest(topic="mail", run=run, returned=returned)
    return (await stub.SetTopicPolicy(request)).policy  # type: ignore[no-any-return]


async def max_attempts_of_new_job(stub: Any, topic: str = "mail") -> int:
    submitted = await stub.SubmitJob(pb.SubmitJobRequest(topic=topic, payload=b"{}"))
    got = await stub.GetJob(pb.GetJobRequest(job_id=submitted.job_id))
    return got.job.max_attempts  # type: ignore[no-any-return]


async def test_jobs_have_25_attempts_unless_something_else_is_said(server: ServerUnderTest) -> None:
    assert await max_attempts_of_new_job(server.stub) == 25
    answer = await server.stub.ListTopicPolicies(pb.ListTopicPoliciesRequest())
    assert answer.server_run == pb.RunPolicy(max_attempts=25, max_crashes=5, backoff=A_DAY_OF_RETRIES)


async def test_new_jobs_have_the_attempts_that_a_worker_declared(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=RUN)

    assert await max_attempts_of_new_job(server.stub) == 8
    assert await max_attempts_of_new_job(server.stub, "other") == 25


async def test_bulk_of_jobs_has_the_attempts_of_its_topic(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=RUN)
    columns = pb.JobColumns(
        options=pb.SubmitJobRequest(topic="mail"),
        job_ids=bytes(15) + b"\x01",
        payload_sizes=[2],
        payloads=b"{}",
    )
    await server.stub.SubmitJobs(pb.SubmitJobsRequest(columns=columns))

    got = await server.stub.GetJob(pb.GetJobRequest(job_id="00000000-0000-0000-0000-000000000001"))
    assert got.job.max_attempts == 8


async def test_operator_wins_until_they_return_the_entry(server: ServerUnderTest) -> None:
    await declare(server.stub, mail=RUN)
    policy = await override(server.stub, max_attempts=50)
    assert policy.run == pb.RunPolicy(max_attempts=50)
    assert policy.declared == RUN
    assert policy.effective == pb.RunPolicy(
        backoff=BACKOFF, max_attempts=50, timeout=seconds(120), max_crashes=2
    )
    assert await max_attempts_of_new_job(server.stub) == 50

    policy = await override(server.stub, "max_attempts")
    assert not policy.HasField("run")
    assert policy.effective == RUN
    assert await max_attempts_of_new_job(server.stub) == 8


async def test_effective_policy_ends_with_the_settings_of_the_server(server: ServerUnderTest) -> None:
    policy = await override(server.stub, timeout=seconds(5))
    assert policy.effective == pb.RunPolicy(
        max_attempts=25, timeout=seconds(5), max_crashes=5, backoff=A_DAY_OF_RETRIES
    )


async def test_worker_learns_which_declaration_it_replaced(server: ServerUnderTest) -> None:
    assert await declare(server.stub, "old", mail=RUN) == []
    assert await declare(server.stub, "other", mail=RUN) == []
    (replaced,) = await declare(server.stub, "new", mail=pb.RunPolicy(max_attempts=3))

    assert (replaced.topic, replaced.run, replaced.declared_by) == ("mail", RUN, "old")
    assert replaced.HasField("declared_at")
    assert await declare(server.stub, "new", mail=RUN) == []


async def test_empty_declaration_takes_back_the_one_before(server: ServerUnderTest) -> None:
    await declare(server.stub, "old", mail=RUN)
    (replaced,) = await declare(server.stub, "new", mail=pb.RunPolicy())

    assert replaced.declared_by == "old"
    assert not (await server.stub.ListTopicPolicies(pb.ListTopicPoliciesRequest())).policies


async def test_declaration_reaches_the_other_servers(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as one, server_under_test(database_dsn) as other:
        await declare(one.stub, mail=RUN)
        await other.app.policies.run.loop.wait_for_ticks(2)
        assert await max_attempts_of_new_job(other.stub) == 8


async def test_only_workers_declare_and_the_worker_is_their_users(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        worker = caller(server.channel, "worker")
        async with StreamingWorker(worker, "w1"):
            await declare(worker, "w1", mail=RUN)
        listed = await caller(server.channel, "viewer").ListTopicPolicies(pb.ListTopicPoliciesRequest())
        assert [policy.declared_by for policy in listed.policies] == ["worker:w1"]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await declare(caller(server.channel, "producer"), "w1", mail=RUN)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


@each_row(
    "fields, text",
    [
        ({"run": pb.RunPolicy()}, "changes nothing"),
        ({"run": pb.RunPolicy(max_attempts=0)}, "run.max_attempts is 0"),
        ({"run": pb.RunPolicy(max_crashes=0)}, "run.max_crashes is 0"),
        ({"run": pb.RunPolicy(timeout=seconds(0))}, "run.timeout"),
        ({"run": pb.RunPolicy(timeout=seconds(3651 * 86400))}, "run.timeout is longer than 3650 days"),
        ({"run": pb.RunPolicy(backoff=pb.Backoff())}, "run.backoff.first"),
        ({"run": pb.RunPolicy(backoff=pb.Backoff(first=seconds(2)))}, "run.backoff.longest is shorter"),
        (
            {"run": pb.RunPolicy(backoff=pb.Backoff(first=seconds(2), longest=seconds(2)))},
            "run.backoff.factor is 0",
        ),
        (
            {
                "run": pb.RunPolicy(
                    backoff=pb.Backoff(first=seconds(2), longest=seconds(2), factor=float("nan"))
                )
            },
            "run.backoff.factor",
        ),
        (
            {
                "run": pb.RunPolicy(
                    backoff=pb.Backoff(first=seconds(2), longest=seconds(2), factor=2, jitter=1.5)
                )
            },
            "run.backoff.jitter is 1.5",
        ),
        ({"returned": ["attempts"]}, "the entries are backoff, max_attempts, timeout, max_crashes"),
        ({"returned": ["timeout"], "run": pb.RunPolicy(timeout=seconds(1))}, "leave one of them out"),
    ],
)
async def test_policy_that_cannot_hold_is_refused_with_the_reason(
    server: ServerUnderTest, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.SetTopicPolicy(pb.SetTopicPolicyRequest(topic="mail", **fields))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (refused.value.details() or "")


@each_row(
    "request_fields, text",
    [
        ({"policies": [pb.DeclaredPolicy(topic="a")]}, "worker_id is empty"),
        ({"worker_id": "w", "policies": [pb.DeclaredPolicy()]}, "policies.topic is empty"),
        (
            {"worker_id": "w", "policies": [pb.DeclaredPolicy(topic="a"), pb.DeclaredPolicy(topic="a")]},
            "twice",
        ),
        ({"worker_id": "w", "policies": [pb.DeclaredPolicy(topic="a")] * 1001}, "1000 are allowed"),
        (
            {
                "worker_id": "w",
                "policies": [pb.DeclaredPolicy(topic="a", run=pb.RunPolicy(max_attempts=1001))],
            },
            "policies.run.max_attempts is 1001",
        ),
    ],
)
async def test_declaration_that_cannot_hold_is_refused_with_the_reason(
    server: ServerUnderTest, request_fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.DeclareTopicPolicies(pb.DeclareTopicPoliciesRequest(**request_fields))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (refused.value.details() or "")
