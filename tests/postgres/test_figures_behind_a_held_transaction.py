"""Which statements walk the dead entries of jobs_claim while a transaction is held open, and which do not.

Vacuum cannot remove the entries of jobs that have ended since the snapshot. ADR-0055
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pulse_server.database.connections import HOT_PLANS
from tests.fakes.store import Store, a_job
from tests.postgres.query_plans import pages_read, settle_on
from tests.postgres.sessions import Connection

ENDED = 2000
# Statements that run at every tick, or for each page of an operator.
BOUNDED = {
    "count_running": "",
    "held_jobs": "20",
    "promote_due": "500",
    "settle_claims": "20, NULL",
    "reap_expired": "500, clock_timestamp(), '', 20, NULL, NULL, NULL, '30 s', ''",
}
# Exact figures of every topic. They walk, and rest for 20 times as long as they took.
WALKING = {"jobs_by_topic": "1000", "topic_depths": "", "topics_with_ready_jobs": "'email'"}


@pytest.fixture
async def _ended(store: Store, connection: Connection, second_connection: Connection) -> AsyncIterator[None]:
    """Jobs that ran and have ended since a snapshot that is held, one that runs, and one that waits."""
    async with second_connection.transaction(isolation="repeatable_read"):
        await second_connection.fetchval("SELECT count(*) FROM pulse.jobs")
        await store.submit(*(a_job() for _ in range(ENDED)))
        await store.repo.complete_jobs(await store.claim(count=ENDED))
        await connection.execute("UPDATE pulse.lease_checks SET check_at = check_at - interval '1 hour'")
        await store.submit(a_job(), a_job())
        await store.claim()
        await settle_on(connection, HOT_PLANS)
        yield


@pytest.mark.usefixtures("_ended")
@pytest.mark.parametrize("name", list(BOUNDED))
async def test_figure_or_tick_does_not_walk_dead_entries(connection: Connection, name: str) -> None:
    assert await pages_read(connection, name, BOUNDED[name]) < 60


@pytest.mark.usefixtures("_ended")
@pytest.mark.parametrize("name", list(WALKING))
async def test_exact_depth_walks_dead_entries(connection: Connection, name: str) -> None:
    """The reason why these are read at most for a twentieth of the time."""
    assert await pages_read(connection, name, WALKING[name]) > 60
