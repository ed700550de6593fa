"""Workflows beside plain jobs: without edges, one before and one after 10,000, a chain, and additions."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import uuid4

import asyncpg
import grpc

import pulse
from benchmarks.draining import Drained, drain
from benchmarks.figures import Figure, written
from benchmarks.filling import TOPIC, fill
from benchmarks.repeating import in_turn
from benchmarks.scenarios import idle
from benchmarks.scenarios.load import payload
from benchmarks.stand import Stand
from benchmarks.statement_times import statement_times
from benchmarks.verdicts import Verdict
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub

NAME = "workflows"
JOBS = 10_000
LINKS = 1_000
ADDED = 500
MOST_ADDED_MS = 500.0
LEAST_WITHOUT_EDGES, LEAST_FAN, MOST_LAST_MS, MOST_OF_PLAIN_P99, MOST_OF_IDLE = 0.85, 0.6, 200.0, 1.5, 2.0
_PIECE = 1_000
_PATIENCE_SECONDS = 120

_LAST = """
SELECT date_part('epoch', max(job.started_at) - max(job.finished_at) FILTER (WHERE job.id <> $1)) * 1000
FROM pulse.completed_jobs AS job
"""


class Run(NamedTuple):
    drained: Drained
    p99_ms: float
    """Of the statement that completes jobs."""
    last_ms: float = 0.0
    """From the end of the last parent to the start of the last job."""


async def measure(stand: Stand) -> list[Figure]:
    jobs, links = stand.sized(JOBS), stand.sized(LINKS)
    plain, bare = f"{jobs:,} plain jobs", f"{jobs:,} jobs of a workflow without edges"
    added = stand.sized(ADDED)
    one_by_one, together = (f"{added:,} jobs added by a handler, {how}" for how in ("in a loop", "add_many"))
    fan, chain = f"1 + {jobs:,} + 1 jobs", f"a chain of {links:,}, from start to start, p50"
    runs: Any = {
        plain: partial(_plain, stand, jobs),
        bare: partial(_workflow, stand, list(_bare(jobs))),
        fan: partial(_workflow, stand, list(_fan(jobs))),
        chain: partial(_chain, stand, links),
        one_by_one: partial(_added, stand, added, together=False),
        together: partial(_added, stand, added, together=True),
        idle.P50: partial(_idle, stand),
    }
    found = await in_turn(stand, runs)
    rates = {name: statistics.median(run.drained.rate for run in found[name]) for name in (plain, bare, fan)}
    p99 = statistics.median(run.p99_ms for run in found[fan]) / statistics.median(
        run.p99_ms for run in found[plain]
    )
    per_link = statistics.median(found[chain]) / statistics.median(found[idle.P50])
    last = statistics.median(run.last_ms for run in found[fan])
    verdicts = [
        _verdict(
            "without edges", rates[bare] / rates[plain], LEAST_WITHOUT_EDGES, "of the plain rate", False
        ),
        _verdict(fan, rates[fan] / rates[plain], LEAST_FAN, "of the plain rate", False),
        _verdict("end of the last parent → start of the last job", last, MOST_LAST_MS, "ms"),
        _verdict("complete_jobs, p99", p99, MOST_OF_PLAIN_P99, "× that of plain jobs"),
        _verdict(together, statistics.median(found[together]), MOST_ADDED_MS, "ms"),
        _verdict("a link of a chain", per_link, MOST_OF_IDLE, "× an idle submit → start"),
    ]
    for verdict in verdicts:
        print(verdict.line, flush=True)
    stand.verdicts += verdicts
    figures = [
        Figure(NAME, name, "jobs/s", [run.drained.rate for run in found[name]]) for name in (plain, bare, fan)
    ]
    figures += [
        Figure(NAME, f"{name}, CPU in {who}", "µs/job", [run.drained.cpu[who] for run in found[name]])
        for name in (plain, bare, fan)
        for who in ("Postgres", "pulsed", "worker")
        if all(who in run.drained.cpu for run in found[name])
    ]
    figures += [
        Figure(NAME, f"{name}, complete_jobs, p99", "ms", [run.p99_ms for run in found[name]])
        for name in (plain, fan)
    ]
    return [
        *figures,
        Figure(NAME, f"{fan}, last parent → last job", "ms", [run.last_ms for run in found[fan]]),
        Figure(NAME, chain, "ms", found[chain], f"{per_link:.2f} × {idle.P50}"),
        Figure(NAME, one_by_one, "ms", found[one_by_one]),
        Figure(NAME, together, "ms", found[together]),
        Figure(NAME, idle.P50, "ms", found[idle.P50]),
    ]


def _verdict(about: str, value: float, bound: float, unit: str, is_most: bool = True) -> Verdict:
    is_good = value <= bound if is_most else value >= bound
    return Verdict(
        f"{NAME}, {about}", f"{written(value)} {unit}, at {'most' if is_most else 'least'} {bound:g}", is_good
    )


async def _plain(stand: Stand, jobs: int) -> Run:
    async with stand.database() as dsn:
        await fill(dsn, jobs)
        return await _drained(stand, dsn, jobs)


async def _workflow(stand: Stand, jobs: Sequence[pb.WorkflowJob]) -> Run:
    async with stand.database() as dsn:
        async with stand.pulsed(dsn, {"PULSE_MAX_WORKFLOW_JOBS": "20000"}) as server:
            ids = await _submit(server.address, jobs)
        run = await _drained(stand, dsn, len(jobs))
        connection = await asyncpg.connect(dsn)
        try:
            return run._replace(last_ms=await connection.fetchval(_LAST, ids[-1]))
        finally:
            await connection.close()


async def _drained(stand: Stand, dsn: str, jobs: int) -> Run:
    await stand.settle(dsn)
    async with stand.pulsed(dsn, with_metrics=True) as server:
        before = await server.metrics()
        drained = await drain(stand, dsn, [server], [TOPIC], jobs)
        after = await server.metrics()
    return Run(drained, statement_times(before, after, "complete_jobs").p99_ms)


async def _chain(stand: Stand, links: int) -> float:
    """The median of the milliseconds between two starts."""
    async with (
        stand.database() as dsn,
        stand.pulsed(dsn) as server,
        stand.crew([server.address], idle.CONCURRENCY) as crew,
    ):
        crew.let_loose()
        await crew.is_connected()
        with stand.background.watched():
            await _submit(server.address, list(_links(links)))
            await crew.has_started(links)
        starts = sorted(started for _, started in crew.pairs())
        return statistics.median(later - earlier for earlier, later in pairwise(starts)) * 1000


async def _added(stand: Stand, jobs: int, *, together: bool) -> float:
    """The milliseconds in which a handler adds the jobs, before one that waits for all of them."""
    took = 0.0
    async with stand.database() as dsn, stand.pulsed(dsn) as server, pulse.Pulse(server.address) as app:

        @app.job("part")
        async def part(number: int) -> None: ...

        @app.job("adds")
        async def adds(*, ctx: pulse.Context) -> None:
            nonlocal took
            began = time.perf_counter()
            if together:
                await ctx.workflow.add_many([part.s(number) for number in range(jobs)], before="last")
            else:
                for number in range(jobs):
                    await ctx.workflow.add(part, number, before="last")
            took = time.perf_counter() - began

        @app.job("last")
        async def last() -> None: ...

        worker = asyncio.create_task(app.run(handle_signals=False))
        run = await app.start(pulse.chain(adds.s(), last.s()))
        await run.result("last", timeout=timedelta(seconds=_PATIENCE_SECONDS))
        worker.cancel()
        await asyncio.wait({worker})
    return took * 1000


async def _idle(stand: Stand) -> float:
    async with stand.database() as dsn, stand.pulsed(dsn) as server:
        return statistics.median(await idle.latencies(stand, server.address, stand.sized(idle.JOBS)))


def _bare(jobs: int) -> Iterator[pb.WorkflowJob]:
    return (_job(f"job-{number}", number) for number in range(jobs))


def _fan(jobs: int) -> Iterator[pb.WorkflowJob]:
    yield _job("first", 0)
    yield from (_job(f"job-{number}", number, ["first"]) for number in range(jobs))
    yield _job("last", jobs, [f"job-{number}" for number in range(jobs)])


def _links(links: int) -> Iterator[pb.WorkflowJob]:
    return (_job(f"link-{n}", n, [f"link-{n - 1}"] if n else ()) for n in range(links))


def _job(name: str, number: int, after: Sequence[str] = ()) -> pb.WorkflowJob:
    job = pb.SubmitJobRequest(topic=TOPIC, payload=json.dumps(payload(number)).encode())
    return pb.WorkflowJob(job=job, name=name, after=after)


async def _submit(address: str, jobs: Sequence[pb.WorkflowJob]) -> Sequence[str]:
    async def pieces() -> AsyncIterator[pb.SubmitWorkflowRequest]:
        workflow_id = str(uuid4())
        for begin in range(0, len(jobs), _PIECE):
            yield pb.SubmitWorkflowRequest(
                workflow_id=workflow_id, name="bench", jobs=jobs[begin : begin + _PIECE]
            )

    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = PulseServiceStub(channel)
        return list((await stub.SubmitWorkflow(pieces())).job_ids)
