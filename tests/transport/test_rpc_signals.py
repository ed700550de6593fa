"""Sleeps and signals over gRPC: how a job waits, what brings it back, what is refused."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.bounds import StepBounds
from tests.transport.authorized import USERS, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.step_calls import HOUR, is_refused, signal, steps, suspend, take
from tests.transport.streaming_worker import StreamingWorker, wire_duration


async def test_job_sleeps_gives_its_slot_back_and_returns(server: ServerUnderTest) -> None:
    job_id = await server.submit(max_attempts=1)
    async with server.worker(capacity=1) as worker:
        job = await worker.take_one()
        await suspend(server, job, "sleep", delay=HOUR)
        view = await server.get(job_id)
        assert (view.status, view.HasField("waiting"), view.waiting.signal) == ("RETRYING", True, "")
        assert view.HasField("next_run_at")
        assert (view.suspensions, view.snoozes, view.attempts, view.max_attempts) == (1, 0, 0, 1)
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
        assert (again.attempt, again.run) == (1, 2)
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
        result = pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, suspension=suspension)
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


async def test_signals_of_programs_leave_room_for_operators(database_dsn: str) -> None:
    """A thousand empty signals of a producer kept the approval of an operator out."""
    async with server_under_test(database_dsn, users=USERS, steps=StepBounds(20, 1000)) as server:
        operator = caller(server.channel, "operator")
        job_id = (await operator.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id

        async def send(user: str, value: bytes = b"") -> None:
            request = pb.SignalJobRequest(job_id=job_id, name="go", signal_id=str(uuid4()), value=value)
            await caller(server.channel, user).SignalJob(request)

        await is_refused(
            send("producer", b"x" * 900),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "may have 900 together beside 100 of operators",
        )
        for user in ("producer", "worker") * 9:
            await send(user)
        for user in ("producer", "worker"):
            await is_refused(
                send(user),
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "The job has 18 signals, the most that a job may have beside 2 of operators",
            )
        await send("operator", b"x" * 900)
        await send("admin")
        await is_refused(send("admin"), grpc.StatusCode.RESOURCE_EXHAUSTED, "The job has 20 signals")
