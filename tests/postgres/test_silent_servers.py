"""Whose jobs are not reaped: workers of servers that are cut off or frozen, and those whose beats failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from pulse_server.base.ids import new_id
from pulse_server.database.connections import Database
from pulse_server.dispatch.rules import ConnectedWorker
from pulse_server.views.servers import Servers as Recording
from pulse_server.views.servers import Sparing
from tests.fakes.store import Store, a_job
from tests.postgres.glance import servers_on
from tests.postgres.sessions import Connection

A_MOMENT = timedelta(milliseconds=10)
AN_HOUR = timedelta(hours=1)


class Servers:
    """Rows of servers with one worker each."""

    def __init__(self, repo: Recording, connection: Connection) -> None:
        self.repo = repo
        self._connection = connection

    async def serve(
        self, worker_id: str, after: timedelta, until: timedelta = AN_HOUR, server_id: str | None = None
    ) -> str:
        """Let the server be heard of. Returns its id."""
        server_id = server_id or new_id()
        now = await self._connection.fetchval("SELECT now()")
        # Connected twice, as one that lost its first stream and opened another.
        workers = [ConnectedWorker(worker_id, ("email",), 1, now)] * 2
        await self.repo.record_server(server_id, "a:1", workers, Sparing(after, until, AN_HOUR))
        return server_id


@pytest.fixture
async def servers(shared_dsn: str, connection: Connection) -> AsyncIterator[Servers]:
    database = Database(shared_dsn)
    yield Servers(servers_on(database), connection)
    await connection.execute("DELETE FROM pulse.servers")
    await connection.execute("DELETE FROM pulse.spared_workers")
    await database.close()


async def reaped_workers(store: Store) -> list[str | None]:
    return [entry.claim.worker_id for entry in await store.repo.reap_expired(10)]


async def claim_and_lapse(store: Store, *worker_ids: str) -> None:
    """Give a job to each of the workers, and let its lease expire."""
    await store.submit(*[a_job() for _ in worker_ids])
    claims = [claim for worker_id in worker_ids for claim in await store.claim(worker_id)]
    await store.time.lapse_leases(*[claim.job_id for claim in claims])


async def test_workers_of_a_server_that_fell_silent_are_spared_and_those_of_one_that_left_are_not(
    store: Store, servers: Servers
) -> None:
    await claim_and_lapse(store, "lives", "silent", "left", "long")
    await servers.serve("lives", AN_HOUR)
    await servers.serve("silent", -A_MOMENT)
    await servers.repo.forget_servers(await servers.serve("left", -A_MOMENT), AN_HOUR)
    await servers.serve("long", -2 * AN_HOUR, -AN_HOUR)

    assert await reaped_workers(store) == ["lives", "left", "long"]


async def test_workers_of_a_server_that_was_silent_are_spared_for_a_lease_once_it_is_back(
    store: Store, servers: Servers
) -> None:
    """It was frozen: results that its workers have had since then arrive after its row."""
    await claim_and_lapse(store, "lives", "back", "new")
    lives = await servers.serve("lives", AN_HOUR)
    await servers.serve("lives", AN_HOUR, server_id=lives)
    back = await servers.serve("back", -A_MOMENT)
    await servers.serve("new", AN_HOUR, server_id=back)

    assert await reaped_workers(store) == ["lives"]


async def test_worker_is_spared_though_the_row_of_another_one_is_locked(
    store: Store, servers: Servers, second_connection: Connection
) -> None:
    await claim_and_lapse(store, "dead", "spared", "new")
    await store.repo.spare_workers(["locked", "spared"], A_MOMENT)

    async with second_connection.transaction():
        await second_connection.execute(
            "SELECT FROM pulse.spared_workers WHERE worker_id = 'locked' FOR UPDATE"
        )
        await store.repo.spare_workers(["locked", "new", "spared"], AN_HOUR)
        assert await reaped_workers(store) == ["dead"]


async def test_server_starts_though_the_row_of_a_long_dead_one_is_locked(
    servers: Servers, connection: Connection, second_connection: Connection
) -> None:
    locked, _, starting = [await servers.serve(name, AN_HOUR) for name in ("locked", "dead", "starting")]
    await connection.execute("UPDATE pulse.servers SET seen_at = now() - interval '2 hours'")

    async with second_connection.transaction():
        await second_connection.execute("SELECT FROM pulse.servers WHERE id = $1 FOR UPDATE", locked)
        await asyncio.wait_for(servers.repo.forget_servers(starting, AN_HOUR), 30)
        assert [str(row["id"]) for row in await connection.fetch("SELECT id FROM pulse.servers")] == [locked]

    await servers.repo.forget_servers(starting, AN_HOUR)
    assert not await connection.fetch("SELECT FROM pulse.servers")


async def test_time_of_servers_that_follow_one_another_counts_as_one(
    store: Store, servers: Servers, connection: Connection
) -> None:
    """Three were heard of in turn, the last until now; one before them fell silent before the first began."""
    for began, silent_from in ((100, 50), (40, 25), (30, 5), (10, -10)):
        server_id = await servers.serve("A", AN_HOUR)
        await connection.execute(
            "UPDATE pulse.servers SET steady_since = now() - $2::int * interval '1 min', "
            "silent_from = now() - $3::int * interval '1 min' WHERE id = $1",
            *(server_id, began, silent_from),
        )

    steady_for = await store.repo.steady_for(timedelta(minutes=1))
    assert timedelta(minutes=40) <= steady_for < timedelta(minutes=41)


async def test_server_that_was_silent_begins_to_be_steady_once_it_is_back(
    store: Store, servers: Servers, connection: Connection
) -> None:
    lives, back = await servers.serve("lives", AN_HOUR), await servers.serve("back", -A_MOMENT)
    before = dict(await connection.fetch("SELECT id::text, steady_since FROM pulse.servers"))

    for server_id in (lives, back):
        await servers.serve("A", AN_HOUR, server_id=server_id)

    after = dict(await connection.fetch("SELECT id::text, steady_since FROM pulse.servers"))
    assert after[lives] == before[lives]
    assert after[back] > before[back]
