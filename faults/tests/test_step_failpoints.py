"""Errors at the points of steps and signals: the caller repeats its call, and nothing is stored twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import grpc

from faults.deaths import HASTY, stub_of
from pulse import failpoints
from pulse.v1 import pulse_pb2 as pb
from tests.system.stage import Stage
from tests.transport.streaming_worker import StreamingWorker, claim_of, wire_duration

POINTS = [name for name in failpoints.names() if name.startswith(("steps.", "signals.", "jobs.suspend"))]
LEASE = {"PULSE_LEASE_TTL": "60s", "PULSE_HEARTBEAT_INTERVAL": "10s"}


async def until_answered(call: Callable[[], Awaitable[Any]]) -> tuple[Any, int]:
    """Repeat the call while the server answers UNAVAILABLE. Returns the answer, and how often it did."""
    for errors in range(5):
        try:
            return await call(), errors
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
    raise AssertionError("every call failed")


async def test_calls_about_steps_are_repeated_after_an_error_at_each_point(stage: Stage) -> None:
    armed = ";".join(f"{name}=error@1" for name in POINTS)
    server = await stage.pulsed(**HASTY | LEASE, PULSE_FAILPOINTS=armed)
    async with stub_of(server.address) as stub, StreamingWorker(stub, "w1") as worker:
        job_id = (await stub.SubmitJob(pb.SubmitJobRequest(topic="mail"))).job_id
        job = await worker.take_one()
        fence = {"worker_id": "w1", "claim": claim_of(job)}

        step = pb.NewStep(claim=claim_of(job), name="fetch", value=b"1")
        storing = pb.StoreStepsRequest(worker_id="w1", steps=[step])
        answer, errors = await until_answered(lambda: stub.StoreSteps(storing))
        assert errors == 2, "before its statement, and after it"
        assert answer.unstored[0].known.value == b"1", "the second call had stored it"

        listed = pb.ListStepsRequest(job_id=job_id)
        steps, errors = await until_answered(lambda: stub.ListSteps(listed))
        assert ([found.name for found in steps.steps], errors) == (["fetch"], 1)

        signal = pb.SignalJobRequest(job_id=job_id, name="go", value=b"2", signal_id=str(uuid4()))
        _, errors = await until_answered(lambda: stub.SignalJob(signal))
        assert errors == 2

        take = pb.TakeSignalRequest(**fence, step="go", signal="go")
        taken, errors = await until_answered(lambda: stub.TakeSignal(take))
        assert (taken.step.value, errors) == (b"2", 2)
        again = pb.TakeSignalRequest(**fence, step="go#2", signal="go")
        assert not (await stub.TakeSignal(again)).HasField("step"), "the signal was stored once"

        delay = wire_duration(timedelta(milliseconds=1))
        suspension = pb.Suspension(step="sleep", delay=delay)
        result = pb.Result(job_id=job_id, attempt=job.attempt, run=job.run, suspension=suspension)
        report = pb.ReportResultsRequest(worker_id="w1", results=[result])
        _, errors = await until_answered(lambda: stub.ReportResults(report))
        assert errors == 2
        resumed = await worker.take_one()
        assert (resumed.attempt, resumed.run) == (1, 2), "it was suspended once, at no cost"
        await worker.complete(resumed)
        view = (await stub.GetJob(pb.GetJobRequest(job_id=job_id))).job
        assert (view.status, view.steps, view.suspensions) == ("COMPLETED", 3, 1)
    assert {name for name in POINTS if f"failpoint_hit: {name}=" in server.log} == set(POINTS)
