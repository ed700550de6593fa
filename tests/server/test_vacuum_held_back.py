"""A server says who keeps dead rows from being removed, whether or not anybody reads its metrics."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse_server.app import running_app
from pulse_server.database.connections import Database
from pulse_server.views.vitals import Holder, HolderKind, VitalsQueries
from tests.eventually import PATIENCE_SECONDS
from tests.server.outage_postgres import OutagePostgres
from tests.server.replicated_postgres import ReplicatedPostgres, ask, make_template
from tests.transport.pulse_server_under_test import settings_of_test

SLOT = "standby_slot"


async def logged(caplog: pytest.LogCaptureFixture, event: str, pid: int) -> dict[str, Any]:
    """Return the fields of this event about this session, once it is there."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            for record in caplog.records:
                if record.getMessage() == event and vars(record)["pid"] == pid:
                    return vars(record)
            await asyncio.sleep(0.005)  # a log has no event to wait for


async def test_server_names_the_session_and_logs_its_end(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pulse_server.app.HORIZON_INTERVAL", timedelta(milliseconds=10))
    monkeypatch.setattr("pulse_server.app.HELD_BACK_PATIENCE", timedelta(0))
    caplog.set_level("INFO")
    console = await asyncpg.connect(database_dsn, server_settings={"application_name": "console"})
    try:
        await console.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        pid = await console.fetchval("SELECT pg_backend_pid()")
        async with running_app(settings_of_test(), database_dsn) as (app, _):
            assert app.observation.http_address is None
            warning = await logged(caplog, "vacuum_held_back", pid)
            await console.execute("COMMIT")
            await logged(caplog, "vacuum_free_again", pid)
    finally:
        console.terminate()

    assert (warning["application"], warning["state"]) == ("console", "idle in transaction")
    assert f"pg_terminate_backend({pid})" in warning["hint"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "cluster")


@pytest.fixture
def pair(tmp_path: Path, template: Path) -> Iterator[ReplicatedPostgres]:
    pair = ReplicatedPostgres(tmp_path, template)
    yield pair
    pair.close()


async def has_set(server: OutagePostgres, name: str, value: str) -> None:
    await ask(server, f"ALTER SYSTEM SET {name} = '{value}'")
    await ask(server, "SELECT pg_reload_conf()")


@asynccontextmanager
async def query_on(standby: OutagePostgres) -> AsyncIterator[None]:
    """A transaction on the standby that may still look at everything that is there now."""
    session = await asyncpg.connect(standby.dsn, timeout=60)
    try:
        await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await session.fetchval("SELECT count(*) FROM pulse.jobs")
        yield
    finally:
        session.terminate()


async def found(vitals: VitalsQueries, kind: HolderKind, pid: bool) -> Holder:
    """Return the oldest holder once it is of this kind, with or without a process."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            holder = await vitals.oldest_holder()
            if holder is not None and holder.kind == kind and (holder.pid is not None) == pid:
                return holder
            await asyncio.sleep(0.02)  # a standby says what it needs when it likes to


async def test_standby_holds_back_and_the_slot_that_it_left_behind_goes_on(pair: ReplicatedPostgres) -> None:
    primary, standby = pair.first, pair.second
    await has_set(standby, "wal_receiver_status_interval", "1s")
    await has_set(standby, "hot_standby_feedback", "on")
    database = Database(primary.dsn)
    try:
        vitals = VitalsQueries(database)
        async with query_on(standby):
            walsender = await found(vitals, HolderKind.STANDBY, pid=True)
            await ask(primary, f"SELECT pg_create_physical_replication_slot('{SLOT}')")
            await has_set(standby, "primary_slot_name", SLOT)
            in_use = await found(vitals, HolderKind.SLOT, pid=True)
        standby.stop()
        left_behind = await found(vitals, HolderKind.SLOT, pid=False)
        await ask(primary, f"SELECT pg_drop_replication_slot('{SLOT}')")

        assert walsender.user == in_use.user == "pulse"
        assert (in_use.name, in_use.state) == (SLOT, "active")
        assert (left_behind.name, left_behind.state) == (SLOT, "inactive")
        assert {walsender.seconds, in_use.seconds, left_behind.seconds} == {None}
        assert await vitals.oldest_holder() is None
    finally:
        await database.close()
