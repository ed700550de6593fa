"""Servers, workers and an application on a database that fails over, and the checks afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pulse
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.system.journal import started_after_completion
from tests.system.stage import Pulsed, Stage, Worker, all_finished
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

SERVERS = 3
HELD_BY_EACH = 4


class Scene:
    """Three pulsed with a worker each. Two of the workers hold jobs to the end; the third one is killed."""

    def __init__(self, stage: Stage, settings: Mapping[str, str]) -> None:
        self._stage = stage
        self._settings = settings
        self._gate = stage.gate("over")
        self.servers: list[Pulsed] = []
        self.held: list[pulse.JobHandle] = []
        self.of_the_doomed: list[pulse.JobHandle] = []
        self._doomed: list[Worker] = []
        self._of_this_death: list[pulse.JobHandle] = []
        self._death_gate = ""

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]

    @property
    def dead_workers(self) -> set[str]:
        return {worker.name for worker in self._doomed if not worker.is_running}

    async def begin(self) -> None:
        """Start everything, and return once the handlers of the held jobs run."""
        stage = self._stage
        self.servers = [stage.start_pulsed(**self._settings) for _ in range(SERVERS)]
        for server in self.servers:
            await stage.serving(server)
        *survivors, _ = self.addresses
        for address in survivors:
            self._start_worker(address, f"held-{address}")
        self._start_doomed()
        self.held = [
            job for address in survivors for job in await self._enqueue(f"held-{address}", self._gate)
        ]
        await self._all_run(self.held)

    async def doom(self) -> None:
        """Start jobs in the worker that will be killed."""
        self._death_gate = self._stage.gate(f"death-{len(self._doomed)}")
        self._of_this_death = await self._enqueue("doomed", self._death_gate)
        self.of_the_doomed += self._of_this_death
        await self._all_run(self._of_this_death)

    def lose_worker(self) -> None:
        """Kill that worker; another one takes its place, as under a service manager."""
        self._doomed[-1].kill()
        self._start_doomed()

    async def watchdog_is_at_work(self) -> None:
        """Return once the jobs of the dead worker were reaped and claimed by its successor.

        This shows that the watchdog ran after the failover, and reaped no healthy lease.
        """
        await self._all_run(self._of_this_death, times=2)
        self._stage.open(self._death_gate)

    def finish(self) -> None:
        """Let the held jobs end."""
        self._stage.open(self._gate)

    async def _enqueue(self, topic: str, gate: str) -> list[pulse.JobHandle]:
        async with pulse.Pulse(self.addresses[0]) as p:
            return await p.enqueue_many(topic, [Errand(gate=gate)] * HELD_BY_EACH)

    async def _all_run(self, jobs: Iterable[pulse.JobHandle], times: int = 1) -> None:
        for job in jobs:
            await self._stage.started(job.id, times)

    def _start_doomed(self) -> None:
        self._doomed.append(self._start_worker(self.addresses[-1], "doomed"))

    def _start_worker(self, address: str, holds: str) -> Worker:
        return self._stage.start_worker(address, "work", "sync-work", f"{holds}=gated", concurrency=20)


@dataclass(frozen=True)
class Verdict:
    """What became of the jobs. Everything but `acked` and `undelivered` has to be empty."""

    acked: int
    lost: list[str]
    """Acknowledged, and not COMPLETED now."""
    unasked: int
    """Rows of jobs that were never acknowledged."""
    healthy_reaped: list[dict[str, Any]]
    """Leases that ended although their workers were alive and ran the jobs."""
    restarted: list[str]
    """Held by a worker that was alive all the time, and started more than once."""
    after_completion: list[str]
    """Started after their completion was acknowledged."""
    undelivered: int
    """Leases of jobs that were claimed by a statement whose answer was lost: no worker ran them."""

    @property
    def is_good(self) -> bool:
        return not (
            self.lost or self.unasked or self.healthy_reaped or self.restarted or self.after_completion
        )


async def judge(
    stage: Stage,
    scene: Scene,
    table: JobsTable,
    enqueued: Iterable[pulse.JobHandle],
    patience_seconds: float = PATIENCE_SECONDS,
) -> Verdict:
    """Wait until all jobs are finished on the new primary, and compare them with the acknowledgements."""
    await all_finished(table, patience_seconds)
    acked = {job.id for job in (*enqueued, *scene.held, *scene.of_the_doomed)}
    rows = await table.connection.fetch("SELECT id, status FROM pulse.all_jobs")
    completed = {str(row["id"]) for row in rows if row["status"] == "COMPLETED"}
    starts = {(start.job_id, start.attempt): start.at for start in reversed(stage.executions())}
    lapsed = [
        event for server in stage.servers for event in server.events if event["event"] == "lease_expired"
    ]
    of_the_living = [event for event in lapsed if event["worker_id"] not in scene.dead_workers]
    # An attempt that was not delivered is given back: its number may belong to a start after the reap.
    ran = [
        event
        for event in of_the_living
        if starts.get((event["job_id"], event["attempt"]), math.inf)
        < datetime.fromisoformat(event["time"]).timestamp()
    ]
    late = await started_after_completion(table, stage.executions())
    return Verdict(
        acked=len(acked),
        lost=sorted(acked - completed),
        unasked=len({str(row["id"]) for row in rows} - acked),
        healthy_reaped=ran,
        restarted=[job_id for job_id, runs in stage.by_job(scene.held).items() if len(runs) != 1],
        after_completion=[start.job_id for start in late],
        undelivered=len(of_the_living) - len(ran),
    )


async def seconds_to_claim(stage: Stage, moment: datetime) -> float:
    """Return the seconds from the moment until a handler started again."""

    def starts() -> list[float]:
        return [start.at for start in stage.executions() if start.at >= moment.timestamp()]

    first = min(await eventually(starts, "a job is claimed again"))
    return float(first - moment.timestamp())
