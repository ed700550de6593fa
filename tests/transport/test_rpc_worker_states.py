"""SetWorkerState: the worker is at one server, the operator asks another."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.transport.authorized import USERS, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker, claim_of

Servers = tuple[ServerUnderTest, ServerUnderTest]


@pytest.fixture
async def servers(database_dsn: str) -> AsyncIterator[Servers]:
    """The server that operators ask, and the one of the worker. The first never announces anything."""
    async with server_under_test(database_dsn) as here, server_under_test(database_dsn) as there:
        here.app._line.announce = lambda _: None  # type: ignore[method-assign]
        yield here, there


async def order(server: ServerUnderTest, state: str, worker_id: str = "w1") -> str:
    request = pb.SetWorkerStateRequest(worker_id=worker_id, state=state, reason="memory grows")
    return str((await server.stub.SetWorkerState(request)).note)


async def states(server: ServerUnderTest) -> dict[str, str]:
    workers = (await server.stub.ListWorkers(pb.ListWorkersRequest())).workers
    return {worker.worker_id: worker.state.name for worker in workers if worker.worker_id != "the-barrier"}


async def recalls(worker: StreamingWorker) -> bool:
    return (await worker.message()).HasField("recall")


async def test_worker_at_another_server_is_quiet_though_the_announcement_was_lost(servers: Servers) -> None:
    here, there = servers
    await there.submit_many(2)
    async with there.worker("w1", run_id="run-1", capacity=2) as worker:
        started, unstarted = await worker.take(2)
        await there.app.views.servers.record()
        assert await order(here, "quiet") == ""

        assert await recalls(worker)
        await worker.complete(started)
        assert await worker.release(unstarted) == 1
        waiting = await there.get(unstarted.job_id)
        assert (waiting.status, waiting.attempts) == ("RETRYING", 0), "it has cost no attempt"
        assert await states(here) == await states(there) == {"w1": "quiet"}
        await there.dispatch_settles()
        assert (await there.get(unstarted.job_id)).status == "RETRYING"

        await order(here, "running")
        assert (await worker.take_one()).job_id == unstarted.job_id
        assert await states(here) == {"w1": ""}


async def test_worker_that_moves_to_another_server_stays_quiet_until_its_process_ends(
    servers: Servers,
) -> None:
    here, there = servers
    await here.submit()
    async with there.worker("w1", run_id="run-1") as worker:
        job = await worker.take_one()
        await there.app.views.servers.record()
        await order(here, "quiet")
    async with here.worker("w1", run_id="run-1", held=[claim_of(job)]) as moved:
        assert await recalls(moved)
        assert await moved.release(job) == 1
        await here.dispatch_settles()
        assert (await here.get(job.job_id)).status == "RETRYING"
    async with here.worker("w1", run_id="run-2") as successor:
        assert (await successor.take_one()).job_id == job.job_id


async def test_stop_reaches_the_worker_and_an_old_client_is_quiet_instead(servers: Servers) -> None:
    here, there = servers
    async with there.worker("w1", run_id="1", can_stop=True) as new, there.worker("old", run_id="2") as old:
        await there.app.views.servers.record()
        assert await order(here, "stopping") == ""
        assert "cannot be stopped from here" in await order(here, "stopping", "old")
        assert await recalls(old)
        messages = [await new.message()]
        assert any(message.stop_worker for message in messages)
        assert await states(here) == {"w1": "stopping", "old": "quiet"}
        job_id = await there.submit()
        await there.dispatch_settles()
        assert (await there.get(job_id)).status == "PENDING"


async def test_list_shows_who_ordered_it_and_why(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        stream = caller(server.channel, "worker").StreamJobs(
            pb.StreamJobsRequest(topics=["mail"], worker_id="w1", capacity=1, run_id="run-1")
        )
        await stream.read()
        operator = caller(server.channel, "operator")
        await operator.SetWorkerState(
            pb.SetWorkerStateRequest(worker_id="worker:w1", state="quiet", reason="memory grows")
        )
        (worker,) = (await operator.ListWorkers(pb.ListWorkersRequest())).workers
        state = worker.state
        assert (state.name, state.reason, state.set_by) == ("quiet", "memory grows", "operator")
        assert state.HasField("set_at")
        stream.cancel()


async def test_unknown_worker_is_refused(server: ServerUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="No worker 'w1' is connected") as refused:
        await order(server, "quiet")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
