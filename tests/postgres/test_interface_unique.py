"""Unique keys in open transactions of applications: the job that has the key goes on meanwhile. ADR-0066"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from pulse_server.jobs.new_jobs import Submitted, Unique
from tests.fakes.store import Store, a_job
from tests.postgres.interface import complete, enqueue
from tests.postgres.sessions import Connection, blocked
from tests.rows import each_row

WAITING: dict[str, Any] = {"topic": "email", "payload": b"1", "unique_key": "shop-7"}
LIVE = WAITING | {"unique_scope": "live"}
SECOND = {"payload": b"2"}


async def waiting(connection: Connection) -> list[bytes]:
    """The payloads of the jobs that wait, oldest first."""
    rows = await connection.fetch(
        "SELECT payload FROM pulse.jobs WHERE status = 'PENDING' ORDER BY submitted_at, id"
    )
    assert not await connection.fetchval("SELECT count(*) FROM pulse.open_duplicates")
    return [row["payload"] for row in rows]


async def nothing(_: Store) -> None: ...


async def start(store: Store) -> None:
    assert await store.claim()


async def finish(store: Store) -> None:
    assert await store.repo.complete_jobs(await store.claim())


async def cancel(store: Store) -> None:
    (claim,) = await store.claim()
    assert await store.repo.cancel_jobs([claim.job_id], "")


async def submit_another(store: Store) -> None:
    """The job starts, and a server stores the next one."""
    await start(store)
    (answer,) = await store.repo.insert_rich_jobs([a_job(payload=b"3", unique=Unique("shop-7"))])
    assert isinstance(answer, Submitted)
    assert not answer.duplicate


@each_row("given", [WAITING, LIVE])
async def test_job_is_changed_claimed_and_canceled_while_a_transaction_has_its_key(
    store: Store, connection: Connection, given: dict[str, Any]
) -> None:
    given = given | {"topic": str(len(given))}
    first, _, _ = await enqueue(connection, **given)
    async with connection.transaction():
        assert await enqueue(connection, **given) == (first, True, False)
        assert await store.repo.prioritize_jobs([first], 3)
        assert [claim.job_id for claim in await store.claim(topics=[given["topic"]])] == [first]
        assert await store.repo.cancel_jobs([first], "")


@pytest.mark.parametrize(
    ("given", "meanwhile", "left"),
    [
        (WAITING, nothing, [b"1"]),
        (WAITING, start, [b"2"]),
        (WAITING, finish, [b"2"]),
        (WAITING, cancel, [b"2"]),
        (WAITING, submit_another, [b"3"]),
        (LIVE, nothing, [b"1"]),
        (LIVE, start, []),  # a live job swallows it
        (LIVE, finish, [b"2"]),
    ],
)
async def test_job_that_has_started_by_the_commit_does_not_swallow_the_submit(
    store: Store,
    connection: Connection,
    given: dict[str, Any],
    meanwhile: Callable[[Store], Awaitable[None]],
    left: list[bytes],
) -> None:
    """It may not see what the transaction has written."""
    await enqueue(connection, **given)
    await connection.execute("DELETE FROM pulse.arrivals")
    async with connection.transaction():
        assert (await enqueue(connection, **given | SECOND))[1:] == (True, False)
        await meanwhile(store)

    assert await waiting(connection) == left
    arrivals = await connection.fetchval("SELECT sum(jobs) FROM pulse.arrivals")
    assert arrivals == (1 if left == [b"2"] else None)


async def test_rollback_leaves_nothing(store: Store, connection: Connection) -> None:
    await enqueue(connection, **WAITING)
    async with connection.transaction():
        savepoint = connection.transaction()
        await savepoint.start()
        await enqueue(connection, **WAITING | SECOND)
        await savepoint.rollback()
        await start(store)

    assert await waiting(connection) == []


async def test_first_of_several_submits_of_a_transaction_is_stored_once(
    store: Store, connection: Connection
) -> None:
    await enqueue(connection, **WAITING)
    async with connection.transaction():
        for number in range(2, 5):
            await enqueue(connection, **WAITING | {"payload": b"%d" % number})
        await start(store)

    assert await waiting(connection) == [b"2"]


async def test_job_that_waits_at_the_commit_starts_after_it(store: Store, connection: Connection) -> None:
    first, _, _ = await enqueue(connection, **WAITING)
    async with connection.transaction():
        await enqueue(connection, **WAITING | SECOND)
        await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what a commit begins with
        assert not await store.claim()
    assert [claim.job_id for claim in await store.claim()] == [first]
    assert await waiting(connection) == []


@each_row("is_started", [False, True])
async def test_commits_with_the_same_key_do_not_deadlock(
    store: Store, connection: Connection, second_connection: Connection, is_started: bool
) -> None:
    given = WAITING | {"unique_key": str(is_started), "topic": str(is_started)}
    await enqueue(connection, **given)
    sessions = (connection, second_connection)
    for session in sessions:
        await session.execute("BEGIN")
        await enqueue(session, **given | SECOND)
    if is_started:
        assert await store.claim(topics=[given["topic"]])
    await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    if is_started:
        committing = await blocked(connection, second_connection.execute("COMMIT"))
        await connection.execute("COMMIT")
        await committing
    else:
        await second_connection.execute("COMMIT")  # it passes the first one
        await connection.execute("COMMIT")
    left = await connection.fetch(
        "SELECT FROM pulse.jobs WHERE topic = $1 AND status = 'PENDING'", given["topic"]
    )
    assert len(left) == 1


async def test_commit_does_not_fail_for_a_key_that_another_submit_has_used_since(
    store: Store, connection: Connection, second_connection: Connection
) -> None:
    await enqueue(connection, **WAITING)
    async with connection.transaction():
        await enqueue(connection, **WAITING | SECOND, key="k")
        await enqueue(second_connection, topic="email", payload=b"3", key="k")
        await store.claim(count=2)

    assert await waiting(connection) == []


async def test_replace_locks_the_job_until_the_commit(store: Store, connection: Connection) -> None:
    """It must not start with what it had before, and not with what may be rolled back."""
    first, _, _ = await enqueue(connection, **WAITING)
    async with connection.transaction():
        assert (await enqueue(connection, **WAITING | SECOND, on_conflict="replace"))[2]
        assert not await store.claim()
    (claim,) = await store.claim()
    assert (claim.job_id, (await store.job(first)).payload) == (first, b"2")


async def test_job_that_is_stored_at_the_commit_has_the_options_of_its_submit(
    store: Store, connection: Connection
) -> None:
    await enqueue(connection, **WAITING)
    options = {"lane": "l", "priority": 4, "metadata": '{"a": "b"}', "key": "k"}
    async with connection.transaction():
        hour = timedelta(hours=1)
        await enqueue(connection, **WAITING | SECOND | options, delay=hour, start_within=hour, max_attempts=7)
        await start(store)
        called_at = await connection.fetchval("SELECT clock_timestamp()")
    (job,) = await connection.fetch(
        "SELECT lane, priority, metadata, idempotency_key AS key, max_attempts, queued, "
        "next_run_at <= $1::timestamptz + interval '1 h' AS counts_from_the_call, "
        "start_by - next_run_at AS within FROM pulse.jobs WHERE status = 'PENDING'",
        called_at,
    )
    assert dict(job) == options | {
        "max_attempts": 7,
        "queued": False,
        "counts_from_the_call": True,
        "within": hour,
    }


async def test_handler_that_enqueues_the_key_of_its_own_job_and_completes_it_is_not_repeated(
    store: Store, connection: Connection
) -> None:
    await enqueue(connection, **LIVE)
    (claim,) = await store.claim()
    async with connection.transaction():
        assert (await enqueue(connection, **LIVE | SECOND))[1]
        await complete(connection, claim)

    assert await waiting(connection) == []
