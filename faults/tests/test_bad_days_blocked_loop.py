"""A handler blocks its worker's event loop for several leases, and keeps its job.

PULSE_BAD_DAYS=full makes it a minute, with the default leases of a server.
"""

import pulse
from faults.bad_days.scale import BLOCK
from tests.system.stage import Stage, finished
from tests.system.worker_program import Errand


async def test_handler_that_blocks_the_event_loop_keeps_its_job(stage: Stage) -> None:
    """Jobs that were prefetched behind it go to another worker. Each runs once, at its first attempt."""
    server = await stage.pulsed(**BLOCK.settings)
    gate = stage.gate("blocked")
    blocked = await stage.worker(server.address, "gated", "block", "work", concurrency=1)
    async with pulse.Pulse(server.address) as p:
        await stage.prefetches(p, blocked)
        first = await p.enqueue("gated", Errand(gate=gate))
        await stage.started(first.id)
        handle = await p.enqueue("block", Errand(seconds=BLOCK.seconds))
        behind = await p.enqueue_many("work", [Errand("behind")] * 3)
        stage.open(gate)
        await stage.started(handle.id)
        other = await stage.worker(server.address, "work")
        jobs = [await finished(p, each.id, BLOCK.patience_seconds) for each in behind]
        assert not stage.executions(handle.id, "end")
        kept = await finished(p, handle.id, BLOCK.patience_seconds)
    assert {(job.status, job.attempts, job.worker_id) for job in jobs} == {("COMPLETED", 1, other.name)}
    assert (kept.status, kept.attempts, kept.worker_id) == ("COMPLETED", 1, blocked.name)
    assert all(len(starts) == 1 for starts in stage.by_job((handle, *behind)).values())
