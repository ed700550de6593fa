"""Loses the leader of a Patroni cluster repeatedly under load, and checks the jobs afterwards."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

from pulse_server.database.schema import apply_migrations
from tests.faults.failover import Scene, Verdict, judge
from tests.faults.ha.cluster import DATABASE, Cluster
from tests.faults.ha.losses import Losses, Recovery
from tests.faults.ha.programs import Programs
from tests.system.producer import producing
from tests.system.stage import QUICK, Stage
from tests.transport.jobs_table import JobsTable

# A leader that dies is replaced after some 20 s: every lease expires meanwhile.
_LEASES = QUICK | {"PULSE_LEASE_TTL": "12s", "PULSE_HEARTBEAT_INTERVAL": "4s"}
_PAUSE_SECONDS = 0.1
_ENQUEUE_TIMEOUT = timedelta(minutes=3)
_PATIENCE_SECONDS = 120.0

Report = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    recoveries: list[Recovery]
    verdict: Verdict

    @property
    def is_good(self) -> bool:
        acknowledged = sum(recovery.acknowledged_after_thaw for recovery in self.recoveries)
        return self.verdict.is_good and not acknowledged


async def carry_out(
    seconds: float, seed: int, directory: Path, programs: Programs, report: Report
) -> Outcome:
    """Lose the leader in each of the ways, in an order that the seed draws, until the time is over."""
    cluster = Cluster(directory, programs)
    try:
        leader = await cluster.begin()
        report(f"the cluster is up, {leader.name} leads")
        await apply_migrations(cluster.dsn)
        (directory / "pulse").mkdir()
        stage = Stage(cluster.dsn, directory / "pulse")
        words = io.StringIO()
        try:
            return await _lose_leaders(seconds, Random(seed), cluster, stage, report)
        finally:
            with redirect_stdout(words):  # the output of the processes is in their logs
                stage.close()
    finally:
        cluster.end()


async def _lose_leaders(
    seconds: float, chance: Random, cluster: Cluster, stage: Stage, report: Report
) -> Outcome:
    scene = Scene(stage, _LEASES)
    losses = Losses(cluster, scene, stage)
    recoveries: list[Recovery] = []
    await scene.begin()
    began = time.monotonic()
    async with producing(
        *scene.addresses, pause_seconds=_PAUSE_SECONDS, timeout=_ENQUEUE_TIMEOUT
    ) as producer:
        while not recoveries or time.monotonic() - began < seconds:
            for kind in chance.sample(sorted(losses.kinds), len(losses.kinds)):
                leader = await cluster.is_whole()
                await scene.doom()
                await producer.acknowledged(chance.randrange(50, 200))
                recovery = await losses.kinds[kind](leader)
                recoveries.append(recovery)
                report(f"{kind}: {recovery.successor} replaces {recovery.machine}, and jobs run again")
                await scene.watchdog_is_at_work()
                await producer.acknowledged(50)
        leader = await cluster.is_whole()
    scene.finish()
    report("everything is healed; waiting for the last jobs")
    async with cluster.session(leader, DATABASE) as connection:
        verdict = await judge(stage, scene, JobsTable(connection), producer.handles, _PATIENCE_SECONDS)
    return Outcome(recoveries, verdict)
