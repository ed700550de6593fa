"""A host whose clock is ahead: pulsed and its producers agree on a time that the database does not have."""

from datetime import UTC, datetime, timedelta

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse.v1 import pulse_pb2_grpc as pb_grpc
from pulse_server.base.ids import first_id_at
from tests.system.stage import Stage
from tests.transport.jobs_table import JobsTable


@pytest.mark.parametrize("ahead", [timedelta(hours=2), timedelta(days=400)], ids=str)
async def test_repeat_of_a_completed_job_is_a_duplicate_however_far_the_clock_of_its_host_is_ahead(
    stage: Stage, table: JobsTable, ahead: timedelta
) -> None:
    """A repeat is looked for from the time in its id on. The job finished hours before that time."""
    seconds = str(int(ahead.total_seconds()))
    server = stage.start_pulsed(None, seconds, "pulse_server.main", program="faults.skewed_clock")
    await stage.serving(server)
    await stage.worker(server.address, "work")
    job_id = first_id_at(datetime.now(UTC) + ahead)
    request = pb.SubmitJobRequest(topic="work", payload=b"{}", job_id=job_id)
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = pb_grpc.PulseServiceStub(channel)
        await stub.SubmitJob(request)
        await table.wait_until(job_id, status="COMPLETED")

        assert (await stub.SubmitJob(request)).duplicate
    assert await table.count() == 1
