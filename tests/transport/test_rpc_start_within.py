"""start_within of a submit."""

from datetime import timedelta

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest


def span(seconds: float) -> Duration:
    message = Duration()
    message.FromTimedelta(timedelta(seconds=seconds))
    return message


async def test_job_without_a_worker_is_canceled_when_its_time_to_start_is_over(
    server: ServerUnderTest,
) -> None:
    job_id = await server.submit(start_within=span(0.001))
    await server.app.work.start_limits.loop.wait_for_ticks(2)
    view = await server.get(job_id)

    assert (view.status, view.attempts) == ("CANCELED", 0)
    assert "as start_within asks" in view.last_error


async def test_job_that_starts_in_time_runs_as_any_other(server: ServerUnderTest) -> None:
    async with server.worker() as worker:
        job_id = await server.submit(start_within=span(3600))
        assert (await server.get(job_id)).HasField("start_by")
        await worker.complete(await worker.take_one())
    assert (await server.get(job_id)).status == "COMPLETED"


async def test_time_to_start_of_a_bulk_is_that_of_each_job(server: ServerUnderTest) -> None:
    options = pb.SubmitJobRequest(topic="mail", start_within=span(3600))
    columns = pb.JobColumns(
        options=options,
        job_ids=bytes(15) + b"\x01" + bytes(15) + b"\x02",
        payload_sizes=[1, 1],
        payloads=b"ab",
    )
    await server.stub.SubmitJobs(pb.SubmitJobsRequest(columns=columns))

    for number in (1, 2):
        assert (await server.get(f"00000000-0000-0000-0000-{number:012}")).HasField("start_by")


@each_row("seconds", [0, -1, 3651 * 86400])
async def test_time_to_start_that_cannot_be_is_refused(server: ServerUnderTest, seconds: int) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.submit(start_within=span(seconds))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "start_within" in (refused.value.details() or "")
