"""An operator cancels more running jobs than one notification holds, through another server."""

import pulse
from tests.eventually import eventually
from tests.system.stage import QUICK, Stage
from tests.system.worker_program import Errand

# Neither a heartbeat nor the reconciliation of claims would detect it within the timeout of the test.
SLOW_BEATS = QUICK | {
    "PULSE_LEASE_TTL": "5m",
    "PULSE_HEARTBEAT_INTERVAL": "2m",
    "PULSE_WATCHDOG_INTERVAL": "1m",
}
RUNNING = 600


async def test_each_of_many_jobs_canceled_through_another_server_is_stopped(stage: Stage) -> None:
    here, there = await stage.pulsed(**SLOW_BEATS), await stage.pulsed(**SLOW_BEATS)
    await stage.worker(there.address, "patient", concurrency=RUNNING)
    async with pulse.Pulse(here.address) as p:
        handles = await p.enqueue_many("patient", [Errand()] * RUNNING)
        await eventually(lambda: len(stage.executions()) == RUNNING, "all of them run")
        cursor: str | None = ""
        while cursor is not None:
            cursor = (await p.cancel_batch(topic="patient", cursor=cursor or None)).next_cursor
    await eventually(
        lambda: {stop.job_id for stop in stage.executions(event="cancelled")} == {job.id for job in handles},
        "each handler is stopped",
    )
