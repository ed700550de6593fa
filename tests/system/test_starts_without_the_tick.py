"""Jobs of topics with limits start when their turn comes, without the tick that repairs lost wake-ups."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pulse
from tests.eventually import PATIENCE_SECONDS
from tests.system.stage import Stage, all_completed
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

# Longer than the test: what only the tick would find is not found.
NO_TICK = {"PULSE_DISPATCH_INTERVAL": "10m"}
SECOND = timedelta(seconds=1)
LIMITS: dict[str, dict[str, object]] = {
    "limited": {"running": 1},
    "metered": {"rate": pulse.Rate(20, per=SECOND)},
    "lanes": {"per_lane": 1},
    "ordered": {"ordered": True},
    "sips": {"lane_rate": pulse.Rate(5, per=SECOND)},
    "train": {"pool": "gpu", "running": 2},
    "render": {"pool": "gpu", "running": 2, "turns": True},
}
RETRIED = frozenset({"ordered", "train"})
JOBS = 400


async def test_jobs_of_two_servers_with_limits_need_no_tick(stage: Stage, table: JobsTable) -> None:
    """The end of a run at one server makes room at the other; a retry, a delay and a rate pass by timers."""
    servers = [await stage.pulsed(**NO_TICK) for _ in range(2)]
    random = Random(21)
    async with (
        pulse.Pulse(servers[0].address) as one,
        pulse.Pulse(servers[1].address) as other,
    ):
        for topic, entries in LIMITS.items():
            await random.choice((one, other)).set_topic(topic, **entries)  # type: ignore[arg-type]
        topics = [f"{topic}={'retry-soon' if topic in RETRIED else 'work'}" for topic in LIMITS]
        # Neither serves all of them.
        await stage.worker(servers[0].address, *topics[:5], concurrency=4)
        await stage.worker(servers[1].address, *topics[2:], concurrency=4)
        handles = []
        for number in range(JOBS):
            topic = random.choice(list(LIMITS))
            handles.append(
                await random.choice((one, other)).enqueue(
                    topic,
                    None if topic in RETRIED else Errand(seconds=random.choice((0.0, 0.0, 0.01, 0.05))),
                    lane=f"lane-{random.randrange(8)}",
                    delay=random.choice((None, None, timedelta(seconds=0.1))),
                )
            )
            if number % 40 == 0:
                await other.hold(random.choice(list(LIMITS)), timedelta(seconds=0.2))
        # Below a minute, after which a server looks for some of them by itself.
        await all_completed(table, handles, PATIENCE_SECONDS)
