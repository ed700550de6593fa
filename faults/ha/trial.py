"""Loses the leader of a Patroni cluster repeatedly under load, and checks the jobs afterwards."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from faults.failover import Scene, Verdict, judge, seconds_to_claim
from faults.ha.cluster import DATABASE, Cluster
from faults.ha.machine import Machine
from faults.ha.programs import Programs
from pulse_server.database.schema import apply_migrations
from tests.system.producer import producing
from tests.system.stage import QUICK, Stage
from tests.transport.jobs_table import JobsTable

# ---------------------------------------------------------------- losses
# The ways in which a cluster loses a machine: each is carried out, observed until recovery, and repaired.


@dataclass(frozen=True)
class Recovery:
    """How long it took until another machine replaced it, and until a handler started again."""

    kind: str
    machine: str
    successor: str
    to_replacement_seconds: float
    to_claim_seconds: float
    """Since the replacement."""
    acknowledged_after_thaw: int = 0
    """Commits that the old leader acknowledged after its thaw."""


class Losses:
    """One method for each kind. Work goes on meanwhile, and a worker is killed with the machine."""

    def __init__(self, cluster: Cluster, scene: Scene, stage: Stage) -> None:
        self._cluster = cluster
        self._scene = scene
        self._stage = stage
        self.kinds: dict[str, Callable[[Machine], Awaitable[Recovery]]] = {
            "SIGKILL": self.killed,
            "crash": self.crashed,
            "freeze": self.frozen,
            "switchover": self.switched_over,
            "no standby": self.standby_killed,
            "no etcd": self.etcd_frozen,
        }

    async def killed(self, leader: Machine) -> Recovery:
        """Patroni and Postgres die at once; later a service manager starts Patroni again."""
        async with self._watched("SIGKILL", leader, self._cluster.promoted_instead_of(leader)) as watched:
            leader.kill()
            self._scene.lose_worker()
        leader.start_patroni()
        return watched.recovery()

    async def crashed(self, leader: Machine) -> Recovery:
        """Only Postgres is killed, and its Patroni detects it."""
        async with self._watched("crash", leader, self._cluster.promoted_instead_of(leader)) as watched:
            leader.kill_postgres()
            self._scene.lose_worker()
        return watched.recovery()

    async def frozen(self, leader: Machine) -> Recovery:
        """The whole machine is frozen, is replaced, and thaws."""
        async with self._cluster.session(leader) as connection:
            async with self._watched("freeze", leader, self._cluster.promoted_instead_of(leader)) as watched:
                leader.freeze()
                self._scene.lose_worker()
                # The first statement that it gets after the thaw, before its Patroni acts.
                writing = asyncio.create_task(connection.execute("CREATE TABLE written_after_thaw ()"))
            leader.thaw()
            await self._cluster.is_whole()
            acknowledged = writing.done() and writing.exception() is None
            connection.terminate()
            await asyncio.gather(writing, return_exceptions=True)
        return watched.recovery(int(acknowledged))

    async def switched_over(self, leader: Machine) -> Recovery:
        """An operator moves the lead to the synchronous standby."""
        async with self._watched("switchover", leader, self._cluster.promoted_instead_of(leader)) as watched:
            self._scene.lose_worker()
            await self._cluster.switch_over(leader)
        return watched.recovery()

    async def standby_killed(self, leader: Machine) -> Recovery:
        """The standby that every commit waits for dies, and another one is appointed."""
        standby = await self._cluster.synchronous_standby()
        appointed = self._cluster.in_step_instead_of(standby, leader)
        async with self._watched("no standby", standby, appointed) as watched:
            standby.kill()
            self._scene.lose_worker()
        standby.start_patroni()
        return watched.recovery()

    async def etcd_frozen(self, leader: Machine) -> Recovery:
        """etcd has no majority, so no machine may lead. The time is measured from when it has one again."""
        frozen = self._cluster.machines[:2]
        for machine in frozen:
            machine.freeze_etcd()
        self._scene.lose_worker()
        await self._cluster.has_stepped_down(leader)
        async with self._watched("no etcd", leader, self._cluster.promoted_instead_of()) as watched:
            for machine in frozen:
                machine.thaw()
        return watched.recovery()

    @asynccontextmanager
    async def _watched(
        self, kind: str, machine: Machine, replaced: Coroutine[Any, Any, tuple[Machine, datetime]]
    ) -> AsyncIterator[_Watched]:
        """Watch for the new leader from the beginning of the block. Returns once a job is claimed again."""
        watched = _Watched(kind, machine)
        watching = asyncio.create_task(replaced)
        try:
            yield watched
            watched.successor, watched.replaced_at = await watching
        finally:
            watching.cancel()
        watched.to_claim_seconds = await seconds_to_claim(self._stage, watched.replaced_at)


class _Watched:
    successor: Machine
    replaced_at: datetime
    to_claim_seconds: float

    def __init__(self, kind: str, machine: Machine) -> None:
        self._kind = kind
        self._machine = machine
        # Every clock here is that of this machine.
        self._began = datetime.now(UTC)

    def recovery(self, acknowledged_after_thaw: int = 0) -> Recovery:
        return Recovery(
            self._kind,
            self._machine.name,
            self.successor.name,
            (self.replaced_at - self._began).total_seconds(),
            self.to_claim_seconds,
            acknowledged_after_thaw,
        )


# ---------------------------------------------------------------- trial


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
