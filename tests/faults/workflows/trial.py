"""A trial: random workflows are disturbed for a while, all jobs end, and the audit is judged."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import asyncpg

from pulse_server.database.schema import apply_migrations
from pulse_server.embedded.cluster import SUPERUSER
from tests.faults import history
from tests.faults.audit import Connection, install, read_audit, record_clock
from tests.faults.cluster import OWNER, Cluster
from tests.faults.evidence import Evidence
from tests.faults.history import History
from tests.faults.rules.transitions import check_transitions
from tests.faults.rules.whole_workflows import check_whole_workflows
from tests.faults.rules.workflows import check_conditions, check_counting, check_in_step, check_readiness
from tests.faults.story import describe
from tests.faults.violations import Violation
from tests.faults.watching import look_at_workflows
from tests.faults.workflows.actors import Operator, Producer, Settler, Watchdog, Worker
from tests.faults.workflows.mutants import MUTANTS, spoiled
from tests.faults.workflows.world import Server, World

_SERVERS, _WORKERS, _SETTLERS = 2, 4, 4
# Few workflows: the actors meet more often.
_AT_A_TIME = 10
_POSTGRES_LIVES_SECONDS, _JUDGED_EVERY_SECONDS = 10.0, 2.0
# After the disturbances: without any progress for this long, jobs are left for ever.
_PATIENCE_SECONDS, _LONGEST_SECONDS = 8.0, 60.0
_CHECKS = (check_transitions, check_conditions, check_readiness, check_in_step)
# Nothing is frozen here. In microseconds.
_VISIBLE_WITHIN = 50_000
_STORIES = 2
ALL_END = "all jobs end"
# Jobs and notices that are left, and how many changes there were.
_LEFT = """
SELECT (SELECT count(*) FROM pulse.jobs WHERE finished_at IS NULL)
    + (SELECT count(*) FROM pulse.workflow_notices), (SELECT count(*) FROM audit.job_changes)
"""
_KILL = """
SELECT count(pg_terminate_backend(pid))
FROM (
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'
      AND application_name = 'pulsed'
    ORDER BY random() LIMIT 1
) AS session
"""


@dataclass(frozen=True)
class Outcome:
    counts: Counter[str]
    violations: list[Violation]
    stories: list[str]

    def __str__(self) -> str:
        lines = [", ".join(f"{number:,} {name}" for name, number in sorted(self.counts.items()))]
        for rule, number in Counter((found.invariant, found.rule) for found in self.violations).items():
            lines.append(f"{' '.join(rule)}: BROKEN {number:,} times")
            some = [found for found in self.violations if (found.invariant, found.rule) == rule][:3]
            lines += [f"    {found.job_id}: {found.what}" for found in some]
        lines += ["", *self.stories] if self.violations else ["nothing is wrong"]
        return "\n".join(lines)


async def carry_out(
    dsn: str,
    directory: Path,
    *,
    seed: int,
    seconds: float,
    mutant: str | None = None,
    cluster: Cluster | None = None,
) -> Outcome:
    """Carry out a trial in a database with the schema and without a job. The directory keeps the history.

    With a cluster, Postgres is killed now and then. With a mutant, the trial ends as soon as it is found.
    """
    with History(directory, "trial") as events:
        world = World(seed, [Server(dsn) for _ in range(_SERVERS)], events)
        async with _session(dsn) as session:
            await install(session)
            await record_clock(session, events)
        try:
            async with spoiled(dsn, MUTANTS[mutant] if mutant else None), asyncio.TaskGroup() as tasks:
                for number, (act, pause) in enumerate(_acts(world, dsn)):
                    tasks.create_task(world.repeat(act, pause, Random(f"{seed} {number}")))
                try:
                    if mutant:
                        await _disturb_until_found(world, dsn, seconds)
                    else:
                        await _disturb(world, seconds, cluster)
                        world.is_calm = True
                        await _wait_for_the_end(dsn)
                finally:
                    world.is_over = True
        finally:
            for server in world.servers:
                await server.database.close()
        async with _session(dsn) as session:
            await record_clock(session, events)
        return await _judge(world, dsn, is_final=not mutant)


async def _judge(world: World, dsn: str, *, is_final: bool) -> Outcome:
    """Judge what happened so far. At the end no job and no notice may be left."""
    async with _session(dsn) as session:
        # The history is read last: it has all operations of the audit.
        audit, (left, _) = await read_audit(session), await _left(session)
    evidence = Evidence(history.read(world.history.path.parent), audit)
    violations = [found for check in _CHECKS for found in check(evidence)]
    violations += check_counting(evidence, _VISIBLE_WITHIN)
    violations += check_whole_workflows(evidence, _VISIBLE_WITHIN)
    if is_final and left:
        violations.append(Violation("I29", ALL_END, f"{left} jobs and notices are left."))
    counts = world.counts | Counter(jobs=len(audit.workflows.jobs), edges=len(audit.workflows.edges))
    return Outcome(counts, violations, [describe(evidence, found) for found in violations[:_STORIES]])


def _acts(world: World, dsn: str) -> list[tuple[Callable[[], Awaitable[None]], float]]:
    """What the actors do, and the longest pause of each in seconds."""
    outside = _Outside(world, dsn)
    return [
        (Producer(world, _AT_A_TIME).act, 0.02),
        *((Worker(world, f"w{number}").act, 0.004) for number in range(_WORKERS)),
        *((Settler(world, f"s{number}").act, 0.006) for number in range(_SETTLERS)),
        (Watchdog(world).act, 0.3),
        (Operator(world).act, 0.02),
        (outside.look, 0.2),
        (outside.kill, 0.8),
    ]


class _Outside:
    """Looks at the tables, and kills sessions of the servers. Each act connects: Postgres is killed, too."""

    def __init__(self, world: World, dsn: str) -> None:
        self._world = world
        self._dsn = dsn

    async def look(self) -> None:
        async with _session(self._dsn) as session:
            await look_at_workflows(session, self._world.history)
        self._world.counts["looks"] += 1

    async def kill(self) -> None:
        if not self._world.is_calm:
            async with _session(self._dsn) as session:
                self._world.counts["killed sessions"] += await session.fetchval(_KILL)


@asynccontextmanager
async def _session(dsn: str) -> AsyncIterator[Connection]:
    connection: Connection = await asyncpg.connect(dsn, timeout=10, command_timeout=30)
    try:
        yield connection
    finally:
        connection.terminate()


async def _disturb(world: World, seconds: float, cluster: Cluster | None) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _POSTGRES_LIVES_SECONDS))
        if cluster is not None and left > _POSTGRES_LIVES_SECONDS:
            await cluster.kill_postmaster()
            await cluster.start_again()
            world.counts["killed Postgres"] += 1


async def _disturb_until_found(world: World, dsn: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(_JUDGED_EVERY_SECONDS)
        if (await _judge(world, dsn, is_final=False)).violations:
            return


async def _wait_for_the_end(dsn: str) -> None:
    began = since = time.monotonic()
    before: tuple[int, int] | None = None
    async with _session(dsn) as session:
        while time.monotonic() - since < _PATIENCE_SECONDS and time.monotonic() - began < _LONGEST_SECONDS:
            now = await _left(session)
            if not now[0]:
                return
            if now != before:
                before, since = now, time.monotonic()
            await asyncio.sleep(0.1)


async def _left(session: Connection) -> tuple[int, int]:
    row = await session.fetchrow(_LEFT)
    assert row is not None
    return row[0], row[1]


def run(seconds: float, seed: int, mutant: str | None) -> int:
    """Carry out a trial in a cluster of its own, and print the report."""
    directory = Path(tempfile.mkdtemp(prefix="pulse-workflows-"))
    print(f"workflows with seed {seed}" + (f", mutant {mutant}" if mutant else ""), flush=True)
    outcome = asyncio.run(carry_out_in_cluster(directory, seed=seed, seconds=seconds, mutant=mutant))
    print(outcome)
    if not outcome.violations or mutant:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"The history is in {directory}. To repeat: --workflows {seconds:g} --seed {seed}")
    return int(bool(outcome.violations) != bool(mutant))


async def carry_out_in_cluster(
    directory: Path, *, seed: int, seconds: float, mutant: str | None = None
) -> Outcome:
    """Carry out a trial with a Postgres of its own, which is killed now and then."""
    (directory / "history").mkdir()
    cluster = Cluster(directory / "cluster")
    try:
        await cluster.open()
        dsn = f"postgresql://{SUPERUSER}@/{OWNER}?host={cluster.socket.parent}&port=5432"
        await apply_migrations(dsn)
        events = directory / "history"
        return await carry_out(dsn, events, seed=seed, seconds=seconds, mutant=mutant, cluster=cluster)
    finally:
        await cluster.close()
