"""The primary moves to another host, and the server follows."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest
import uuid_utils

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse_server.app import running_app
from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Database
from pulse_server.database.connector import Connector, NoHostTakesWrites
from pulse_server.database.rights import wait_until_reachable
from tests.eventually import PATIENCE_SECONDS
from tests.server.outage_postgres import CAN_FREEZE, OutagePostgres
from tests.server.replicated_postgres import ReplicatedPostgres, ask, make_template
from tests.transport.pulse_server_under_test import settings_of_test
from tests.transport.streaming_worker import StreamingWorker

pytestmark = pytest.mark.skipif(not CAN_FREEZE, reason="finds the server's processes in /proc")

QUICK = {
    "pulse_server.base.tuning.STATEMENT_TIMEOUT": timedelta(seconds=1),
    "pulse_server.database.connector.HOST_TIMEOUT": timedelta(seconds=0.5),
    "pulse_server.wakeups.line.LISTEN_RETRY": timedelta(seconds=0.1),
    "pulse_server.wakeups.line.LISTEN_CHECK": timedelta(seconds=0.2),
}
LINES = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pulsed wakeups'"
WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "cluster")


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK.items():
        monkeypatch.setattr(name, value)


@pytest.fixture
def pair(tmp_path: Path, template: Path, hurry: None) -> Iterator[ReplicatedPostgres]:
    pair = ReplicatedPostgres(tmp_path, template)
    yield pair
    pair.close()


@pytest.fixture
async def synchronous(tmp_path: Path, template: Path, hurry: None) -> AsyncIterator[ReplicatedPostgres]:
    """The first answers a commit once the second has it."""
    pair = ReplicatedPostgres(tmp_path, template, synchronous=True)
    try:
        await pair.second_is_synchronous()
        yield pair
    finally:
        pair.close()


@asynccontextmanager
async def serving(dsn: str) -> AsyncIterator[Any]:
    """A server on the database, and a stub for its calls."""
    settings = settings_of_test(dispatch_interval=timedelta(milliseconds=100))
    async with (
        running_app(settings, dsn) as (_, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield PulseServiceStub(channel)


async def submit(stub: Any) -> str:
    """Submit a job, again and again while the server finds no primary."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            call = stub.SubmitJob(pb.SubmitJobRequest(topic="mail"), timeout=10)
            if await call.code() is grpc.StatusCode.OK:
                return str((await call).job_id)
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            await asyncio.sleep(0.05)


async def work_goes_on(stub: Any, worker: StreamingWorker, server: OutagePostgres) -> None:
    """A new job is stored on that server, dispatched over the stream that was there, and completed."""
    job_id = await submit(stub)
    job = await worker.take_one()
    assert job.job_id == job_id
    await worker.complete(job)
    assert await ask(server, "SELECT status FROM pulse.all_jobs WHERE id = $1", job_id) == "COMPLETED"


async def is_announced(server: OutagePostgres, question: str, *args: Any) -> None:
    """Return once the answer is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await ask(server, question, *args):  # noqa: ASYNC110 - the database rings no bell
            await asyncio.sleep(0.02)


async def place_of(connector: Connector) -> str:
    """The data directory of the host to which new connections lead."""
    session = await connector.connect()
    try:
        return str(await session.fetchval("SELECT current_setting('data_directory')"))
    finally:
        session.terminate()


async def test_only_the_host_that_takes_writes_is_used_whatever_the_order(
    pair: ReplicatedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both hosts answer, on a busy machine late.
    patience = timedelta(seconds=PATIENCE_SECONDS)
    monkeypatch.setattr("pulse_server.database.connector.HOST_TIMEOUT", patience)
    place = await place_of(Connector(pair.first.dsn))
    for order in ((pair.first, pair.second), (pair.second, pair.first)):
        dsn = pair.dsn(*order)
        await wait_until_reachable(dsn, patience)
        assert await place_of(Connector(dsn)) == place

    await pair.first_becomes_read_only()
    connector = Connector(pair.dsn(pair.first, pair.second))
    with pytest.raises(NoHostTakesWrites, match=r"is a standby, or read-only.*; .*is a standby"):
        await connector.connect()
    with pytest.raises(Unavailable, match="The database does not answer"):
        await wait_until_reachable(connector.dsn, timedelta(seconds=0.1))
    # A setting that names what to accept is honored.
    assert await place_of(Connector(f"{connector.dsn}&target_session_attrs=any")) == place


async def test_server_leaves_a_frozen_primary_for_the_standby_that_was_promoted(
    pair: ReplicatedPostgres,
) -> None:
    async with (
        serving(pair.dsn(pair.first, pair.second)) as stub,
        StreamingWorker(stub, "w1", capacity=2) as worker,
    ):
        await work_goes_on(stub, worker, pair.first)
        await submit(stub)
        held = await worker.take_one()
        await pair.second_has_caught_up()

        pair.first.freeze()
        await pair.promote_second()

        await work_goes_on(stub, worker, pair.second)
        await worker.complete(held)
        await is_announced(pair.second, LINES)
        # The old one wakes up and takes writes as before; no client uses it any more.
        pair.first.thaw()
        before = await ask(pair.first, "SELECT count(*) FROM pulse.all_jobs")
        for _ in range(3):
            await work_goes_on(stub, worker, pair.second)
        assert await ask(pair.first, "SELECT count(*) FROM pulse.all_jobs") == before
        pair.demote_first()
        await work_goes_on(stub, worker, pair.second)
        assert await ask(pair.first, "SELECT pg_is_in_recovery()")


async def test_old_primary_that_thaws_acknowledges_nothing_and_is_left_for_the_new_one(
    synchronous: ReplicatedPostgres,
) -> None:
    """A server that starts now asks the old one first, and that one still believes to be the primary."""
    old, new = synchronous.first, synchronous.second
    old.freeze()
    await synchronous.promote_second()
    old.thaw()
    assert await ask(old, "SELECT pg_is_in_recovery()") is False
    assert await place_of(Connector(synchronous.dsn(old, new))) == await place_of(Connector(old.dsn))

    # A write there waits for the standby that left, and no reader sees it.
    insert = "INSERT INTO pulse.barred_topics (topic) VALUES ('not-announced')"
    writing = asyncio.create_task(ask(old, insert))
    await is_announced(old, f"SELECT count(*) > 0 {WAITING}")
    assert not writing.done()
    assert await ask(old, "SELECT count(*) FROM pulse.barred_topics") == 0

    async with (
        serving(synchronous.dsn(old, new)) as stub,
        StreamingWorker(stub, "w1", capacity=2) as worker,
    ):
        for _ in range(3):
            await work_goes_on(stub, worker, new)
    assert await ask(old, "SELECT count(*) FROM pulse.all_jobs") == 0
    assert not writing.done()
    old.kill()
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await writing


async def test_repeat_is_acknowledged_no_sooner_than_the_standby_has_what_it_repeats(
    synchronous: ReplicatedPostgres,
) -> None:
    """A commit whose wait was ended is there for all to see, and the standby does not have it."""
    primary, standby = synchronous.first, synchronous.second

    async with (
        serving(primary.dsn) as stub,
        StreamingWorker(stub, "w1", capacity=1) as worker,
    ):
        await submit(stub)
        held = await worker.take_one()
        new_job = pb.SubmitJobRequest(topic="mail", job_id=str(uuid_utils.uuid7()))
        result = pb.ReportResultRequest(
            job_id=held.job_id, worker_id="w1", attempt=held.attempt, success=True
        )
        for method, request, stored in (
            (stub.SubmitJob, new_job, "SELECT true FROM pulse.all_jobs WHERE id = $1"),
            (stub.ReportResult, result, "SELECT status = 'COMPLETED' FROM pulse.all_jobs WHERE id = $1"),
        ):
            standby.freeze()
            assert await method(request, timeout=10).code() is grpc.StatusCode.UNAVAILABLE
            # End the wait, as a crash does that the primary recovers from at once.
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await ask(primary, stored, request.job_id):
                    await ask(primary, f"SELECT count(pg_cancel_backend(pid)) {WAITING}")
            assert await method(request, timeout=10).code() is grpc.StatusCode.UNAVAILABLE
            standby.thaw()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await method(request, timeout=10).code() is not grpc.StatusCode.OK:
                    pass
            await synchronous.second_has_caught_up()
            assert await ask(standby, stored, request.job_id)


async def test_server_leaves_a_primary_that_became_read_only(pair: ReplicatedPostgres) -> None:
    async with (
        serving(pair.dsn(pair.first, pair.second)) as stub,
        StreamingWorker(stub, "w1", capacity=2) as worker,
    ):
        await work_goes_on(stub, worker, pair.first)
        await pair.second_has_caught_up()

        await pair.first_becomes_read_only()
        await pair.promote_second()

        await work_goes_on(stub, worker, pair.second)


async def test_single_name_that_leads_elsewhere_is_followed(pair: ReplicatedPostgres) -> None:
    """An address that a failover manager moves: the old connections answer, but take no writes."""
    database = Database(pair.first.dsn)
    try:
        await asyncio.gather(*[database.hot.fetch("sleep", "SELECT pg_sleep(0.05)") for _ in range(5)])
        await pair.second_has_caught_up()
        await pair.first_becomes_read_only()
        await pair.promote_second()
        pair.first.lead_to(pair.second)

        pause = "UPDATE pulse.dispatch_control SET paused = false RETURNING 1"
        with pytest.raises(Unavailable, match="ReadOnly"):
            await database.hot.fetch("pause", pause)
        for connections in (database.hot, database.beats):
            answers = await asyncio.gather(*[connections.fetch("pause", pause) for _ in range(5)])
            assert len(answers) == 5
    finally:
        await database.close()
