"""Steps, sleeps and signals over gRPC: what workers store, what operators see, what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain.steps import StepLimits
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.refusals import refusal_of
from tests.transport.streaming_worker import StreamingWorker, claim_of, wire_duration

HOUR = timedelta(hours=1)


async def store(
    server: ServerUnderTest,
    job: pb.JobAssignment,
    name: str = "fetch",
    value: bytes = b"1",
    worker: str = "w1",
) -> pb.StoreStepResponse:
    request = pb.StoreStepRequest(worker_id=worker, claim=claim_of(job), name=name, value=value)
    answer: pb.StoreStepResponse = await server.stub.StoreStep(request)
    return answer


async def suspend(
    server: ServerUnderTest,
    job: pb.JobAssignment,
    step: str,
    signal: str = "",
    delay: timedelta | None = None,
) -> None:
    suspension = pb.Suspension(step=step, signal=signal, delay=delay and wire_duration(delay))
    result = pb.Result(job_id=job.job_id, attempt=job.attempt, suspension=suspension)
    answer = await server.stub.ReportResults(pb.ReportResultsRequest(worker_id="w1", results=[result]))
    assert not answer.refused, answer.refused


async def take(
    server: ServerUnderTest, job: pb.JobAssignment, signal: str = "approved"
) -> pb.StepView | None:
    request = pb.TakeSignalRequest(worker_id="w1", claim=claim_of(job), step=signal, signal=signal)
    answer = await server.stub.TakeSignal(request)
    return answer.step if answer.HasField("step") else None


async def signal(server: ServerUnderTest, job_id: str, name: str = "approved", **fields: Any) -> None:
    request = pb.SignalJobRequest(job_id=job_id, name=name, **{"signal_id": str(uuid4()), **fields})
    await server.stub.SignalJob(request)


async def steps(server: ServerUnderTest, job_id: str, *, values: bool = True) -> list[pb.StepView]:
    return list((await server.stub.ListSteps(pb.ListStepsRequest(job_id=job_id, values=values))).steps)


async def is_refused(call: Any, code: grpc.StatusCode, words: str) -> None:
    error = await refusal_of(call)
    assert error.code() is code
    assert words in (error.details() or "")


async def test_welcome_has_the_limits_of_steps(server: ServerUnderTest) -> None:
    async with server.worker() as worker:
        assert worker.welcome is not None
        assert (worker.welcome.steps.steps, worker.welcome.steps.bytes) == (1000, 1024 * 1024)


async def test_step_is_stored_and_a_repeat_returns_the_first(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        assert not (await store(server, job, value=b"first")).HasField("step")
        repeat = await store(server, job, value=b"second")
        assert (repeat.step.value, repeat.step.kind, repeat.step.attempt) == (b"first", "step", 1)
        (step,) = await steps(server, job_id)
        assert (step.name, step.value, step.size) == ("fetch", b"first", 5)
        (without,) = await steps(server, job_id, values=False)
        assert (without.HasField("value"), without.size) == (False, 5)
        assert (await server.get(job_id)).steps == 1


async def test_job_sleeps_gives_its_slot_back_and_returns(server: ServerUnderTest) -> None:
    job_id = await server.submit(max_attempts=1)
    async with server.worker(capacity=1) as worker:
        job = await worker.take_one()
        await suspend(server, job, "sleep", delay=HOUR)
        view = await server.get(job_id)
        assert (view.status, view.HasField("waiting"), view.waiting.signal) == ("RETRYING", True, "")
        assert view.HasField("next_run_at")
        assert (view.suspensions, view.snoozes, view.attempts, view.max_attempts) == (1, 0, 1, 2)
        other = await server.submit()
        assert (await worker.take_one()).job_id == other, "the slot is free"
        (step,) = await steps(server, job_id)
        assert (step.kind, step.due) == ("sleep", False)


async def test_signal_brings_the_job_back_at_once(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        assert await take(server, job) is None
        await suspend(server, job, "approved", signal="approved")
        view = await server.get(job_id)
        assert (view.waiting.signal, view.HasField("next_run_at")) == ("approved", False)
        await signal(server, job_id, value=b"yes")
        again = await worker.take_one()
        assert (again.attempt, again.snoozes) == (2, 1)
        taken = await take(server, again)
        assert taken is not None
        assert (taken.value, taken.timed_out) == (b"yes", False)
        await worker.complete(again)
    view = await server.get(job_id)
    assert (view.status, view.steps, view.HasField("waiting")) == ("COMPLETED", 1, False)
    (step,) = await steps(server, job_id)
    assert (step.name, step.kind, step.HasField("value")) == ("approved", "signal", False)


async def test_signal_that_came_first_brings_a_job_that_waits_back_at_once(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        assert await take(server, job) is None
        await signal(server, job_id, value=b"1")
        await suspend(server, job, "approved", signal="approved", delay=HOUR)
        again = await worker.take_one()
        assert (await take(server, again) or pb.StepView()).value == b"1"


async def test_repeated_report_of_a_suspension_is_no_refusal(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        await suspend(server, job, "sleep", delay=HOUR)
        await suspend(server, job, "sleep", delay=HOUR)


async def test_wait_that_has_passed_its_end_is_timed_out(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        await suspend(server, job, "approved", signal="approved", delay=timedelta(milliseconds=1))
        again = await worker.take_one()
        late = await take(server, again)
        assert late is not None
        assert (late.timed_out, late.HasField("value")) == (True, False)


async def test_lost_claim_is_refused_with_a_sentence(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        await server.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))
        for call in (store(server, job), take(server, job)):
            await is_refused(call, grpc.StatusCode.FAILED_PRECONDITION, f"Job {job_id} is CANCELED")
    assert await steps(server, job_id) == []


async def test_worker_of_another_name_cannot_store_a_step(server: ServerUnderTest) -> None:
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        await is_refused(
            store(server, job, worker="w2"), grpc.StatusCode.FAILED_PRECONDITION, "held by another worker"
        )


async def test_limits_of_steps_are_refused_with_a_sentence(database_dsn: str) -> None:
    async with server_under_test(database_dsn, steps=StepLimits(2, 100)) as server:
        job_id = await server.submit()
        async with server.worker() as worker:
            job = await worker.take_one()
            await is_refused(
                store(server, job, value=b"x" * 200),
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "PULSE_MAX_STEP_BYTES",
            )
            await store(server, job, "a", b"x" * 60)
            await is_refused(
                store(server, job, "b", b"x" * 60), grpc.StatusCode.RESOURCE_EXHAUSTED, "PULSE_MAX_STEP_BYTES"
            )
            await is_refused(
                signal(server, job_id, value=b"x" * 60),
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "PULSE_MAX_STEP_BYTES",
            )
            await store(server, job, "b", b"")
            await is_refused(
                store(server, job, "c", b""), grpc.StatusCode.RESOURCE_EXHAUSTED, "PULSE_MAX_STEPS"
            )
            await signal(server, job_id)
            await is_refused(take(server, job), grpc.StatusCode.RESOURCE_EXHAUSTED, "PULSE_MAX_STEPS")
            await suspend(server, job, "sleep", delay=HOUR)
        view = await server.get(job_id)
        assert view.status == "DEAD_LETTERED"
        assert "PULSE_MAX_STEPS" in view.last_error


async def test_finished_job_takes_no_signal_but_a_repeat_is_no_error(server: ServerUnderTest) -> None:
    job_id = await server.submit()
    signal_id = str(uuid4())
    async with server.worker() as worker:
        job = await worker.take_one()
        await signal(server, job_id, signal_id=signal_id)
        await take(server, job)
        await worker.complete(job)
    await signal(server, job_id, signal_id=signal_id)
    await is_refused(
        signal(server, job_id), grpc.StatusCode.FAILED_PRECONDITION, f"Job {job_id} is COMPLETED"
    )
    await is_refused(signal(server, str(uuid4())), grpc.StatusCode.NOT_FOUND, "There is no job")
    await is_refused(steps(server, str(uuid4())), grpc.StatusCode.NOT_FOUND, "There is no job")


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


@pytest.mark.parametrize(
    ("suspension", "problem"),
    [
        (pb.Suspension(step="sleep"), "neither a signal nor a delay"),
        (pb.Suspension(step="", delay=wire_duration(HOUR)), "suspension.step is empty"),
        (pb.Suspension(step="x" * 201, delay=wire_duration(HOUR)), "201 characters"),
        (pb.Suspension(step="sleep", delay=wire_duration(-HOUR)), "negative"),
    ],
)
async def test_suspension_that_cannot_be_is_refused(
    server: ServerUnderTest, suspension: pb.Suspension, problem: str
) -> None:
    await server.submit()
    async with server.worker() as worker:
        job = await worker.take_one()
        result = pb.Result(job_id=job.job_id, attempt=job.attempt, suspension=suspension)
        answer = await server.stub.ReportResults(pb.ReportResultsRequest(worker_id="w1", results=[result]))
        assert problem in answer.refused[0].refusal.message


async def test_signal_at_another_server_brings_the_job_back(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as first, server_under_test(database_dsn) as second:
        job_id = await first.submit()
        async with StreamingWorker(first.stub, "w1") as worker:
            job = await worker.take_one()
            await suspend(first, job, "approved", signal="approved")
            await signal(second, job_id, value=b"from the other")
            again = await worker.take_one()
            assert (await take(second, again) or pb.StepView()).value == b"from the other"


async def test_ready_job_that_a_signal_has_locked_is_not_left_to_the_next_tick(
    server: ServerUnderTest,
) -> None:
    job_id = await server.submit()
    await server.table.connection.execute("BEGIN")
    await server.table.connection.fetch("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", job_id)
    async with server.worker() as worker:
        await server.dispatch_settles()  # the claim has passed it over
        await server.table.connection.execute("COMMIT")
        await signal(server, job_id)
        assert (await worker.take_one()).job_id == job_id
