"""A trial: random workflows are disturbed for a while, all jobs end, and the audit is judged."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random

import asyncpg

from faults import history
from faults.audit import Connection, install, read_audit, record_clock
from faults.cluster import OWNER, Cluster
from faults.evidence import Evidence
from faults.history import History
from faults.rules.transitions import check_transitions
from faults.rules.whole_workflows import check_whole_workflows
from faults.rules.workflows import check_conditions, check_counting, check_in_step, check_readiness
from faults.story import describe
from faults.violations import Violation
from faults.watching import look_at_workflows
from faults.workflows.mutants import MUTANTS, spoiled
from faults.workflows.shapes import SUCCEEDED, Shape, draw_condition, draw_shape
from faults.workflows.world import Server, World
from pulse_server.base.ids import new_id
from pulse_server.database.schema import apply_migrations
from pulse_server.embedded.cluster import SUPERUSER
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.reports import FailureReport, Slots
from pulse_server.jobs.rules import Claim
from pulse_server.workflows.rules import NewNode, When, WorkflowBounds

# ---------------------------------------------------------------- actors
# The actors of a trial. Every change is made by the project's own statements.


_TOPIC = "t"
_LEASE = timedelta(seconds=1)
_AT_ONCE = timedelta(0)
_BOUNDS = WorkflowBounds(jobs=100, edges=10_000)
# Of the jobs. Their times count from when they become ready.
_DELAYED_SHARE, _DELAY = 0.05, timedelta(milliseconds=50)
_START_SHARE, _START_WITHIN = 0.05, timedelta(milliseconds=300)
_REPEATED_SHARE = 0.2
# Of the claims of a worker, before the calm.
_FAILED_SHARE, _DISCARDED_SHARE, _RELEASED_SHARE, _LOST_SHARE, _ADD_SHARE = 0.25, 0.3, 0.05, 0.02, 0.3
_MANY = 1000
_TURN_SECONDS = 0.5


class Producer:
    """Keeps a number of workflows unfinished."""

    def __init__(self, world: World, at_a_time: int) -> None:
        self._world = world
        self._at_a_time = at_a_time
        self._random = Random(f"{world.seed} shapes")
        self._numbers = count(1)

    async def act(self) -> None:
        world = self._world
        if world.is_calm:
            return
        server = world.server(self._random)
        (row,) = await server.database.hot.fetch(
            "unfinished", "SELECT count(*) AS number FROM pulse.workflows WHERE finished_at IS NULL"
        )
        if row["number"] < self._at_a_time:
            await self._submit(server, draw_shape(self._random))

    async def _submit(self, server: Server, shape: Shape) -> None:
        world, number = self._world, next(self._numbers)
        names = {place: f"{number}-{place}" for place in shape.numbers}
        nodes = [
            _node(
                self._random,
                names[place],
                shape.condition_of(place),
                after=[names[parent] for parent in shape.parents_of(place)],
            )
            for place in shape.numbers
        ]
        workflow_id = new_id()
        for _ in range(2 if self._random.random() < _REPEATED_SHARE else 1):
            operation = world.history.operation(
                "workflow", workflow_id=workflow_id, keys=list(names.values())
            )
            store = server.workflows.store_workflow(workflow_id, "trial", b"", nodes)
            await world.record(operation, store)
        world.counts["workflows"] += 1


class Worker:
    """Claims jobs, and ends them in every way. Some handlers add jobs to their workflow."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._random = Random(f"{world.seed} {name}")

    async def act(self) -> None:
        world, random = self._world, self._random
        server = world.server(random)
        slots = Slots([self._name], [False], [0] * random.choice((1, 3, 10)))
        claimed = await server.jobs.claim_batch([_TOPIC], slots, _LEASE)
        if not claimed or random.random() < 0.05:
            await server.jobs.promote_due(_MANY)
        claims = [job.claim for job in claimed]
        if claims and not world.is_calm and random.random() < _ADD_SHARE:
            await self._add(server, claims[0])
        await asyncio.sleep(random.random() * 0.01)
        await self._end(server, claims)

    async def _end(self, server: Server, claims: Sequence[Claim]) -> None:
        world, random = self._world, self._random
        good, bad, released = [], [], []
        for claim in claims:
            draw = 1.0 if world.is_calm else random.random()
            if draw < _LOST_SHARE:
                world.counts["lost with their worker"] += 1
            elif draw < _LOST_SHARE + _RELEASED_SHARE:
                released.append(claim)
            elif draw < _LOST_SHARE + _RELEASED_SHARE + _FAILED_SHARE:
                bad.append(claim)
            else:
                good.append(claim)
        if good:
            results = {claim: b"1" for claim in good if random.random() < 0.5}
            world.counts["completed"] += len(await server.jobs.complete_jobs(good, results))
        if bad:
            reports = [
                FailureReport(claim, "boom", _AT_ONCE, discard=random.random() < _DISCARDED_SHARE)
                for claim in bad
            ]
            for ended in (await server.jobs.fail_jobs(reports)).values():
                world.counts[str(ended.status)] += 1
        if released:
            world.counts["released"] += len(await server.jobs.release_jobs(released))

    async def _add(self, server: Server, claim: Claim) -> None:
        """Add after the job itself, after others, and before a job that waits: the same in every run."""
        world, random = self._world, Random(claim.job_id)
        rows = await server.database.hot.fetch("names", _NAMES, claim.job_id)
        if not rows:
            return
        own, others = rows[0]["own"], [row["other"] for row in rows if row["other"]]
        children = [row["other"] for row in rows if row["is_child"]]
        nodes = []
        for number in range(1, random.randint(1, 3) + 1):
            after = [own] if random.random() < 0.5 else []
            before = [random.choice(children)] if children and random.random() < 0.7 else []
            if others and not before and random.random() < 0.5:
                after.append(random.choice(others))
            condition = draw_condition(random) if after else SUCCEEDED
            nodes.append(_node(random, f"{own}+{number}", condition, after=after, before=before))
        keys = [node.name for node in nodes]
        for _ in range(random.choice((1, 2))):
            operation = world.history.operation("add", job_id=claim.job_id, run=claim.run, keys=keys)
            add = asyncio.ensure_future(server.workflows.add_to_workflow(claim, nodes, _BOUNDS))
            await world.record(operation, add)
            world.counts[f"additions: {add.result().problem or 'done'}"] += 1


# The jobs of its workflow as it was submitted, whatever was added since. Added jobs may add, but no further.
_NAMES = """
SELECT node.name AS own, other.name AS other, edge.child IS NOT NULL AS is_child
FROM pulse.workflow_jobs AS node
LEFT JOIN pulse.workflow_jobs AS other
    ON other.workflow_id = node.workflow_id AND other.number <> node.number AND other.name NOT LIKE '%+%'
LEFT JOIN pulse.workflow_edges AS edge ON edge.parent = node.job_id AND edge.child = other.job_id
WHERE node.job_id = $1::uuid AND node.name NOT LIKE '%+%+%'
ORDER BY other.number
"""


class Settler:
    """Settles with random bounds: small ones leave much to the next settle."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._random = Random(f"{world.seed} {name}")

    async def act(self) -> None:
        random, is_calm = self._random, self._world.is_calm
        # All of them rest at the same time: notices pile up, and some are late.
        if not is_calm and int(time.monotonic() / _TURN_SECONDS) % 2:
            return
        settled = await self._world.server(random).workflows.settle_workflows(
            workflows=_MANY if is_calm else random.choice((1, 10, _MANY)),
            notices=_MANY if is_calm else random.choice((1, 5, _MANY)),
            rounds=50 if is_calm else random.choice((1, 3, 50)),
            jobs=_MANY if is_calm else random.choice((1, 3, 10, _MANY)),
        )
        self._world.counts["became ready"] += settled.ready
        self._world.counts["dropped"] += sum(map(len, settled.dropped.values()))


class Watchdog:
    """Reaps jobs of killed sessions, and cancels jobs that did not start in time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"{world.seed} watchdog")

    async def act(self) -> None:
        server = self._world.server(self._random)
        self._world.counts["reaped"] += len(await server.jobs.reap_expired(_MANY))
        self._world.counts["not started in time"] += len(await server.jobs.cancel_unstarted(_MANY))


class Operator:
    """Cancels, retries and deletes jobs, and cancels and retries workflows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"{world.seed} operator")

    async def act(self) -> None:
        if self._world.is_calm:
            return
        server = self._world.server(self._random)
        acts = {self._cancel: 35, self._retry: 50, self._delete: 5, self._cancel_all: 2, self._retry_all: 4}
        (act,) = self._random.choices(list(acts), weights=list(acts.values()))
        await act(server)

    async def _cancel(self, server: Server) -> None:
        ids = await _some(server, "finished_at IS NULL", 2)
        await self._record("cancel", ids, server.jobs.cancel_jobs(ids, "by hand"))

    async def _retry(self, server: Server) -> None:
        newest = "ended_as IS NOT NULL AND finished_at > now() - interval '1 second'"
        ids = await _some(server, self._random.choice((newest, "ended_as IS NOT NULL")), 4)
        await self._record("redrive", ids, server.jobs.retry_jobs(ids, 1))

    async def _delete(self, server: Server) -> None:
        ids = await _some(server, "ended_as IS NOT NULL", 1)
        await self._record("delete", ids, server.jobs.delete_jobs(ids))

    async def _cancel_all(self, server: Server) -> None:
        for workflow_id in await self._workflow(server, "finished_at IS NULL"):
            operation = self._world.history.operation("cancel_workflow", workflow_id=workflow_id)
            canceled = await server.workflows.cancel_workflow(workflow_id, "")
            if canceled.is_canceled:
                operation.done()
                self._world.counts["canceled workflows"] += 1
                await server.jobs.cancel_jobs(canceled.left, "")

    async def _retry_all(self, server: Server) -> None:
        for workflow_id in await self._workflow(server, "failed + canceled > 0"):
            operation = self._world.history.operation("redrive_workflow", workflow_id=workflow_id)
            await self._world.record(operation, self._retry_workflow(server, workflow_id))

    async def _retry_workflow(self, server: Server, workflow_id: str) -> None:
        self._world.counts["retried workflows"] += 1
        await server.workflows.retry_workflow(workflow_id, 1)

    async def _workflow(self, server: Server, which: str) -> list[str]:
        rows = await server.database.reads.fetch(
            "workflows", f"SELECT id FROM pulse.workflows WHERE {which} ORDER BY random() LIMIT 1"
        )
        return [str(row["id"]) for row in rows]

    async def _record(self, name: str, ids: Sequence[str], act: Awaitable[Sized]) -> None:
        """Record that it was sent. Its answer is not recorded: which jobs were changed is in the audit."""
        for job_id in ids:
            self._world.history.operation(name, job_id=job_id)
        self._world.counts[name] += len(await act)


async def _some(server: Server, which: str, most: int) -> list[str]:
    rows = await server.database.reads.fetch(
        "some", f"SELECT id FROM pulse.jobs WHERE {which} ORDER BY random() LIMIT {most}"
    )
    return [str(row["id"]) for row in rows]


def _node(
    random: Random, name: str, condition: str, *, after: Sequence[str], before: Sequence[str] = ()
) -> NewNode:
    payload = json.dumps({"key": name}).encode()
    job = NewJob(
        id=new_id(),
        topic=_TOPIC,
        payload=payload,
        priority=random.randint(0, 2),
        max_attempts=random.choice((1, 1, 2)),
        delay=_DELAY if random.random() < _DELAYED_SHARE else None,
        start_within=_START_WITHIN if random.random() < _START_SHARE else None,
    )
    return NewNode(name, job, after, When(condition), before)


# ---------------------------------------------------------------- trial


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
