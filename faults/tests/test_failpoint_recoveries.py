"""Servers and workers die at each point of a job's life: their successors lose nothing.

A kill before a statement leaves the same as a kill between two calls, so servers are killed after the
statements. The points before them raise errors, which the server survives.
"""

import asyncio
import re
import signal
from collections.abc import Sequence
from contextlib import suppress

import asyncpg
import grpc
import pytest

import pulse
from faults.deaths import (
    HASTY,
    LATER,
    OF_A_JOB,
    OF_LOOPS_AND_OPERATORS,
    OF_STEPS,
    PATIENCE,
    SOON,
    Death,
    Succession,
    stub_of,
)
from pulse import failpoints
from tests.eventually import eventually
from tests.system.journal import started_after_completion
from tests.system.stage import Process, Stage, all_completed, finished
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable
from tests.transport.streaming_worker import StreamingWorker

BEFORE_A_STATEMENT = {name for name in failpoints.names() if name.endswith("ing")} - {
    "stream.writing",
    "wakeup.sending",
}


def test_every_point_of_the_server_is_met_here() -> None:
    others = ("worker.", "client.", "migration.")
    servers = {name for name in failpoints.names() if not name.startswith(others)}
    met = OF_A_JOB.keys() | OF_STEPS.keys() | OF_LOOPS_AND_OPERATORS.keys()
    assert servers - BEFORE_A_STATEMENT == met


@pytest.mark.parametrize(
    "deaths",
    [OF_A_JOB, OF_STEPS, OF_LOOPS_AND_OPERATORS],
    ids=["job", "steps", "loops-and-operators"],
)
async def test_servers_that_die_behind_a_statement_lose_nothing(
    stage: Stage, table: JobsTable, deaths: dict[str, Death]
) -> None:
    """Each server starts with what the one before it left. The last one keeps running."""
    succession = Succession(stage, table)
    async with succession.clients:
        for point, death in deaths.items():
            await succession.live_and_die(point, death)
        await stage.pulsed(succession.address, **HASTY)
        p = await succession.client()
        await succession.repeat_reports()
        if deaths is OF_LOOPS_AND_OPERATORS:
            assert list((await p.dispatch_status()).topics) == ["switch.turned"]
            await p.resume("switch.turned")

            async def are_limited() -> bool:
                in_force = {limits.topic: limits.in_force.get("running") for limits in await p.limits()}
                return in_force == dict.fromkeys(("limits.set", "limits.enforced"), 2)

            await eventually(are_limited, "limits that were set are in force")
        worker = await stage.worker(succession.address, *(f"{topic}=work" for topic in deaths))
        handles = await asyncio.gather(*succession.enqueues)
        await all_completed(table, handles)
    rows = await table.connection.fetch("SELECT * FROM pulse.all_jobs")
    # Not one more than was requested, despite repeats: of the schedule its one occurrence, and of the two
    # that were canceled the one that was retried. The other was deleted by retention.
    enqueued = {handle.id for handle in handles}
    others = sorted(row["topic"] for row in rows if str(row["id"]) not in enqueued)
    assert others == (["jobs.cancelled", "schedules.fired"] if deaths is OF_LOOPS_AND_OPERATORS else [])
    assert {row["status"] for row in rows} == {"COMPLETED"}
    assert all(row["attempts"] <= row["max_attempts"] for row in rows)
    started = {start.job_id for start in stage.executions()}
    for row in rows:
        assert row["finished_by"] != worker.name or str(row["id"]) in started
    assert not await started_after_completion(table, stage.executions())


async def test_server_lives_with_an_error_at_each_point(stage: Stage, table: JobsTable) -> None:
    """Each point raises once. Callers get UNAVAILABLE, loops go on, and every job completes."""
    points = {
        name
        for name in failpoints.names()
        # At the start, an error of these ends the server; retention runs every five minutes.
        if not name.startswith(("worker.", "client.", "migration.", "gate.", "jobs.forgotten"))
        # Those of steps: test_step_failpoints.py
        and not name.startswith(("steps.", "signals.", "jobs.suspend"))
    }
    armed = ";".join(["gate.reading=error@2", *(f"{name}=error@1" for name in sorted(points))])
    points.add("gate.reading")
    server = await stage.pulsed(**HASTY, PULSE_FAILPOINTS=armed)
    async with pulse.Pulse(server.address, timeout=PATIENCE) as p:
        stored = await p.enqueue("work", Errand("stored"), delay=SOON)
        await table.connection.execute(
            """INSERT INTO pulse.schedules
                (id, next_run_at, run_at, max_attempts, kind, catch_up, topic, payload)
            VALUES (gen_random_uuid(), now(), now(), 5, 'once', 'all', 'work', '{}')"""
        )
        await p.pause(topic="nothing")
        await p.resume(topic="nothing")
        for _ in range(5):  # more than there are points
            with suppress(pulse.Unavailable):
                await p.set_topic("nothing", running=100)
        worker = await stage.worker(server.address, "work", "discard")
        await p.enqueue("discard")  # which fails at every attempt
        handles = [stored, *[await p.enqueue("work", Errand("taken")) for _ in range(5)]]
        handles.append(await p.enqueue("work", Errand("beaten", seconds=1)))
        await p.cancel((await p.enqueue("work", Errand("cancelled"), delay=LATER)).id)
        canceled = await p.list_jobs(status="CANCELED")
        with pytest.raises(pulse.Unavailable, match=r"The failpoint jobs\.retried says so"):
            await p.retry(canceled.jobs[0].id, now=True)

        async def is_handed_over() -> bool:  # as soon as the worker waits for more
            handles.append(await p.enqueue("work", Errand("handed over")))
            return {"handover.storing", "handover.stored"} <= _hit(server)

        await eventually(is_handed_over, "a job is handed over")
        released = await p.enqueue("released")
        async with stub_of(server.address) as stub, StreamingWorker(stub, "raw", topics=["released"]) as raw:
            job = await raw.take_one()
            for _ in range(2):
                with suppress(grpc.aio.AioRpcError):
                    await raw.release(job)
        await p.cancel(released.id)
        await eventually(lambda: not points - _hit(server), "every point raises")
        await all_completed(table, handles)
    assert worker.is_running


def _hit(process: Process) -> set[str]:
    return set(re.findall(r"failpoint_hit: ([a-z.]+)=", process.log))


async def test_workers_that_die_at_each_point_lose_nothing(stage: Stage, table: JobsTable) -> None:
    """Each has a topic of its own, and another worker finishes what they leave behind."""
    server = await stage.pulsed(**HASTY)
    points = [
        name for name in failpoints.names() if name.startswith("worker.") and name != "worker.returning"
    ]
    # The one that stops has a handler that runs until the test ends it.
    topics = {point: f"{point}={'patient' if point == 'worker.releasing' else 'work'}" for point in points}
    doomed = {
        point: stage.start_worker(server.address, topic, PULSE_FAILPOINTS=f"{point}=kill@1")
        for point, topic in topics.items()
    }
    await eventually(lambda: all(worker.is_connected for worker in doomed.values()), "all are connected")
    async with pulse.Pulse(server.address) as p:
        handles = {
            point: await p.enqueue(
                point,
                Errand(point, seconds=1 if point == "worker.beating" else 0),
                # A last attempt is confirmed before it is started.
                max_attempts=1 if point == "worker.confirming" else 5,
            )
            for point in points
        }
        await table.wait_until(handles["worker.releasing"].id, delivered=True)
        doomed["worker.releasing"].signal(signal.SIGTERM)
        for worker in doomed.values():
            assert await worker.ended() == -signal.SIGKILL
        other = await stage.worker(server.address, *topics.values())
        await all_completed(table, handles.values())
    rows = {point: await table.row(handle.id) for point, handle in handles.items()}
    taken = rows.pop("worker.reported")
    assert (taken["finished_by"], taken["attempts"]) == (doomed["worker.reported"].name, 1)
    assert {row["finished_by"] for row in rows.values()} == {other.name}
    # Only jobs with a heartbeat before the worker died have lost an attempt.
    assert {point for point, row in rows.items() if row["attempts"] > 1} <= {"worker.releasing"}
    assert not await started_after_completion(table, stage.executions())


async def test_worker_that_dies_while_it_releases_jobs_loses_none(stage: Stage, table: JobsTable) -> None:
    """They wait behind a handler that blocks the event loop."""
    server = await stage.pulsed(**HASTY)
    doomed = stage.start_worker(server.address, "block", "work", PULSE_FAILPOINTS="worker.returning=kill@1")
    async with pulse.Pulse(server.address) as p:
        blocking = await p.enqueue("block", Errand(seconds=60))
        await stage.started(blocking.id)
        handles = await p.enqueue_many("work", [Errand("behind")] * 5)
        assert await doomed.ended() == -signal.SIGKILL
        await stage.worker(server.address, "work")
        for handle in handles:
            job = await finished(p, handle.id)
            assert (job.status, job.attempts) == ("COMPLETED", 1)


async def test_migrations_that_die_at_each_point_go_on_where_they_were(
    empty_database_dsn: str, stage: Stage, table: JobsTable
) -> None:
    applied: Sequence[tuple[str, int]] = (
        ("migration.applying=kill@1", 0),
        ("migration.recording=kill@1", 0),
        ("migration.applied=kill@1", 1),  # without its functions
    )
    for number, (armed, count) in enumerate(applied):
        process = _migrate(stage, empty_database_dsn, number, PULSE_FAILPOINTS=armed)
        assert await process.ended() == -signal.SIGKILL
        assert await _applied(empty_database_dsn) == count
    last = _migrate(stage, empty_database_dsn, len(applied))
    assert await last.ended() == 0
    assert "functions_installed" in last.log
    assert await _applied(empty_database_dsn) == await _applied(stage.dsn)


def _migrate(stage: Stage, dsn: str, number: int, **variables: str) -> Process:
    log = stage.directory / f"migrate-{number}.log"
    arguments = ["-m", "pulse_server.main", "migrate"]
    process = Process(f"migrate-{number}", log, arguments, {"DB_HOST": dsn, **variables})
    stage.processes.append(process)
    return process


async def _applied(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM pulse.schema_migrations"))
    finally:
        await connection.close()
