"""A claim over many topics costs a batch, takes the best of all, and leaves the next to others."""

from __future__ import annotations

from itertools import count

import asyncpg
import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import HOT_PLANS, Connections
from pulse_server.database.statements import Rows, statements
from pulse_server.jobs.leases import _candidates
from tests.fakes.store import LEASE, Store, room
from tests.postgres.query_plans import Plan, explain
from tests.postgres.sessions import Connection

TOPICS = 200
DEPTH = 200
BATCH = 100
NAMES = [f"topic-{number}" for number in range(TOPICS)]
BEST = (
    "SELECT id FROM pulse.jobs WHERE queued AND locked_by IS NULL "
    "ORDER BY priority DESC, submitted_at, id LIMIT $1"
)
HOLD = "SELECT FROM pulse.jobs WHERE id = ANY($1::uuid[]) FOR UPDATE"
# When the job with the number n was submitted, in milliseconds: by turns, one topic after the other, and by
# turns but for three topics that are older than all others.
ORDERS = {
    "by turns": "n",
    "topic by topic": f"(n % {TOPICS}) * 100000 + n",
    "three deep topics": f"CASE WHEN n % {TOPICS} < 3 THEN n ELSE 1000000 + n END",
}


async def fill(connection: Connection, order: str, depth: int = DEPTH) -> None:
    await connection.execute(
        f"""INSERT INTO pulse.jobs
            (id, topic, payload, priority, max_attempts, submitted_at, next_run_at, queued, status)
        SELECT gen_random_uuid(), 'topic-' || n % {TOPICS}, '', n % 7 / 6, 5,
               now() - interval '100 days' + ({ORDERS[order]}) * interval '1 ms', now(), true, 'PENDING'
        FROM generate_series(1, {TOPICS * depth}) AS n"""
    )


def locked_rows(plan: Plan) -> int:
    return sum(
        round(node["Actual Rows"] * node["Actual Loops"])
        for node in plan.nodes()
        if node["Node Type"] == "LockRows"
    )


@pytest.mark.parametrize("order", list(ORDERS))
async def test_claim_takes_the_best_over_all_topics(store: Store, connection: Connection, order: str) -> None:
    await fill(connection, order, depth=40)
    for batch in (1, 7, BATCH, 5 * BATCH):
        best = [str(row["id"]) for row in await connection.fetch(BEST, batch)]
        claimed = await store.repo.claim_batch(NAMES, room("A", batch), LEASE)
        assert [job.id for job in claimed] == best


@pytest.mark.parametrize("order", ["by turns", "three deep topics"])
async def test_claim_over_many_topics_sees_and_locks_about_a_batch(
    shared_dsn: str, connection: Connection, order: str
) -> None:
    await fill(connection, order)
    names = ",".join(NAMES)
    candidates, of_each = _candidates(BATCH, TOPICS)
    planner = await asyncpg.connect(shared_dsn, timeout=60, command_timeout=60, server_settings=HOT_PLANS)
    try:
        plan = await explain(
            planner,
            "claim_across_topics",
            *(f"'{{{names}}}'", str(BATCH), f"array_fill(1, ARRAY[{BATCH}])", "'{A}'", "'{t}'", "'30 s'"),
            *("1000000", "'{}'", "0", "NULL", "NULL", str(candidates), str(of_each)),
        )
    finally:
        planner.terminate()

    assert plan.root["Actual Rows"] == BATCH
    assert locked_rows(plan) == BATCH
    # The first few of each topic, what deep topics have beyond it, and each job that is taken twice more.
    assert plan.rows_touched() <= TOPICS * of_each + 8 * candidates + 2 * BATCH
    assert plan.rows_touched() <= TOPICS * DEPTH / 10


async def test_claimer_who_finds_the_best_ones_locked_takes_the_next(
    store: Store, connection: Connection, second_connection: Connection
) -> None:
    await fill(connection, "by turns", depth=5)
    best = [str(row["id"]) for row in await connection.fetch(BEST, 2 * BATCH)]
    statement = statements("jobs/transitions/claims.sql")["claim_across_topics"]
    async with second_connection.transaction():
        slots = [1] * BATCH
        await second_connection.fetch(
            statement,
            *(NAMES, BATCH, slots, ["B"], [True], LEASE, 10**6, [], 0, None, None),
            *_candidates(BATCH, TOPICS),
        )
        claimed = await store.repo.claim_batch(NAMES, room("A", BATCH), LEASE)

    assert [job.id for job in claimed] == best[BATCH:]


@pytest.mark.parametrize(("slots", "held"), [(1, 2), (4, 15), (4, 900), (BATCH, 190), (BATCH, 400)])
async def test_claim_fills_its_slots_however_many_of_the_best_jobs_others_hold(
    store: Store, connection: Connection, second_connection: Connection, slots: int, held: int
) -> None:
    """A claim that left slots free would report that no other job is ready."""
    await fill(connection, "by turns", depth=5)
    best = [str(row["id"]) for row in await connection.fetch(BEST, held + slots)]
    async with second_connection.transaction():
        await second_connection.fetch(HOLD, best[:held])
        claimed = await store.repo.claim_batch(NAMES, room("A", slots), LEASE)
    assert [job.id for job in claimed] == best[held:]


async def test_claim_ends_where_others_hold_all_jobs(
    store: Store, connection: Connection, second_connection: Connection
) -> None:
    await fill(connection, "by turns", depth=1)
    everything = [str(row["id"]) for row in await connection.fetch(BEST, TOPICS)]
    async with second_connection.transaction():
        await second_connection.fetch(HOLD, everything)
        assert await store.repo.claim_batch(NAMES, room("A", 3), LEASE) == []


async def test_claim_whose_later_try_fails_brings_its_jobs_and_is_cut_short(
    store: Store,
    connection: Connection,
    second_connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await fill(connection, "by turns", depth=1)
    best = [str(row["id"]) for row in await connection.fetch(BEST, 3)]
    fetch, tries = Connections.fetch, count(1)

    async def fetch_once(connections: Connections, name: str, *arguments: str) -> Rows:
        if next(tries) > 1:
            raise Unavailable("The database is away.")
        return await fetch(connections, name, *arguments)

    monkeypatch.setattr(Connections, "fetch", fetch_once)
    async with second_connection.transaction():
        await second_connection.fetch(HOLD, best[:2])
        (job,) = await store.repo.claim_batch(NAMES, room("A", 2), LEASE)
    assert job.id == best[2]
    assert job.age_seconds is None
