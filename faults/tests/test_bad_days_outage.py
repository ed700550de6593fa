"""Postgres is away for several leases while hundreds of jobs run: no live worker loses one.

PULSE_BAD_DAYS=full makes it 5,000 jobs and two minutes, with the default leases of a server.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pulse
from faults.bad_days.scale import OUTAGE
from pulse_server.database.schema import apply_migrations
from tests.eventually import eventually
from tests.server.outage_postgres import CAN_FREEZE, OutagePostgres
from tests.system.stage import Pulsed, Stage, finished, table_of
from tests.system.worker_program import Errand


@pytest.fixture
def database(tmp_path: Path) -> Iterator[OutagePostgres]:
    database = OutagePostgres(tmp_path / "cluster")
    database.start()
    asyncio.run(apply_migrations(database.dsn))
    yield database
    database.close()


@pytest.fixture
def stage(database: OutagePostgres, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database.dsn, tmp_path)
    yield stage
    stage.close()


async def test_outages_of_the_database_take_no_job_from_a_live_worker(
    stage: Stage, database: OutagePostgres
) -> None:
    """Once it is stopped, so that each call fails at once, and once frozen, so that each call times out.

    Results are reported once it is back. The job of a worker that died meanwhile is reaped: this shows that
    the watchdog ran, and reaped nothing else.
    """
    outages = [(database.stop, database.start)]
    if CAN_FREEZE:
        outages.append((database.freeze, database.thaw))
    server = await stage.pulsed(**OUTAGE.settings)
    gates = [stage.gate(f"ends-in-outage-{number}") for number in range(len(outages))] + [stage.gate("end")]
    workers = [
        stage.start_worker(server.address, "gated", concurrency=OUTAGE.jobs // OUTAGE.workers)
        for _ in range(OUTAGE.workers)
    ]
    await eventually(lambda: all(worker.is_connected for worker in workers), "the workers connect")
    async with pulse.Pulse(server.address) as p:
        errands = [Errand(gate=gates[number % len(gates)]) for number in range(OUTAGE.jobs)]
        handles = await p.enqueue_many("gated", errands)
        await eventually(lambda: len(stage.executions()) == OUTAGE.jobs, "all of them run")
        lost = [
            await _outage(stage, server, p, begin, end, gate)
            for (begin, end), gate in zip(outages, gates, strict=False)
        ]
        stage.open(gates[-1])
        await _each_completes_at_its_first_attempt(stage, handles)
    assert [line["job_id"] for line in server.events if line["event"] == "lease_expired"] == lost


async def _outage(
    stage: Stage,
    server: Pulsed,
    p: pulse.Pulse,
    begin: Callable[[], None],
    end: Callable[[], None],
    gate: str,
) -> str:
    """Carry out an outage. Returns the id of the job whose worker died meanwhile."""
    dies = await stage.worker(server.address, "patient")
    lost = await p.enqueue("patient", Errand("its worker dies"))
    table = await table_of(stage.dsn)
    await table.wait_until(lost.id, delivered=True)
    await table.connection.close()
    begin()
    dies.kill()
    stage.open(gate)
    await asyncio.sleep(OUTAGE.seconds)  # the point of this test: it lasts for several leases
    end()
    await _all_is_well_again(stage, lost.id)
    other = await stage.worker(server.address, "patient")
    job = await finished(p, lost.id, OUTAGE.patience_seconds)
    assert (job.attempts, job.worker_id) == (2, other.name)
    other.kill()
    return lost.id


async def _all_is_well_again(stage: Stage, lost: str) -> None:
    """Return once all leases are extended again and all results are reported. Prints how long that took."""
    began = time.monotonic()
    ended = len(stage.executions(event="end"))
    table = await table_of(stage.dsn)

    async def is_well() -> bool:
        live = await table.count(f"status = 'RUNNING' AND lease_until > now() AND id <> '{lost}'")
        return live == OUTAGE.jobs - ended and await table.count("status = 'COMPLETED'") >= ended

    await eventually(
        is_well, "each running job has a lease, each ended one is reported", OUTAGE.patience_seconds
    )
    await table.connection.close()
    print(
        f"{OUTAGE.jobs - ended} leases valid and {ended} results accepted "
        f"{time.monotonic() - began:.1f} s after an outage of {OUTAGE.seconds} s"
    )


async def _each_completes_at_its_first_attempt(stage: Stage, handles: list[pulse.JobHandle]) -> None:
    table = await table_of(stage.dsn)

    async def all_are_completed() -> bool:
        return await table.count("topic = 'gated' AND status = 'COMPLETED'") == len(handles)

    await eventually(all_are_completed, "all of them are completed", OUTAGE.patience_seconds)
    assert await table.count("topic = 'gated' AND (attempts <> 1 OR history IS NOT NULL)") == 0
    assert {len(starts) for starts in stage.by_job(handles).values()} == {1}
    await table.connection.close()
