"""Calls about steps and signals, as a worker and an operator make them."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import grpc

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.transport.refusals import refusal_of
from tests.transport.streaming_worker import claim_of, wire_duration

HOUR = timedelta(hours=1)


async def store(
    server: ServerUnderTest,
    job: pb.JobAssignment,
    name: str = "fetch",
    value: bytes = b"1",
    worker: str = "w1",
) -> pb.UnstoredStep | None:
    """Store one step. Returns None if it was stored."""
    (answer,) = await store_all(server, [new_step(job, name, value)], worker)
    return answer


def new_step(job: pb.JobAssignment, name: str = "fetch", value: bytes = b"1") -> pb.NewStep:
    return pb.NewStep(claim=claim_of(job), name=name, value=value)


async def store_all(
    server: ServerUnderTest, new: Sequence[pb.NewStep], worker: str = "w1"
) -> list[pb.UnstoredStep | None]:
    answer = await server.stub.StoreSteps(pb.StoreStepsRequest(worker_id=worker, steps=new))
    unstored = {item.index: item for item in answer.unstored}
    return [unstored.get(index) for index in range(len(new))]


async def is_not_stored(
    storing: Awaitable[pb.UnstoredStep | None], code: grpc.StatusCode, words: str
) -> None:
    unstored = await storing
    assert unstored is not None
    assert unstored.refusal.code == code.value[0]
    assert words in unstored.refusal.message


async def suspend(
    server: ServerUnderTest,
    job: pb.JobAssignment,
    step: str,
    signal: str = "",
    delay: timedelta | None = None,
) -> None:
    suspension = pb.Suspension(step=step, signal=signal, delay=delay and wire_duration(delay))
    result = pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run, suspension=suspension)
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
