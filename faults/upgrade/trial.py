"""Replaces servers by those of a next release under load, on a database with jobs in every state."""

from __future__ import annotations

import asyncio
import io
import itertools
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import asyncpg

import pulse
from faults.upgrade import aftermath, comparison
from faults.upgrade.locks import Holds, watched_locks
from faults.upgrade.next_release import NextRelease
from faults.upgrade.rows import Filling, fill
from pulse_server.database.schema import apply_migrations
from tests.eventually import eventually
from tests.postgres.sessions import Connection
from tests.server.outage_postgres import OutagePostgres
from tests.system.stage import Pulsed, Stage, Worker
from tests.system.worker_program import Errand

# ---------------------------------------------------------------- load
# An application that submits while servers are replaced. It repeats refused calls under the same key.


_PAUSE_SECONDS = 0.02
_AFTER_REFUSAL_SECONDS = 0.2
_TIMEOUT = timedelta(seconds=60)
_PATIENCE_SECONDS = 300.0


class Application:
    """`acknowledged` has the job of each key; `refusals` counts the errors that the caller saw."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self.acknowledged: dict[str, str] = {}
        self.refusals: Counter[str] = Counter()
        self.longest_seconds = 0.0
        self._keys = (f"live-{number}" for number in itertools.count())
        self._is_over = False

    async def submitted(self, more: int) -> None:
        """Return once that many more jobs were acknowledged."""
        goal = len(self.acknowledged) + more
        await eventually(
            lambda: len(self.acknowledged) >= goal, f"{more} more jobs are submitted", _PATIENCE_SECONDS
        )

    async def _submit(self, p: pulse.Pulse) -> None:
        while not self._is_over:
            key = next(self._keys)
            began = time.monotonic()
            self.acknowledged[key] = await self._submit_until_stored(p, key)
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _submit_until_stored(self, p: pulse.Pulse, key: str) -> str:
        while True:
            try:
                return (await p.enqueue("served", {}, key=key, timeout=_TIMEOUT)).id
            except pulse.PulseError as error:
                self.refusals[error.code] += 1
                await asyncio.sleep(_AFTER_REFUSAL_SECONDS)


@asynccontextmanager
async def application_at(addresses: Sequence[str]) -> AsyncIterator[Application]:
    """Submit at each address for the length of a block. Returns once every call is answered."""
    application = Application(addresses)
    clients = [pulse.Pulse(address) for address in addresses]
    tasks = [asyncio.create_task(application._submit(client)) for client in clients for _ in range(3)]
    try:
        yield application
        application._is_over = True
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.close()


# ---------------------------------------------------------------- trial


PATIENCE_SECONDS = 600.0
_LEASE_SECONDS = 15
SETTINGS = {
    # Shorter than a million jobs are locked: every lease ends meanwhile.
    "PULSE_LEASE_TTL": f"{_LEASE_SECONDS}s",
    "PULSE_HEARTBEAT_INTERVAL": "5s",
    "PULSE_WATCHDOG_INTERVAL": "2s",
    "PULSE_DISPATCH_INTERVAL": "500ms",
    "PULSE_RETENTION_COMPLETED": "forever",
    "PULSE_RETENTION_CANCELED": "forever",
    "PULSE_RETENTION_DEAD_LETTERED": "forever",
}
_HELD = 40
_DOOMED = 10
_SOME = 300
_LEASES = "SELECT min(lease_until) FROM pulse.jobs WHERE topic = 'held'"
_UNCOUNTED = "SELECT EXISTS (SELECT FROM pulse.jobs WHERE topic = 'doomed' AND NOT delivered)"
_UNFINISHED = """
SELECT EXISTS (
    SELECT FROM pulse.jobs WHERE finished_at IS NULL AND topic IN ('served', 'held', 'doomed')
)
"""

Report = Callable[[str], None]


@dataclass
class Outcome:
    """What happened, and what was wrong: `faults` has to be empty."""

    rows: int
    counts: dict[str, int] = field(default_factory=dict)
    submitted: int = 0
    executions: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    longest_submit_seconds: float = 0.0
    migration_seconds: float = 0.0
    holds: Holds = field(default_factory=Holds)
    retention_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


class Trial:
    """One run, from the filling to the verdict."""

    def __init__(self, stage: Stage, release: NextRelease, connection: Connection, report: Report) -> None:
        self._stage = stage
        self._release = release
        self._connection = connection
        self._report = report
        self._gate = stage.gate("over")
        self._held: list[pulse.JobHandle] = []
        self._doomed: list[pulse.JobHandle] = []

    async def carry_out(self, filling: Filling) -> Outcome:
        """Fill the database, upgrade it under load, and check what became of each job."""
        outcome = Outcome(filling.rows)
        await apply_migrations(self._stage.dsn)
        await fill(self._connection, filling)
        outcome.counts = await comparison.counts(self._connection, "before.jobs")
        self._report(f"a database with {filling.rows:,} jobs: {outcome.counts}")
        old = [await self._stage.pulsed(None, **SETTINGS) for _ in range(2)]
        async with application_at([server.address for server in old]) as application:
            await self._work_at(old)
            await application.submitted(_SOME)
            new = await self._migrate(outcome)
            await self._old_ones_go_on(old, application, outcome)
            for server in old:
                await self._replace(server)
            await application.submitted(_SOME)
        self._stage.open(self._gate)
        await self._finish(application, outcome)
        outcome.faults += await aftermath.look_through(new.address, self._connection)
        began = time.monotonic()
        outcome.faults += await aftermath.retire(
            self._stage, SETTINGS | self._release.variables, self._connection
        )
        outcome.retention_seconds = time.monotonic() - began
        return outcome

    async def _work_at(self, old: list[Pulsed]) -> None:
        """Start workers: two hold jobs to the end, and one is killed with what it runs."""
        for server in old:
            self._start_worker(server.address, "served=work", "ticks=work", "held=gated")
        doomed = self._start_worker(old[0].address, "doomed=gated")
        async with pulse.Pulse(old[0].address) as p:
            self._held = await p.enqueue_many("held", [Errand(gate=self._gate)] * _HELD)
            self._doomed = await p.enqueue_many("doomed", [Errand(gate=self._gate)] * _DOOMED)
        for job in (*self._held, *self._doomed):
            await self._stage.started(job.id)

        async def count() -> bool:
            return not await self._connection.fetchval(_UNCOUNTED)

        # Else a reap returns them, and the next run has the same number. ADR-0043
        await eventually(count, "attempts of the worker to be killed count")
        doomed.kill()
        self._report("two old servers and their workers are at work; one worker was killed")

    async def _migrate(self, outcome: Outcome) -> Pulsed:
        """Start a server of the next release beside the old ones, and have it migrate."""
        began = time.monotonic()
        async with watched_locks(self._stage.dsn) as outcome.holds:
            server = self._stage.start_pulsed(None, "--migrate", **SETTINGS, **self._release.variables)
            await eventually(
                lambda: server.is_serving or not server.is_running, "the new server serves", PATIENCE_SECONDS
            )
            assert server.is_running, server.log
        outcome.migration_seconds = time.monotonic() - began
        self._start_worker(server.address, "served=work", "ticks=work", "doomed=gated", is_new=True)
        locked = ", ".join(f"{seconds:.2f}" for seconds in outcome.holds.seconds)
        self._report(f"migrated; pulse.jobs was locked for {locked} s")
        return server

    async def _old_ones_go_on(self, old: list[Pulsed], application: Application, outcome: Outcome) -> None:
        """Return when the old servers have taken jobs, and have kept their leases for two terms."""
        await application.submitted(_SOME)
        kept = await self._connection.fetchval("SELECT clock_timestamp()") + timedelta(
            seconds=2 * _LEASE_SECONDS
        )

        async def are_kept() -> bool:
            ends = await self._connection.fetchval(_LEASES)
            return bool(ends > kept + timedelta(seconds=_LEASE_SECONDS))

        await eventually(are_kept, "old servers extend leases", PATIENCE_SECONDS)
        for server in old:
            outcome.faults += [
                f"{server.name} logged {bug['event']} on the new schema" for bug in server.bugs
            ]
        if application.refusals:
            outcome.faults.append(f"old servers refused submits: {dict(application.refusals)}")
        self._report("old servers serve on the new schema, and keep leases")

    async def _replace(self, server: Pulsed) -> None:
        server.signal(signal.SIGTERM)
        await server.ended()
        await self._stage.pulsed(server.address, **SETTINGS, **self._release.variables)
        self._report(f"{server.name} is replaced")

    async def _finish(self, application: Application, outcome: Outcome) -> None:
        """Wait for the jobs, and compare everything with what was there before."""

        async def is_done() -> bool:
            return not (
                await self._connection.fetchval(_UNFINISHED)
                or await comparison.are_held_by_the_dead(self._connection)
            )

        try:
            await eventually(is_done, "all jobs that are served are finished", PATIENCE_SECONDS)
        except AssertionError as error:
            outcome.faults.append(str(error))
        self._report("all jobs that are served are finished")
        outcome.submitted = len(application.acknowledged)
        outcome.refusals = application.refusals
        outcome.longest_submit_seconds = application.longest_seconds
        outcome.executions = len(self._stage.executions())
        outcome.faults += await comparison.faults(self._connection)
        live = [*application.acknowledged.values(), *(job.id for job in (*self._held, *self._doomed))]
        outcome.faults += await aftermath.judge_executions(
            self._connection, self._stage.executions(), live, {job.id for job in self._doomed}
        )

    def _start_worker(self, address: str, *topics: str, is_new: bool = False) -> Worker:
        variables = self._release.variables if is_new else {}
        return self._stage.start_worker(address, *topics, concurrency=60, **variables)


async def carry_out(filling: Filling, directory: Path, report: Report) -> Outcome:
    """Run the trial on a Postgres of its own, which is as careful as one in production."""
    release = NextRelease(directory)
    postgres = OutagePostgres(directory / "cluster", {"max_connections": "200"})
    postgres.start()
    try:
        (directory / "pulse").mkdir()
        stage = Stage(postgres.dsn, directory / "pulse")
        connection = await asyncpg.connect(postgres.dsn, timeout=60)
        try:
            return await Trial(stage, release, connection, report).carry_out(filling)
        finally:
            connection.terminate()
            with redirect_stdout(io.StringIO()):  # the output of the processes is in their logs
                stage.close()
    finally:
        postgres.close()
