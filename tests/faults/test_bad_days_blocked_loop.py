"""A handler blocks its worker's event loop for several leases, and keeps its job.

PULSE_BAD_DAYS=full makes it a minute, with the leases of a server that nobody tuned.
"""

import pulse
from tests.eventually import eventually
from tests.faults.bad_days.scale import BLOCK
from tests.system.stage import Stage, finished
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable


async def test_handler_that_blocks_the_event_loop_keeps_its_job(stage: Stage, table: JobsTable) -> None:
    """What was prefetched behind it is kept, too, and runs once."""
    server = await stage.pulsed(**BLOCK.settings)
    gate = stage.gate("blocked")
    blocked = await stage.worker(server.address, "gated", "block", "work", concurrency=1)
    async with pulse.Pulse(server.address) as p:
        await stage.prefetches(p, blocked)
        first = await p.enqueue("gated", Errand(gate=gate))
        await stage.started(first.id)
        handle = await p.enqueue("block", Errand(seconds=BLOCK.seconds))
        behind = await p.enqueue_many("work", [Errand("behind")] * 3)
        # Beaten at least once: so it has read them, and holds them.
        beaten = f"lease_until > started_at + interval '{BLOCK.lease_seconds + 0.1} s'"

        async def all_are_beaten() -> bool:
            return await table.count(beaten) == 5

        await eventually(all_are_beaten, "the worker holds all five")
        await stage.worker(server.address, "block", "work")
        stage.open(gate)
        jobs = [await finished(p, each.id, BLOCK.patience_seconds) for each in (handle, *behind)]
    assert {(job.status, job.attempts, job.worker_id) for job in jobs} == {("COMPLETED", 1, blocked.name)}
    assert all(len(starts) == 1 for starts in stage.by_job((handle, *behind)).values())
