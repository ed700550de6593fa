"""The actors of a trial. Every change is made by the project's own statements."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Sequence, Sized
from datetime import timedelta
from itertools import count
from random import Random

from pulse_server.base.ids import new_id
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.reports import FailureReport, Slots
from pulse_server.jobs.rules import Claim
from pulse_server.workflows.rules import NewNode, When, WorkflowBounds
from tests.faults.workflows.shapes import SUCCEEDED, Shape, draw_condition, draw_shape
from tests.faults.workflows.world import Server, World

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
