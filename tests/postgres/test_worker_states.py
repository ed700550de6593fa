"""The states of workers that operators have ordered, with the switches of dispatch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.base.ids import new_id
from pulse_server.database.connections import Database
from pulse_server.dispatch.rules import ConnectedWorker
from pulse_server.dispatch.store import PostgresDispatchRepo
from pulse_server.work.retention import ExpiredJobs
from tests.postgres.glance import servers_on
from tests.postgres.sessions import Connection


@pytest.fixture
async def switches(shared_dsn: str, connection: Connection) -> AsyncIterator[PostgresDispatchRepo]:
    database = Database(shared_dsn)
    yield PostgresDispatchRepo(database)
    await database.close()


async def test_state_of_a_worker_has_its_reason_and_start_until_it_is_resumed(
    switches: PostgresDispatchRepo, connection: Connection
) -> None:
    before = await connection.fetchval("SELECT clock_timestamp()")
    await switches.set_worker_state("w1", {"run-1": "quiet", "run-2": "stopping"}, "memory gröws", "ann")
    first = (await switches.read_gate()).workers
    await switches.set_worker_state("w1", {"run-1": "quiet"}, "still", "bob")
    await switches.set_worker_state("w2", {"": "quiet"}, "")
    states = (await switches.read_gate()).workers

    assert states.keys() == {("w1", "run-1"), ("w1", "run-2"), ("w2", "")}
    assert states["w1", "run-2"] == first["w1", "run-2"]
    assert (first["w1", "run-1"].reason, first["w1", "run-1"].set_by) == ("memory gröws", "ann")
    assert states["w1", "run-1"] == ("quiet", "still", first["w1", "run-1"].set_at, "bob")
    assert states["w1", "run-2"].name == "stopping"
    assert before <= first["w1", "run-1"].set_at <= states["w2", ""].set_at

    assert await switches.resume_worker("w1")
    assert not await switches.resume_worker("w1")
    assert (await switches.read_gate()).workers.keys() == {("w2", "")}


async def test_state_is_forgotten_once_its_process_has_been_away_for_long(
    switches: PostgresDispatchRepo, shared_dsn: str, connection: Connection
) -> None:
    database = Database(shared_dsn)
    expired, servers = ExpiredJobs(database), servers_on(database)
    server_id = new_id()
    for run_id in ("here", "gone"):
        await switches.set_worker_state("w1", {run_id: "quiet"}, "")
    worker = ConnectedWorker("w1", ("email",), 1, datetime.now(UTC), run_id="here")
    await servers.record_server(server_id, "a:1", [worker])

    async def left() -> set[str]:
        await expired.forget_worker_states(timedelta(hours=1))
        return {run_id for _, run_id in (await switches.read_gate()).workers}

    assert await left() == {"here", "gone"}, "it may connect again"
    lapse = "UPDATE pulse.worker_states SET missing_since = missing_since - interval '2 hours'"
    await connection.execute(lapse)
    assert await left() == {"here"}
    await servers.record_server(server_id, "a:1", [])
    assert await left() == {"here"}, "away since now"
    await servers.record_server(server_id, "a:1", [worker])
    await connection.execute(lapse)
    assert await left() == {"here"}, "back before it was forgotten"
    await servers.record_server(server_id, "a:1", [])
    assert await left() == {"here"}, "the time that it was away before does not count"
    await connection.execute("DELETE FROM pulse.servers")
    await database.close()
