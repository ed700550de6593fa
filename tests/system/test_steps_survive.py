"""Jobs of steps over two servers, while workers and servers are killed: no stored step runs again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest

import pulse
from tests.eventually import eventually
from tests.system.stage import Pulsed, Stage, finished
from tests.system.step_program import PARTS
from tests.transport.jobs_table import JobsTable

# On a busy machine leases may be lost beside those of the workers that are killed.
LASTING = {"PULSE_LEASE_TTL": "4s", "PULSE_HEARTBEAT_INTERVAL": "1s", "PULSE_MAX_CRASHES": "100"}
EXPECTED = [*(number * 10 for number in range(PARTS + 1)), 7]


def runs(journal: Path) -> dict[tuple[str, int], list[int]]:
    """The attempts in which each part of each job ran."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    if journal.exists():
        for line in journal.read_text().splitlines():
            job_id, number, attempt = line.split()
            found[job_id, int(number)].append(int(attempt))
    return found


async def verify(p: pulse.Pulse, job: pulse.JobInfo, ran: dict[tuple[str, int], list[int]]) -> None:
    """Fail if a step ran in an attempt after the one that stored it, or never."""
    steps = {step.name: step for step in await p.steps(job.id)}
    assert steps.keys() == {*(f"part#{number}" for number in range(PARTS)), "sleep", "go", "last"}
    for number in range(PARTS + 1):
        stored = steps["last" if number == PARTS else f"part#{number}"].attempt
        attempts = ran[job.id, number]
        assert attempts, f"part {number} of {job.id} was stored and never ran"
        assert max(attempts) <= stored, f"part {number} of {job.id} ran in {attempts}, stored in {stored}"


@pytest.mark.parametrize("topic", ["async-steps", "thread-steps", "process-steps"])
async def test_stored_steps_do_not_run_again_whatever_is_killed(
    stage: Stage, table: JobsTable, topic: str
) -> None:
    journal = stage.directory / "steps"
    servers = [await stage.pulsed(**LASTING) for _ in range(2)]

    def start_worker(server: Pulsed) -> None:
        program = str(Path(__file__).with_name("step_program.py"))
        variables = {"STEPS_ADDRESS": server.address, "STEPS_JOURNAL": str(journal)}
        stage.start_program("steps", program, **variables)

    async def ran_so_many(count: int) -> None:
        await eventually(lambda: sum(map(len, runs(journal).values())) >= count, f"{count} parts ran")

    async with pulse.Pulse(servers[1].address) as p:
        for server in servers:
            start_worker(server)
        jobs = await p.enqueue_many(topic, [None] * 8)
        await ran_so_many(6)
        first, second = stage.processes[2:4]
        first.kill()
        start_worker(servers[1])
        await asyncio.gather(*(p.signal(job.id, "go", 7) for job in jobs))
        await ran_so_many(20)
        servers[0].kill()
        second.kill()
        start_worker(servers[1])
        done = [await finished(p, job.id) for job in jobs]
        assert {job.status for job in done} == {"COMPLETED"}, [job.last_error for job in done]
        assert [job.result for job in done] == [EXPECTED] * len(jobs)
        ran = runs(journal)
        for job in done:
            await verify(p, job, ran)
    assert await table.connection.fetchval("SELECT count(*) FROM pulse.job_steps") == 0
    assert await table.connection.fetchval("SELECT count(*) FROM pulse.job_signals") == 0
