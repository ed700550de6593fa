"""Each example does what its docstring says, against a real server."""

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import pulse
from tests.eventually import eventually
from tests.examples.programs import PATIENCE_SECONDS, ROOT, Program, program
from tests.server.pulsed_process import pulsed

SHORT_LEASES = {
    "PULSE_LEASE_TTL": "2s",
    "PULSE_HEARTBEAT_INTERVAL": "500ms",
    "PULSE_WATCHDOG_INTERVAL": "500ms",
}


@pytest.fixture
async def address(database_dsn: str) -> AsyncIterator[str]:
    """Where a pulsed with short leases is."""
    async with pulsed(database_dsn, **SHORT_LEASES) as server:
        yield server.address


async def test_examples_are_listed_and_run_by_name() -> None:
    async with program("-m", "examples") as listing:
        assert await listing.ends() == 0
    names = {path.stem for path in (ROOT / "examples").glob("[!_]*.py")} | {"demo"}
    assert {line.split()[0] for line in listing.output.splitlines()[2:]} == names
    async with program("-m", "examples", "producer", PULSE_ADDR="127.0.0.1:1") as producer:
        assert await producer.ends() == 1
    assert producer.output.startswith("No pulsed answers at 127.0.0.1:1: is it running?")
    async with program("-m", "examples", "nonsense") as unknown:
        assert await unknown.ends() == 2
    assert unknown.output.startswith("There is no example 'nonsense'; they are demo, ")


async def test_example_without_a_server_ends_with_a_sentence() -> None:
    """All of them at once, because each waits three seconds for a server."""
    scripts = ["worker", "producer", "sync_producer", "slow_job", "schedules", "pause", "nightly", "tracing"]
    async with asyncio.TaskGroup() as group:
        for script in scripts:
            group.create_task(_ends_with_a_sentence(script))


async def _ends_with_a_sentence(script: str) -> None:
    async with program(f"examples/{script}.py", PULSE_ADDR="127.0.0.1:1") as example:
        assert await example.ends() == 1, script
        assert example.output.startswith("No pulsed answers at 127.0.0.1:1: is it running?"), script
        assert example.output.count("\n") == 1, script


async def test_worker_runs_what_the_producer_submits(address: str) -> None:
    async with program("examples/worker.py", PULSE_ADDR=address) as worker:
        await worker.says("Connected to pulsed")
        async with program("examples/producer.py", PULSE_ADDR=address) as producer:
            assert await producer.ends() == 0
        assert "is the same job" in producer.output
        assert "is COMPLETED, attempts: 1" in producer.output
        await worker.says("Reset your password")
        await worker.says("ada paid 1200 cents, on attempt 2")
        worker.process.send_signal(signal.SIGINT)
        assert await worker.ends() == 0
    async with pulse.Pulse(address) as p:
        jobs = [job async for job in p.iter_jobs()]
    assert len(jobs) == 24
    assert [job.priority for job in jobs if job.priority] == [10]
    assert [job.idempotency_key for job in jobs if job.topic == "charge-card"] == ["order-1001"]


async def test_producer_reports_that_there_is_no_worker(address: str) -> None:
    async with program("examples/producer.py", PULSE_ADDR=address) as producer:
        assert await producer.ends() == 0
    assert "Start one: python examples/worker.py" in producer.output


async def test_worker_discards_a_charge_that_cannot_be_made(address: str) -> None:
    async with program("examples/worker.py", PULSE_ADDR=address) as worker, pulse.Pulse(address) as p:
        handle = await p.enqueue("charge-card", {"customer": "ada", "cents": 0})
        await worker.says("0 cents cannot be charged")
        job = await finished(p, handle.id)
    assert job.status is pulse.JobStatus.DEAD_LETTERED
    assert job.attempts == 1


async def test_sync_producer_stores_its_jobs(address: str) -> None:
    async with program("examples/sync_producer.py", PULSE_ADDR=address) as producer:
        assert await producer.ends() == 0
    assert "10 newsletters wait" in producer.output
    async with pulse.Pulse(address) as p:
        jobs = [job async for job in p.iter_jobs(topic="send-email")]
    assert sum(job.metadata == {"source": "sign-up"} for job in jobs) == 2
    assert sum(job.priority == -10 for job in jobs) == 10


async def test_slow_job_outlasts_its_lease(address: str) -> None:
    async with program("examples/slow_job.py", "4", PULSE_ADDR=address) as slow_job:
        assert await slow_job.ends() == 0
    assert "COMPLETED, attempt 1, last error: None" in slow_job.output


async def test_slow_job_is_finished_by_the_next_run_after_a_kill(address: str) -> None:
    async with program("examples/slow_job.py", "2", PULSE_ADDR=address) as killed:
        await killed.says("attempt 1 runs here for 2 s")
        async with pulse.Pulse(address) as p:
            await eventually(lambda: _is_beaten(p), "its attempt counts")
        killed.process.kill()
    async with program("examples/slow_job.py", "2", PULSE_ADDR=address) as next_run:
        assert await next_run.ends() == 0
    assert "was left by an earlier run" in next_run.output
    assert "attempt 2 runs here for 2 s" in next_run.output
    assert "COMPLETED, attempt 2, last error: worker lease expired" in next_run.output


async def _is_beaten(p: pulse.Pulse) -> bool:
    (job,) = [job async for job in p.iter_jobs()]
    assert job.lease_until is not None
    assert job.started_at is not None
    return job.lease_until - job.started_at > timedelta(seconds=2.04)


async def test_schedules_fire_until_the_program_is_stopped(address: str) -> None:
    async with program("examples/schedules.py", PULSE_ADDR=address) as schedules:
        await schedules.says("work hours: Cron('0 9 * * 1-5', tz='Europe/Paris')")
        await schedules.says("tidy-up: Every(0:00:02)")
        await schedules.says("remind: ada, the tea is ready")
        await schedules.says("tidy-up: run 2")
        schedules.process.send_signal(signal.SIGINT)
        assert await schedules.ends() == 0
    async with pulse.Pulse(address) as p:
        assert len(await p.schedules.list()) == 0
        jobs = [job async for job in p.iter_jobs()]
    assert len({job.schedule_id for job in jobs if job.topic == "tidy-up"}) == 1
    assert [job.status for job in jobs if job.topic == "remind"] == [pulse.JobStatus.COMPLETED]


async def test_paused_topic_waits_and_runs_when_resumed(address: str) -> None:
    async with program("examples/pause.py", PULSE_ADDR=address) as pause:
        assert await pause.ends() == 0
    printed = [
        "paused: pay-out, because the bank is down",
        "is PENDING",
        "running: notify",
        "resuming: pay-out",
        "running: pay-out",
    ]
    assert sorted(printed, key=pause.output.index) == printed
    async with pulse.Pulse(address) as p:
        assert not (await p.dispatch_status()).topics


async def test_nightly_workflow_runs_in_order(address: str) -> None:
    async with program("examples/nightly.py", PULSE_ADDR=address) as nightly:
        assert await nightly.ends() == 0
    assert sorted(lines_of(nightly)[:3]) == ["extract: mon", "extract: tue", "extract: wed"]
    printed = ["load: 6 rows", "notify: load succeeded, 6 rows", "nightly: succeeded, 5 of 5 jobs"]
    assert sorted(printed, key=nightly.output.index) == printed
    assert "result of load: 6" in nightly.output


async def test_traced_jobs_hang_under_the_request_that_made_them(address: str) -> None:
    async with program("examples/tracing.py", PULSE_ADDR=address) as tracing:
        assert await tracing.ends() == 0
    spans: dict[str, tuple[str, str, str]] = {}
    for line in lines_of(tracing):
        _, trace_id, span_id, _, parent_id, name = line.split(maxsplit=5)
        spans[name] = (trace_id, span_id, parent_id)
    assert len({trace_id for trace_id, _, _ in spans.values()}) == 1
    path = ("enqueue ship", "run charge-card", "enqueue charge-card", "POST /orders")
    above = {span_id: name for name, (_, span_id, _) in spans.items()}
    step = "run ship"
    for parent in path:
        step = above[spans[step][2]]
        assert step == parent
    assert {"report ship", "report charge-card", "ask the bank"} < spans.keys()


def lines_of(example: Program) -> list[str]:
    """Return what it printed, without the notes about topics that have no worker yet.

    A server makes such notes once it has run for five seconds.
    """
    return [line for line in example.output.splitlines() if not line.startswith("No worker that takes ")]


async def finished(p: pulse.Pulse, job_id: str) -> pulse.JobInfo:
    """Return the job once nothing happens to it any more."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (job := await p.get_job(job_id)).status.is_finished:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return job
