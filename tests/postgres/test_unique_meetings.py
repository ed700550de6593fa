"""A submit that meets another session in the middle of a change of the job that holds its key; staged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.jobs import inserts
from pulse_server.jobs.new_jobs import OnConflict, Scope, Submitted, Unique
from tests.fakes.store import Store, a_job
from tests.postgres.query_plans import explain
from tests.postgres.sessions import Connection

SKIP = Unique("shop-7")
REPLACE = SKIP._replace(on_conflict=OnConflict.REPLACE)
LIVE = Unique("shop-7", Scope.LIVE)
THROTTLE = Unique("shop-7", on_conflict=OnConflict.THROTTLE, period=timedelta(hours=1))


def before_it_meets(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[object]]) -> None:
    """Do this once, between the look at the rival and what the submit does to it."""
    meet, left = inserts._meet_rivals, [act]

    async def meet_later(*args: Any) -> Any:
        if left:
            await left.pop()()
        return await meet(*args)

    monkeypatch.setattr(inserts, "_meet_rivals", meet_later)


async def submit(store: Store, unique: Unique, payload: bytes = b"{}") -> Submitted:
    (answer,) = await store.repo.insert_rich_jobs([a_job(unique=unique, payload=payload)])
    assert isinstance(answer, Submitted), answer
    return answer


async def test_rival_that_starts_before_it_is_replaced_keeps_its_payload(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await submit(store, REPLACE, b"old")
    before_it_meets(monkeypatch, store.claim)
    second = await submit(store, REPLACE, b"new")

    assert not second.duplicate
    assert (await store.job(first.job_id)).payload == b"old"
    assert (await store.job(second.job_id)).payload == b"new"


async def test_rival_that_is_gone_before_it_is_replaced_makes_room(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await submit(store, REPLACE)
    before_it_meets(monkeypatch, lambda: store.repo.cancel_jobs([first.job_id], ""))

    assert not (await submit(store, REPLACE)).duplicate


async def test_key_that_another_submit_frees_first_goes_to_one_of_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(store, SKIP)
    await store.claim()
    rivals: list[Submitted] = []

    async def another() -> None:
        rivals.append(await submit(store, SKIP))

    before_it_meets(monkeypatch, another)
    assert await submit(store, SKIP) == Submitted(rivals[0].job_id, True)


async def test_submit_waits_for_a_claim_of_its_rival_that_is_under_way(
    store: Store, rival: Connection
) -> None:
    """It cannot know yet whether that job will have started: the insert waits for the transaction."""
    first = await submit(store, SKIP)
    await rival.execute(
        "UPDATE pulse.jobs SET status = 'RUNNING', attempts = 1, locked_by = 'w', lease_until = now(), "
        "started_at = now() WHERE id = $1::uuid",
        first.job_id,
    )
    submitting = asyncio.create_task(submit(store, SKIP))
    await asyncio.wait([submitting], timeout=0.05)
    await rival.execute("COMMIT")

    assert not (await submitting).duplicate


async def test_rival_that_another_session_has_locked_refuses_its_submit_alone(
    store: Store, rival: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts, "TRIES", 3)
    locked = await submit(store, REPLACE)
    await rival.fetch("SELECT FROM pulse.jobs WHERE id = $1::uuid FOR UPDATE", locked.job_id)
    other = REPLACE._replace(key="shop-8")
    refused, stored = await store.repo.insert_rich_jobs([a_job(unique=REPLACE), a_job(unique=other)])

    assert isinstance(refused, Unavailable)
    assert "'shop-7' is locked by another session" in str(refused)
    assert isinstance(stored, Submitted)
    assert not stored.duplicate
    assert await submit(store, SKIP) == Submitted(locked.job_id, True), "nothing has to be written there"


async def test_rival_that_another_session_changes_for_long_refuses_its_submit_alone(
    store: Store, rival: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The insert does not wait past its patience."""
    monkeypatch.setattr(inserts, "TRIES", 3)
    changed = await submit(store, REPLACE)
    await rival.execute("UPDATE pulse.jobs SET priority = 7 WHERE id = $1::uuid", changed.job_id)
    other = REPLACE._replace(key="shop-8")
    refused, stored = await store.repo.insert_rich_jobs([a_job(unique=REPLACE), a_job(unique=other)])

    assert isinstance(refused, Unavailable)
    assert isinstance(stored, Submitted)
    assert not stored.duplicate


async def test_period_goes_to_the_submit_that_has_its_row(store: Store, rival: Connection) -> None:
    """Another session takes the period between the look of the insert and its own try."""
    first = a_job()
    await rival.execute(
        "INSERT INTO pulse.unique_periods VALUES ('email', 'shop-7', now() + interval '1 h', $1::uuid)",
        first.id,
    )
    submitting = asyncio.create_task(submit(store, THROTTLE))
    await asyncio.wait([submitting], timeout=0.05)
    await rival.execute("COMMIT")

    assert await submitting == Submitted(first.id, True)
    assert await rival.fetchval("SELECT count(*) FROM pulse.jobs") == 0, "what was inserted is taken back"


async def test_redrive_that_loses_its_live_key_in_the_same_moment_is_refused(
    store: Store, rival: Connection
) -> None:
    first = await submit(store, LIVE)
    await store.repo.cancel_jobs([first.job_id], "")
    await rival.execute(
        "INSERT INTO pulse.jobs (id, topic, payload, max_attempts, submitted_at, next_run_at, queued, "
        "status, unique_key, unique_scope) "
        "VALUES (gen_random_uuid(), 'email', '', 5, now(), now(), true, 'PENDING', 'shop-7', 'live')"
    )
    retrying = asyncio.create_task(store.repo.retry_jobs([first.job_id], 1))
    await asyncio.wait([retrying], timeout=0.05)
    await rival.execute("COMMIT")

    assert await retrying == []
    assert set(await store.repo.unique_holders([first.job_id])) == {first.job_id}


async def test_megabyte_is_replaced(store: Store) -> None:
    first = await submit(store, REPLACE, b"a" * 1024 * 1024)
    await submit(store, REPLACE, b"b" * 1024 * 1024)

    assert (await store.job(first.job_id)).payload == b"b" * 1024 * 1024


@pytest.mark.parametrize("rows", [0, 2000])
async def test_submit_reads_only_the_rows_that_it_meets(
    store: Store, connection: Connection, rows: int
) -> None:
    """With statistics of an empty table, and of one where many hold keys."""
    await connection.execute(
        "TRUNCATE pulse.jobs, pulse.completed_jobs; ANALYZE pulse.jobs, pulse.completed_jobs"
    )
    if rows == 0:
        await connection.execute("ANALYZE pulse.jobs")
    many = [a_job(unique=Unique(f"shop-{number}")) for number in range(2000)]
    await store.repo.insert_rich_jobs(many)
    if rows:
        await connection.execute("ANALYZE pulse.jobs")
    found = await explain(
        connection,
        "find_rivals",
        *(f"ARRAY['{many[0].id}']::uuid[]", "ARRAY['email']", "ARRAY['']::bytea[]", "ARRAY['shop-7']"),
        *("NULL", "ARRAY['waiting']", "ARRAY[false]"),
    )
    assert "jobs_unique" in found.jobs_indexes()
    assert "Seq Scan" not in found.jobs_indexes()
    assert found.rows_touched() < 10
