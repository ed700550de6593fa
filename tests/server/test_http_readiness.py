"""Alive and ready, over HTTP and over gRPC's own health protocol, as the database comes and goes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.app import App
from pulse_server.database.schema import apply_migrations
from tests.server.http_caller import get
from tests.server.observed_server import (
    NOT_SERVING,
    PATIENCE_SECONDS,
    SERVING,
    ask,
    health_of,
    observed,
    reasons,
    until_ready_is,
)
from tests.server.outage_postgres import CAN_FREEZE, OutagePostgres
from tests.server.pulsed_process import caller_of, pulsed
from tests.server.statement_waits import statement_waits
from tests.transport.jobs_table import JobsTable
from tests.transport.pulse_server_under_test import (
    SECOND,
    ServerUnderTest,
    settings_of_test,
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutagePostgres]:
    """The server is made once for the module."""
    database = OutagePostgres(tmp_path_factory.mktemp("outage") / "cluster")
    database.start()
    asyncio.run(apply_migrations(database.dsn))
    yield database
    database.close()


@pytest.fixture
async def server(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    async with observed(database_dsn) as server:
        yield server


async def test_server_that_serves_is_alive_and_ready(server: ServerUnderTest) -> None:
    assert (await ask(server, "/healthz")).text == "ok\n"
    answer = await ask(server, "/readyz")

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.document == {
        "ready": True,
        "checks": {name: {"ok": True} for name in ("database", "schema", "gate", "serving")},
    }


async def test_server_without_its_database_is_alive_and_not_ready_and_counts_on(
    database: OutagePostgres,
) -> None:
    async with observed(database.dsn) as server:
        database.stop()
        try:
            answer = await until_ready_is(server, False)

            assert answer.status == 503
            assert reasons(answer).keys() == {"database"}
            assert "postgres" not in answer.text, "the address of the database is not public"
            assert (await ask(server, "/healthz")).status == 200
            assert "pulse_ready 0.0" in (await ask(server, "/metrics")).text
            assert await health_of(server) == NOT_SERVING
        finally:
            database.start()
        assert (await until_ready_is(server, True)).status == 200
        assert await health_of(server) == SERVING


@pytest.mark.skipif(not CAN_FREEZE, reason="finding the processes of a server needs /proc")
async def test_frozen_database_is_noticed_within_a_bound(
    database: OutagePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.database.connections.READY_TIMEOUT", 0.3 * SECOND)
    async with observed(database.dsn) as server:
        database.freeze()
        try:
            assert reasons(await until_ready_is(server, False)).keys() == {"database"}
            assert (await ask(server, "/healthz")).status == 200
            assert (await ask(server, "/metrics")).status == 200
        finally:
            database.thaw()
        await until_ready_is(server, True)


async def test_read_only_database_makes_the_server_unready_and_is_logged_once(
    server: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    admin = server.table.connection
    name = await admin.fetchval("SELECT current_database()")
    await admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pulsed%'"
    await admin.execute(f"{others} AND datname = current_database()")

    # The first look may still meet a session that was cut; the one after it opens another.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "The database takes no writes" not in reasons(await until_ready_is(server, False))["database"]:
            server.app.observation.readiness.loop.nudge()
            await asyncio.sleep(0.02)
    await admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    await until_ready_is(server, True)
    assert caplog.text.count("database_left") <= 1


async def test_schema_that_was_lost_makes_the_server_unready(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.app.observation.readiness, "_schema_interval", 0)
    await server.table.connection.execute("DELETE FROM pulse.schema_migrations WHERE version = 1")

    assert "0001_schema" in reasons(await until_ready_is(server, False))["schema"]


async def test_schema_with_other_content_makes_the_server_unready(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.app.observation.readiness, "_schema_interval", 0)
    await server.table.connection.execute(
        "UPDATE pulse.schema_migrations SET checksum = 'other' WHERE version = 1"
    )

    assert "before the first release" in reasons(await until_ready_is(server, False))["schema"]


async def test_newer_schema_does_not_take_the_old_servers_out_of_a_rollout(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.app.observation.readiness, "_schema_interval", 0)
    await server.table.connection.execute(
        "INSERT INTO pulse.schema_migrations (version, name, checksum) VALUES (9999, '9999_to_come', 'x')"
    )
    await server.app.observation.readiness.tick()

    assert (await ask(server, "/readyz")).status == 200


async def test_server_is_alive_but_not_ready_before_it_accepts_calls(database_dsn: str) -> None:
    """The HTTP port answers first, however long the rest takes."""
    app = App(settings_of_test(http_address="127.0.0.1:0"), database_dsn)
    await app.observation.open(None, None)
    try:
        address = app.observation.http_address
        assert address is not None
        assert (await get(address, "/healthz")).status == 200
        answer = await get(address, "/readyz")
    finally:
        await app.observation.close()

    assert answer.status == 503
    assert reasons(answer).keys() == {"database", "schema", "gate", "serving"}


async def test_drain_is_reported_at_once_and_watchers_are_ended(database_dsn: str) -> None:
    async with (
        pulsed(database_dsn, PULSE_HTTP_ADDR="127.0.0.1:0", PULSE_DRAIN_TIMEOUT="10s") as server,
        grpc.aio.insecure_channel(server.address) as channel,
        caller_of(server) as stub,
    ):
        http_address = server.events[-1]["http_address"]
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        assert (await get(http_address, "/readyz")).status == 200
        async with held_submit(database_dsn, stub):  # which keeps the server in its drain
            server.signal()

            assert (await watch.read()).status == NOT_SERVING
            assert await watch.read() is grpc.aio.EOF
            answer = await get(http_address, "/readyz")

            assert answer.status == 503
            assert reasons(answer) == {"serving": "The server is draining."}
            assert (await get(http_address, "/healthz")).status == 200
        assert await server.ended() == 0


@asynccontextmanager
async def held_submit(dsn: str, stub: Any) -> AsyncIterator[None]:
    """A submit that waits for as long as the block lasts, and is answered then."""
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE pulse.jobs IN SHARE MODE")
            submitting = asyncio.ensure_future(stub.SubmitJob(pb.SubmitJobRequest(topic="mail")))
            await statement_waits(JobsTable(connection), "insert_one")
            yield
        assert (await submitting).job_id
    finally:
        await connection.close()


async def test_server_on_a_unix_socket_answers_there(database_dsn: str, tmp_path: Any) -> None:
    address = f"unix:{tmp_path / 'http.sock'}"
    async with pulsed(database_dsn, PULSE_HTTP_ADDR=address):
        assert (await get(address, "/readyz")).status == 200


async def test_probe_needs_no_rights_beyond_those_of_serving(database_dsn: str) -> None:
    """A role that only serves, and is member of nothing, is enough for readiness and vitals."""
    owner = await asyncpg.connect(database_dsn)
    try:
        await owner.execute(
            """DROP ROLE IF EXISTS pulse_serves; CREATE ROLE pulse_serves LOGIN PASSWORD 'x';
               GRANT USAGE ON SCHEMA pulse TO pulse_serves;
               GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pulse TO pulse_serves"""
        )
        parts = await owner.fetchrow(
            "SELECT current_database() AS name, current_setting('unix_socket_directories') AS sockets, "
            "current_setting('port') AS port"
        )
        assert parts is not None
        host = parts["sockets"].split(",")[0].strip() or "127.0.0.1"
        dsn = f"postgresql://pulse_serves:x@/{parts['name']}?host={host}&port={parts['port']}"
        async with observed(dsn) as server:
            assert (await ask(server, "/readyz")).status == 200
            await server.app.observation.vitals.tick()
    finally:
        await owner.execute("DROP OWNED BY pulse_serves; DROP ROLE pulse_serves")
        await owner.close()
