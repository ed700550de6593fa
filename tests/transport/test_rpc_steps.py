"""Steps over gRPC: what workers store, what operators see, what is refused."""

from __future__ import annotations

from uuid import uuid4

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.bounds import StepBounds
from tests.transport.bad_step_requests import BAD_STEPS
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.step_calls import (
    HOUR,
    is_not_stored,
    is_refused,
    new_step,
    signal,
    steps,
    store,
    store_all,
    suspend,
    take,
)


async def test_welcome_has_the_limits_of_steps(server: ServerUnderTest) -> None:
    async with server.worker() as worker:
        assert worker.welcome is not None
        assert (worker.welcome.steps.steps, worker.welcome.steps.bytes) == (1000, 1024 * 1024)


async def test_step_is_stored_and_a_repeat_returns_the_first(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        assert await store(server, job, value=b"first") is None
        repeat = (await store(server, job, value=b"second") or pb.UnstoredStep()).known
        assert (repeat.value, repeat.kind, repeat.attempt) == (b"first", "step", 1)
        (step,) = await steps(server, job_id)
        assert (step.name, step.value, step.size) == ("fetch", b"first", 5)
        (without,) = await steps(server, job_id, values=False)
        assert (without.HasField("value"), without.size) == (False, 5)
        assert (await server.get(job_id)).steps == 1


async def test_each_step_of_a_call_is_answered_for_alone(server: ServerUnderTest) -> None:
    job_id, other_id = await server.submit(), await server.submit()
    async with server.worker() as worker:
        job, other = await worker.take_one(), await worker.take_one()
        await store(server, job, value=b"first")
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=other_id))
        known, stored, lost, nameless, missing, last = await store_all(
            server,
            [
                new_step(job, value=b"second"),
                new_step(job, "parse"),
                new_step(other),
                new_step(job, ""),
                pb.NewStep(claim=pb.Claim(job_id=str(uuid4()), attempt=1), name="fetch"),
                new_step(job, "send"),
            ],
        )
        assert (known or pb.UnstoredStep()).known.value == b"first"
        assert (stored, last) == (None, None)
        refusals = [(unstored or pb.UnstoredStep()).refusal for unstored in (lost, nameless, missing)]
        codes = ("FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND")
        assert [refused.code for refused in refusals] == [grpc.StatusCode[code].value[0] for code in codes]
        assert [step.name for step in await steps(server, job_id)] == ["fetch", "parse", "send"]


async def test_known_steps_too_large_for_one_answer_are_left_for_a_repeat(database_dsn: str) -> None:
    large = b"x" * (1536 * 1024)
    async with server_under_test(database_dsn, steps=StepBounds(2, 2 * 1024 * 1024)) as server:
        for _ in range(2):
            await server.submit()
        async with server.worker() as worker:
            jobs = [await worker.take_one() for _ in range(2)]
            for job in jobs:
                assert await store(server, job, value=large) is None
            repeats = await store_all(server, [new_step(job) for job in jobs])
            first, second = (repeat or pb.UnstoredStep() for repeat in repeats)
            assert first.known.value == large
            assert second.refusal.code == grpc.StatusCode.UNAVAILABLE.value[0]


async def test_lost_claim_is_refused_with_a_sentence(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
        canceled = grpc.StatusCode.FAILED_PRECONDITION, f"Job {job_id} is CANCELED"
        await is_not_stored(store(server, job), *canceled)
        await is_refused(take(server, job), *canceled)
    assert await steps(server, job_id) == []


async def test_worker_of_another_name_cannot_store_a_step(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        await is_not_stored(
            store(server, job, worker="w2"), grpc.StatusCode.FAILED_PRECONDITION, "held by another worker"
        )


async def test_limits_of_steps_are_refused_with_a_sentence(database_dsn: str) -> None:
    async with server_under_test(database_dsn, steps=StepBounds(2, 100)) as server:
        job_id = await server.submit()
        async with server.worker() as worker:
            job = await worker.take_one()
            await is_not_stored(
                store(server, job, value=b"x" * 200),
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "PULSE_MAX_STEP_BYTES",
            )
            await store(server, job, "a", b"x" * 60)
            await is_not_stored(
                store(server, job, "b", b"x" * 60), grpc.StatusCode.RESOURCE_EXHAUSTED, "PULSE_MAX_STEP_BYTES"
            )
            await is_refused(
                signal(server, job_id, value=b"x" * 200),
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "Signal 'approved' has 208 bytes",
            )
            for _ in range(2):
                await signal(server, job_id, value=b"")
            await is_refused(
                signal(server, job_id, value=b""), grpc.StatusCode.RESOURCE_EXHAUSTED, "The job has 2 signals"
            )
            await store(server, job, "b", b"")
            await is_not_stored(
                store(server, job, "c", b""), grpc.StatusCode.RESOURCE_EXHAUSTED, "PULSE_MAX_STEPS"
            )
            await is_refused(take(server, job), grpc.StatusCode.RESOURCE_EXHAUSTED, "PULSE_MAX_STEPS")
            await suspend(server, job, "sleep", delay=HOUR)
        view = await server.get(job_id)
        assert view.status == "DEAD_LETTERED"
        assert "PULSE_MAX_STEPS" in view.last_error


async def test_fresh_retry_forgets_the_steps(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        await store(server, job)
        await worker.fail(job, discard=True)
    await server.stub.RetryJob(pb.RetryJobRequest(job_id=job_id))
    assert len(await steps(server, job_id)) == 1
    await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
    await server.stub.RetryJob(pb.RetryJobRequest(job_id=job_id, fresh=True))
    assert await steps(server, job_id) == []


async def test_fresh_retry_of_many_forgets_their_steps(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        await store(server, job)
        await worker.fail(job, discard=True)
    chosen = pb.JobFilter(topic="mail", status="DEAD_LETTERED")
    await server.stub.RetryJobs(pb.RetryJobsRequest(filter=chosen, fresh=True))
    assert await steps(server, job_id) == []


@pytest.mark.parametrize("case", BAD_STEPS)
async def test_bad_step_is_refused_by_name_and_the_others_are_stored(
    server: ServerUnderTest, case: str
) -> None:
    bad, field = BAD_STEPS[case]
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        before, unstored, after = await store_all(
            server, [new_step(job, "before"), bad, new_step(job, "after")]
        )
    assert (before, after) == (None, None)
    assert unstored is not None
    assert field in unstored.refusal.message
    assert [step.name for step in await steps(server, job_id)] == ["before", "after"]
