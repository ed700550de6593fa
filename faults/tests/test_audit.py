"""The triggers audit the real statements, and the checker recognizes each of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from faults.audit import Connection, install, read_audit, record_clock
from faults.changes import verb_of
from faults.checker import check_run
from faults.history import History
from faults.limit_state import LimitState
from faults.rules import ends, executions, occurrences, submits
from pulse_server.database.connections import Database
from pulse_server.dispatch.store import PostgresDispatchRepo
from pulse_server.jobs.new_jobs import Submitted
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.rules import Claim
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.schedules.rules import CatchUp, Every
from pulse_server.steps.store import PostgresStepRepo
from pulse_server.topics.store import PostgresLimitRepo
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.store import LEASE, Store, a_job, failure, room
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.planning import SECOND, Planning, RecordingScheduleRepo
from tests.postgres.sessions import blocked
from tests.postgres.stepped import HOUR, StoredSteps

SOON = Every(SECOND)


@pytest.fixture
async def connection(database_dsn: str) -> AsyncIterator[Connection]:
    """A connection to a database that is audited."""
    connection: Connection = await asyncpg.connect(database_dsn, timeout=60, command_timeout=60)
    await install(connection)
    yield connection
    connection.terminate()


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    database = Database(database_dsn)
    yield database
    await database.close()


@pytest.fixture
def store(database: Database, connection: Connection) -> Store:
    return Store(PostgresJobRepo(database), PostgresTimeMachine(connection))


async def verbs(connection: Connection, job_id: str) -> list[str]:
    return [verb_of(change) for change in (await read_audit(connection)).jobs if change.job_id == job_id]


async def test_each_statement_is_recognized(store: Store, connection: Connection) -> None:
    claim = await store.start()
    job_id = claim.job_id
    await store.repo.extend_leases([claim], LEASE)
    await store.repo.prioritize_jobs([job_id], 5)
    await store.repo.fail_jobs([failure(claim)])
    await store.claim_again(job_id)
    await store.time.lapse_leases(job_id)
    await store.repo.reap_expired(10)
    await store.repo.release_jobs([await store.claim_again(job_id)])
    await store.repo.cancel_jobs([job_id], "")
    await store.repo.retry_jobs([job_id], 1)
    (claim,) = await store.claim()
    await store.repo.complete_jobs([claim])
    await store.repo.delete_jobs([job_id])
    audited = await verbs(connection, job_id)
    # The time machine ends waits and leases: touches, and what looks like a heartbeat.
    assert audited == [
        *("insert", "claim", "beat", "touch", "fail"),
        *("touch", "promote", "claim", "beat", "reap"),
        *("touch", "promote", "claim", "release"),
        *("cancel", "redrive", "claim", "complete", "delete"),
    ]
    changes = (await read_audit(connection)).jobs
    assert [change.new.run for change in changes if change.new and verb_of(change) == "claim"] == [1, 2, 3, 4]
    assert [change.old.run for change in changes if change.old][-2:] == [4, 4], "completed, and deleted"


async def test_handover_and_discard_are_recognized(store: Store, connection: Connection) -> None:
    job = a_job(payload=b'{"key": "k-1", "x": "\xff\x00"}')
    await store.repo.hand_over_jobs([job], [Taker("A", True)], LEASE)
    await store.repo.fail_jobs([failure(Claim(job.id, "A", 1, 1), discard=True)])
    first, last = (await read_audit(connection)).jobs
    assert (verb_of(first), first.key) == ("hand over", "k-1")
    assert (verb_of(last), last.outcome, last.new and last.new.status) == (
        "fail",
        "discarded",
        "DEAD_LETTERED",
    )


async def test_handover_under_limits_is_an_insert_and_then_a_claim(
    database: Database, connection: Connection
) -> None:
    """The claim is made by a function inside of the inserting statement, and its triggers run first."""
    limits, job = PostgresLimitRepo(database), a_job()
    await limits.limit_topic(job.topic, {"running": 1})

    handed_over = await limits.hand_over_limited(job.topic, [job], room("A", 1), LEASE)

    assert [claimed.id for claimed in handed_over.claims.jobs] == [job.id]
    assert await verbs(connection, job.id) == ["insert", "claim"]


async def test_job_that_was_claimed_or_taken_back_as_it_was_inserted_does_not_wait_in_its_lane(
    database: Database, store: Store, connection: Connection
) -> None:
    limits, job = PostgresLimitRepo(database), a_job(lane="acme")
    await limits.limit_topic(job.topic, {"running": 1, "per_lane": 1})
    handed_over = await limits.hand_over_limited(job.topic, [job], room("A", 1), LEASE)
    state = LimitState()
    for event in (await read_audit(connection)).limits:
        state.apply(event)
    assert (state.running[job.topic], state.waiting[job.topic, "acme"]) == (1, {})

    await store.repo.complete_jobs([Claim(claimed.id, "A", 1, 1) for claimed in handed_over.claims.jobs])
    (repeated,) = await store.repo.insert_jobs([job])

    assert isinstance(repeated, Submitted)
    assert repeated.duplicate
    state = LimitState()
    for event in (await read_audit(connection)).limits:
        state.apply(event)
    assert (state.running[job.topic], state.waiting[job.topic, "acme"]) == (0, {})


async def test_insert_is_audited_with_the_key_of_its_submit(store: Store, connection: Connection) -> None:
    expected: list[tuple[bytes, str | None, str | None]] = [
        (b'{"key":"inside","b":1}', None, "inside"),
        (b'{"key":"inside"}', "of the caller", "of the caller"),
        (b'{"b":1,"key":"late"}', None, None),
        (bytes(range(256)), None, None),
        (b"", None, None),
    ]
    for payload, idempotency_key, _ in expected:
        await store.submit(a_job(payload=payload, idempotency_key=idempotency_key))
    audited = [change.key for change in (await read_audit(connection)).jobs]
    assert audited == [key for _, _, key in expected]


async def test_changes_of_one_job_are_numbered_as_they_are_committed(
    store: Store, connection: Connection, database_dsn: str
) -> None:
    (job_id,) = await store.submit(a_job())
    other: Connection = await asyncpg.connect(database_dsn, timeout=60)
    change = "UPDATE pulse.jobs SET max_attempts = $2 WHERE id = $1"
    transaction = other.transaction()
    await transaction.start()
    await other.execute(change, job_id, 50)
    later = await blocked(other, connection.execute(change, job_id, 60))
    await other.execute(change, job_id, 55)
    await transaction.commit()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await later
    audited = [change.new.max_attempts for change in (await read_audit(connection)).jobs if change.new]
    assert audited == [5, 50, 55, 60]
    await other.close()


async def test_rolled_back_changes_are_not_audited(store: Store, connection: Connection) -> None:
    (job_id,) = await store.submit(a_job())
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("DELETE FROM pulse.jobs WHERE id = $1", job_id)
    await transaction.rollback()
    assert await verbs(connection, job_id) == ["insert"]


async def test_wait_that_ends_without_its_signal_is_audited_and_one_with_it_is_not(
    database: Database, store: Store, connection: Connection
) -> None:
    stepped = StoredSteps(store, PostgresStepRepo(database), database, connection)
    late, served = await store.start(), await store.start()
    for claim in (late, served):
        await stepped.wait(claim, delay=HOUR)
    await stepped.signal(served.job_id)
    assert await stepped.take(await store.claim_again(served.job_id)) is not None
    assert await stepped.take(await store.claim_again(late.job_id)) is None
    await connection.execute("UPDATE pulse.job_steps SET until = until - interval '2 hours'")
    for _ in range(2):
        assert await stepped.take(Claim(late.job_id, late.worker_id, 1, 2)) is not None
    audited = (await read_audit(connection)).late_waits
    assert [(wait.job_id, wait.attempt) for wait in audited] == [(late.job_id, 1)]


async def test_pauses_are_audited(database: Database, connection: Connection) -> None:
    switches = PostgresDispatchRepo(database)
    await switches.pause_everything("")
    await switches.pause_topic("mail", "")
    await switches.pause_topic("mail", "again")
    await switches.resume_topic("mail")
    await switches.resume_topic("mail")
    await switches.resume_everything()
    audited = [(change.topic, change.paused) for change in (await read_audit(connection)).switches]
    assert audited == [("", True), ("mail", True), ("mail", True), ("mail", False), ("", False)]


async def test_database_with_jobs_is_not_audited(
    database_dsn: str, database: Database, connection: Connection
) -> None:
    await connection.execute("DROP SCHEMA audit CASCADE")
    await Store(PostgresJobRepo(database), PostgresTimeMachine(connection)).submit(a_job())
    with pytest.raises(ValueError, match="rows already"):
        await install(connection)


# ---------------------------------------------------------------- from the statements to the verdict


async def test_history_of_real_statements_holds(
    store: Store, connection: Connection, database: Database, tmp_path: Path
) -> None:
    """And it does not hold after a manipulation."""
    planning = Planning(RecordingScheduleRepo(database), connection)
    with History(tmp_path, "client") as client, History(tmp_path, "worker-1") as worker:
        await record_clock(connection, client)
        for number in range(3):
            job = a_job(payload=f'{{"key":"k-{number}"}}'.encode())
            submit = client.operation("submit", key=f"k-{number}", topic=job.topic, expect="complete")
            await store.submit(job)
            submit.done(job_id=job.id)
            (claim,) = await store.claim("worker-1")
            await _run(store, worker, claim)
        for catch_up in CatchUp:
            await planning.make(SOON, overdue=5 * SECOND, catch_up=catch_up, topic="email")
        await planning.make_once(topic="email")
        while await planning.due_count():
            await planning.scheduler.tick()
            for claim in await store.claim("worker-1", 10):
                await _run(store, worker, claim)
        assert (await read_audit(connection)).schedules
        verdict = await check_run(tmp_path, connection)
        assert verdict.is_good, verdict
        assert verdict.counts["acked"] == 3
        assert verdict.counts["executions"] == verdict.counts["claims"] == verdict.counts["jobs"] > 8

        worker.write("started", job_id=claim.job_id, attempt=1, run=1, worker="worker-1", topic="email")
        await connection.execute("DELETE FROM pulse.completed_jobs WHERE id = $1", job.id)
        (stray,) = await store.submit(a_job())
        await store.repo.cancel_jobs([stray], "")
        await connection.execute("UPDATE pulse.schedules SET next_run_at = next_run_at + interval '1 hour'")
        verdict = await check_run(tmp_path, connection)
    rules = {violation.rule for violation in verdict.violations}
    assert rules >= {
        executions.NO_START_AFTER_END,
        ends.ROWS_STAY,
        submits.WAS_SUBMITTED,
        occurrences.NONE_SKIPPED,
    }


async def _run(store: Store, worker: History, claim: Claim) -> None:
    facts = dict(zip(("job_id", "worker", "attempt", "run"), claim, strict=True))
    worker.write("started", **facts, topic="email")
    worker.write("ended", **facts, outcome="completed")
    await store.repo.complete_jobs([claim])


async def test_reading_of_the_clock_encloses_it(connection: Connection, tmp_path: Path) -> None:
    with History(tmp_path, "run") as history:
        before = time.monotonic_ns()
        await record_clock(connection, history)
        after = time.monotonic_ns()
        seconds = await connection.fetchval("SELECT date_part('epoch', clock_timestamp())")
    facts = (await check_run(tmp_path, connection)).evidence.events[0].facts
    assert before <= facts["sent_ns"] < facts["received_ns"] <= after
    assert facts["database_ns"] <= seconds * 1e9


async def test_commit_is_not_before_the_last_change_of_its_transaction(
    database: Database, connection: Connection
) -> None:
    limits = PostgresLimitRepo(database)
    await limits.limit_topic("first", {"running": 1})
    await limits.limit_topic("second", {"running": 1})
    later = "UPDATE audit.limits SET at = at + interval '1 s' WHERE name = 'first' AND what = 'policy'"
    await connection.execute(later)
    names = [event.name for event in (await read_audit(connection)).limits]
    assert names == sorted(names, reverse=True)
