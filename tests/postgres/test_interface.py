"""The functions that applications call in their own transactions. ADR-0075"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.fakes.store import Store
from tests.postgres.interface import complete, enqueue
from tests.postgres.sessions import Connection

OPTIONS = (
    "priority integer DEFAULT 0, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, "
    "delay interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer, "
    "start_within interval DEFAULT NULL::interval, lane text DEFAULT NULL::text"
)
REST = (
    "key text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, id uuid DEFAULT NULL::uuid, "
    "unique_key text DEFAULT NULL::text, unique_scope text DEFAULT 'waiting'::text, "
    "on_conflict text DEFAULT 'skip'::text, period interval DEFAULT NULL::interval, "
    "longest interval DEFAULT NULL::interval, default_attempts integer DEFAULT NULL::integer, "
    "OUT job_id uuid, OUT duplicate boolean, OUT replaced boolean"
)
SIGNATURES = {
    "enqueue": f"topic text, payload bytea, {OPTIONS}, {REST}",
    "enqueue_json": f"topic text, args jsonb, {OPTIONS}, {REST}",
    "enqueue_many": f"topic text, payloads bytea[], {OPTIONS}, metadata jsonb DEFAULT NULL::jsonb, "
    "default_attempts integer DEFAULT NULL::integer, keys text[] DEFAULT NULL::text[], "
    "lanes text[] DEFAULT NULL::text[]",
    "enqueue_workflow": "name text, jobs jsonb, id uuid DEFAULT NULL::uuid, OUT workflow_id uuid, "
    "OUT job_ids uuid[], OUT duplicate boolean",
    "complete_job": "job uuid, worker text, run integer, token bytea, result bytea DEFAULT NULL::bytea",
}
JOB = {"topic": "email", "payload": b"1"}


async def arrivals(connection: Connection) -> list[tuple[Any, ...]]:
    rows = await connection.fetch(
        "SELECT topic, jobs, priority, cardinality(ids) FROM pulse.arrivals ORDER BY oldest"
    )
    return [tuple(row) for row in rows]


async def stored(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM pulse.jobs"))


async def test_signatures_stay_and_a_new_parameter_comes_last_with_a_default(connection: Connection) -> None:
    rows = await connection.fetch(
        "SELECT proname::text AS name, pg_get_function_arguments(oid) AS arguments, prosecdef, proconfig, "
        "proacl FROM pg_proc WHERE pronamespace = 'pulse'::regnamespace AND proname = ANY($1)",
        list(SIGNATURES),
    )

    assert {row["name"]: row["arguments"] for row in rows} == SIGNATURES
    for row in rows:
        assert row["prosecdef"]
        assert "search_path=pg_catalog, pg_temp" in row["proconfig"]
        assert not [entry for entry in row["proacl"] if entry.startswith("=")], "PUBLIC may call it"


async def test_job_exists_once_its_transaction_commits(store: Store, connection: Connection) -> None:
    async with connection.transaction():
        job_id, duplicate, _ = await enqueue(connection, **JOB, priority=7, metadata=json.dumps({"a": "b"}))
        assert not await store.claim(topics=["email"])

    job = await store.repo.get_job(job_id)

    assert not duplicate
    assert job is not None
    assert (job.topic, job.payload, job.priority, job.metadata) == ("email", b"1", 7, {"a": "b"})
    assert [claim.job_id for claim in await store.claim()] == [job_id]
    assert await arrivals(connection) == [("email", 1, 7, 1)]


@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"unique_key": "u"}, {"lane": "l"}], ids=str)
async def test_rollback_leaves_nothing_not_even_a_key(
    connection: Connection, options: dict[str, Any]
) -> None:
    async with connection.transaction():
        savepoint = connection.transaction()
        await savepoint.start()
        await enqueue(connection, **JOB, **options)
        await savepoint.rollback()
    transaction = connection.transaction()
    await transaction.start()
    await enqueue(connection, **JOB, **options)
    await transaction.rollback()

    assert await stored(connection) == 0
    assert await arrivals(connection) == []
    assert not (await enqueue(connection, **JOB, **options))[1]


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_keys_are_refused_above_read_committed_and_plain_jobs_are_not(
    connection: Connection, isolation: Any
) -> None:
    for options in ({"key": "k"}, {"unique_key": "u"}, {"id": UUID(int=7 << 76 | 1)}):
        with pytest.raises(asyncpg.FeatureNotSupportedError, match=r"Use READ COMMITTED\.$"):
            async with connection.transaction(isolation=isolation):
                await enqueue(connection, **JOB, **options)
    async with connection.transaction(isolation=isolation):
        await enqueue(connection, **JOB)

    assert await stored(connection) == 1


async def test_delayed_job_arrives_without_a_level(store: Store, connection: Connection) -> None:
    job_id, _, _ = await enqueue(connection, **JOB, delay=timedelta(hours=1))

    assert not await store.claim()
    assert await arrivals(connection) == [("email", 1, None, 1)]
    assert (await store.claim_again(job_id)).job_id == job_id


async def test_attempts_follow_the_settings_of_the_topic(connection: Connection) -> None:
    """The operator's number, the producer's default, the workers' number, the setting of the servers."""

    async def attempts(**options: Any) -> int:
        job_id, _, _ = await enqueue(connection, **JOB, **options)
        return int(
            await connection.fetchval("SELECT max_attempts FROM pulse.jobs WHERE id = $1", UUID(job_id))
        )

    assert await attempts() == 25
    assert await attempts(default_attempts=4) == 4
    await connection.execute(
        "INSERT INTO pulse.topic_rules (topic, max_attempts, attempts_by_operator) VALUES ('email', 6, false)"
    )
    assert (await attempts(), await attempts(default_attempts=4)) == (6, 4)
    await connection.execute("UPDATE pulse.topic_rules SET max_attempts = 8, attempts_by_operator = true")
    assert (await attempts(), await attempts(default_attempts=4), await attempts(max_attempts=2)) == (8, 8, 2)


async def test_many_jobs_come_in_order_and_arrive_as_one(store: Store, connection: Connection) -> None:
    payloads = [str(number).encode() for number in range(100)]

    ids = await connection.fetchval("SELECT pulse.enqueue_many('email', $1, priority => 3)", payloads)

    assert len(set(ids)) == await stored(connection) == 100
    read = [await store.repo.get_job(str(job_id)) for job_id in (ids[0], ids[99])]
    assert [job and job.payload for job in read] == [b"0", b"99"]
    assert await arrivals(connection) == [("email", 100, 3, 100)]
    assert await connection.fetchval("SELECT pulse.enqueue_many('email', '{}')") == []


async def test_many_jobs_with_keys_and_lanes(store: Store, connection: Connection) -> None:
    first, _, _ = await enqueue(connection, **JOB, key="b")

    ids = await connection.fetchval(
        "SELECT pulse.enqueue_many('email', $1, keys => $2, lanes => $3)",
        [b"1", b"1", b"2"],
        ["c", "b", None],
        ["x", None, "y"],
    )

    assert str(ids[1]) == first
    jobs = [await store.repo.get_job(str(ids[place])) for place in (0, 2)]
    assert [(job.lane, job.idempotency_key) for job in jobs if job] == [("x", "c"), ("y", None)]


async def test_many_jobs_with_keys_run_in_the_order_of_the_payloads(
    store: Store, connection: Connection
) -> None:
    known, _, _ = await enqueue(connection, topic="email", payload=b"0", key="c")
    await connection.execute("UPDATE pulse.jobs SET submitted_at = submitted_at - interval '1 hour'")

    ids = await connection.fetchval(
        "SELECT pulse.enqueue_many('email', $1, keys => $2)",
        [b"1", b"2", b"0", b"2", b"3", b"4"],
        ["e", "d", "c", "d", None, "a"],
    )

    assert (str(ids[2]), ids[1]) == (known, ids[3])
    claims = await store.claim(count=10)
    assert [claim.job_id for claim in claims] == [known, *(str(ids[place]) for place in (0, 1, 4, 5))]
    oldest = (
        "SELECT (SELECT min(oldest) FROM pulse.arrivals WHERE jobs = 0) <= min(submitted_at) FROM pulse.jobs"
    )
    assert await connection.fetchval(f"{oldest} WHERE idempotency_key IS DISTINCT FROM 'c'")


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("pulse.enqueue('email', NULL)", "payload"),
        ("pulse.enqueue(NULL, '')", "topic"),
        ("pulse.enqueue('email', '', priority => NULL)", "priority"),
        ("pulse.enqueue('email', '', run_at => now(), delay => '1 s')", "delay"),
        ("pulse.enqueue('email', '', start_within => '0 s')", "start_within"),
        ("pulse.enqueue('email', '', metadata => '[]')", "metadata"),
        ("pulse.enqueue('email', '', metadata => '{\"a\": 1}')", "metadata"),
        ("pulse.enqueue('email', '', period => '1 s')", "period"),
        ("pulse.enqueue_many('email', ARRAY[NULL::bytea])", "payload"),
        ("pulse.enqueue_many('email', array_fill(''::bytea, ARRAY[10001]))", "payloads"),
        ("pulse.enqueue_many('email', ARRAY['']::bytea[], keys => ARRAY['a', 'b'])", "keys"),
        ("pulse.enqueue_many('a b', ARRAY['']::bytea[])", "topic"),
        ("pulse.complete_job(NULL, 'A', 1, '')", "job"),
        ("pulse.complete_job(gen_random_uuid(), 'A', 1, NULL)", "job, worker, run and token are what"),
        ("pulse.complete_job(gen_random_uuid(), 'A', 1, '')", "token is not that of run 1 of job"),
    ],
    ids=str,
)
async def test_bad_argument_is_named(connection: Connection, call: str, field: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match=f"^{field}"):
        await connection.execute(f"SELECT {call}")


async def test_keyed_job_keeps_no_lock_on_the_days(
    connection: Connection, second_connection: Connection
) -> None:
    async with connection.transaction():
        await enqueue(connection, **JOB, key="k")
        await enqueue(connection, **JOB, key="k")
        held = await second_connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE pid = $1 AND relation IN "
            "(SELECT relid FROM pg_partition_tree('pulse.completed_jobs'))",
            connection.get_server_pid(),
        )

    assert held == 0


async def test_key_of_a_completed_job_is_a_duplicate(store: Store, connection: Connection) -> None:
    job_id, _, _ = await enqueue(connection, **JOB, key="k")
    (claim,) = await store.claim()
    await complete(connection, claim)

    assert await enqueue(connection, **JOB, key="k") == (job_id, True, False)
    with pytest.raises(asyncpg.UniqueViolationError) as refused:
        await enqueue(connection, topic="email", payload=b"2", key="k")

    assert refused.value.as_dict()["detail"] == job_id
