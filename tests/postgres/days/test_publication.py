"""A publication for all tables, as change data capture and logical standbys have it, stops nothing."""

from __future__ import annotations

import pytest

from pulse_server.database.connections import Database
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.topics.store import PostgresLimitRepo
from pulse_server.work.retention import PostgresCompletedDayRepo
from tests.fakes.store import Store
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.completed_jobs import DAY, add_completed, add_days, tables_of
from tests.postgres.day_rounds import a_round, keep, name
from tests.postgres.limited import TOPIC, Limited, in_lane
from tests.postgres.sessions import Connection


@pytest.fixture
async def published(database: Database, connection: Connection) -> Limited:
    await connection.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    store = Store(PostgresJobRepo(database), PostgresTimeMachine(connection))
    return Limited(store, PostgresLimitRepo(database), connection)


async def test_limits_hold_and_move_on_with_a_publication(published: Limited) -> None:
    await published.limit_topic(running=2, turns=True, per_lane=1)
    await published.submit(*[in_lane(lane) for lane in "aabbcc"])

    for _ in range(3):
        claims = await published.claim_all()
        assert len(claims) == 2
        await published.complete(*claims)

    assert await published.claim_all(TOPIC) == []


async def test_lease_is_settled_and_reaped_with_a_publication(published: Limited) -> None:
    claim = await published.store.start()
    await published.store.time.lapse_leases(claim.job_id)

    assert [entry.claim for entry in await published.store.repo.reap_expired(10)] == [claim]


async def test_retention_deletes_row_by_row_and_by_the_day_with_a_publication(
    database: Database, connection: Connection, published: Limited
) -> None:
    """Also on days that were made after the publication."""
    await connection.execute(f"DROP TABLE pulse.{name(0)}")
    assert await PostgresCompletedDayRepo(database).add_completed_days(1)
    await add_days(connection, 9, 3)
    await keep(database, "brief", DAY)
    await keep(database, "lasting", 90 * DAY)
    expired = await add_completed(connection, 2, 3 * DAY, "brief")
    moved = await add_completed(connection, 2, 9 * DAY, "lasting")
    dropped = await add_completed(connection, 2, 9 * DAY)
    deleted = await add_completed(connection, 1, 0 * DAY)

    await a_round(database)
    await published.store.repo.delete_jobs(deleted)

    assert await tables_of(connection, *expired, *dropped, *deleted) == {}
    assert set((await tables_of(connection, *moved)).values()) == {"completed_jobs_kept"}


async def test_every_table_has_a_replica_identity(connection: Connection) -> None:
    without = await connection.fetch(
        "SELECT class.relname FROM pg_class AS class "
        "WHERE class.relnamespace = 'pulse'::regnamespace AND class.relkind = 'r' "
        "AND class.relpersistence = 'p' "  # others are in no publication
        "AND class.relreplident <> 'f' AND NOT EXISTS "
        "(SELECT FROM pg_index AS key WHERE key.indrelid = class.oid AND key.indisprimary)"
    )
    assert without == []
