"""A real worker that is quieted, resumed and stopped, through another server than its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import pulse
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import PATIENCE_SECONDS
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test


@pytest.fixture
async def operator(server: ServerUnderTest, database_dsn: str) -> AsyncIterator[pulse.Pulse]:
    """A client of another server, which knows the workers of the first one as of its last record."""
    async with server_under_test(database_dsn) as other, pulse.Pulse(other.address) as client:
        yield client


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    """A client that runs one job at a time."""
    async with pulse.Pulse(server.address, concurrency=1, worker_id="w1") as client:
        yield client


async def connected(server: ServerUnderTest) -> None:
    await eventually(lambda: server.app.dispatch.roster.sessions_of("w1"))
    await server.app.views.servers.record()


async def test_quiet_worker_finishes_its_job_and_takes_the_next_once_it_is_resumed(
    server: ServerUnderTest, operator: pulse.Pulse, p: pulse.Pulse, running: Running
) -> None:
    began: asyncio.Queue[str] = asyncio.Queue()
    may_end = asyncio.Event()

    @p.job("mail")
    async def mail(ctx: pulse.Context) -> None:
        began.put_nowait(ctx.job_id)
        await may_end.wait()

    async with running(p):
        await connected(server)
        first = await p.enqueue("mail")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await began.get() == first.id
        second = await p.enqueue("mail")
        await operator.quiet_worker("w1", reason="memory grows")
        state = await state_of_worker(operator)
        assert state is not None
        assert (state.name, state.reason) == ("quiet", "memory grows")
        await eventually(lambda: server.app.dispatch.gate.state.workers)  # its own server learns of it later
        # The worker may hold the second job, which waits for the first one.
        await eventually(lambda: is_waiting(p, second.id))
        may_end.set()
        assert (await first.wait()).status is pulse.JobStatus.COMPLETED
        await server.dispatch_settles()
        job = await p.get_job(second.id)
        assert (job.status.is_finished, job.attempts) == (False, 0)

        await operator.resume_worker("w1")
        assert (await second.wait()).attempts == 1
        assert await state_of_worker(operator) is None


async def state_of_worker(client: pulse.Pulse) -> pulse.WorkerState | None:
    (worker,) = [worker for worker in await client.workers() if worker.worker_id == "w1"]
    return worker.state


async def is_waiting(p: pulse.Pulse, job_id: str) -> bool:
    return (await p.get_job(job_id)).status is not pulse.JobStatus.RUNNING


async def test_stopped_worker_drains_and_its_run_returns(
    server: ServerUnderTest, operator: pulse.Pulse, p: pulse.Pulse, running: Running
) -> None:
    began = asyncio.Event()
    may_end = asyncio.Event()

    @p.job("mail")
    async def mail() -> None:
        began.set()
        await may_end.wait()

    async with running(p) as run:
        await connected(server)
        job = await p.enqueue("mail")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await began.wait()
            assert await operator.stop_worker("w1") is None
            await eventually(lambda: not server.app.dispatch.roster.sessions_of("w1"))
            assert not run.done(), "its handler runs"
            may_end.set()
            await run
        assert (await p.get_job(job.id)).status is pulse.JobStatus.COMPLETED


async def test_blocking_verbs_do_the_same(server: ServerUnderTest, p: pulse.Pulse, running: Running) -> None:
    @p.job("mail")
    async def mail() -> None: ...

    def use() -> None:
        with pulse.SyncPulse(server.address) as client:
            with pytest.raises(pulse.NotFound, match="No worker 'gone' is connected"):
                client.quiet_worker("gone")
            client.quiet_worker("w1")
            assert [worker.state is not None for worker in client.workers()] == [True]
            client.resume_worker("w1")
            assert client.stop_worker("w1") is None

    async with running(p) as run:
        await connected(server)
        await asyncio.to_thread(use)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await run
