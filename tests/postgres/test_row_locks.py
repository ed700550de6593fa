"""How locks of other sessions are met: rows are passed over, a lock on the table is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from pulse_server.base.errors import ScheduleNotFound, Unavailable
from pulse_server.database.connections import Database
from pulse_server.dispatch.store import PostgresDispatchRepo
from pulse_server.jobs.leases import LOCK_REMEMBERED, RowLocks
from pulse_server.jobs.new_jobs import Submitted
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.schedules.service import Schedules
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.replica import Replica
from tests.fakes.store import LEASE, Store, a_job, failure
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.planning import Planning
from tests.postgres.sessions import Connection

A_MOMENT = timedelta(milliseconds=10)
LONGER = timedelta(milliseconds=100)


@pytest.fixture(params=[False, True], ids=["direct", "behind a pooler"])
async def impatient(
    request: pytest.FixtureRequest,
    shared_dsn: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Store]:
    """A store that waits for a lock for a moment only."""
    monkeypatch.setattr("pulse_server.database.connections.LOCK_PATIENCE", A_MOMENT)
    database = Database(shared_dsn, behind_pooler=request.param)
    yield Store(PostgresJobRepo(database), PostgresTimeMachine(connection))
    await database.close()


async def waits_for_longer(connection: Connection, sessions: int) -> None:
    """Return once so many sessions have waited for a lock for longer than the patience."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sessions > await connection.fetchval(  # noqa: ASYNC110 - the database rings no bell
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND cardinality(pg_blocking_pids(pid)) > 0 AND clock_timestamp() - query_start > $1",
            LONGER,
        ):
            await asyncio.sleep(0.002)


async def test_reap_does_not_wait_for_a_lock_on_the_table(
    impatient: Store, second_connection: Connection
) -> None:
    """No beat can be stored meanwhile either: what the reap would find behind the lock are healthy jobs."""
    await impatient.submit(a_job())
    (claim,) = await impatient.claim()
    await impatient.time.lapse_leases(claim.job_id)
    async with second_connection.transaction():
        await second_connection.execute("LOCK TABLE pulse.jobs IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Unavailable):
            await impatient.repo.reap_expired(10)
    assert (await impatient.job(claim.job_id)).locked_by == claim.worker_id


async def test_lock_on_the_table_is_waited_for(
    impatient: Store, connection: Connection, second_connection: Connection
) -> None:
    """As an ALTER TABLE has it: what waited before must not fail now."""
    repo = impatient.repo
    await impatient.submit(*[a_job() for _ in range(6)])
    beaten, completed, failed, released, canceled, _ = await impatient.claim(count=6)
    job = a_job()
    calls: list[Any] = [
        repo.extend_leases([beaten], LEASE),
        repo.complete_jobs([completed]),
        repo.fail_jobs([failure(failed)]),
        repo.release_jobs([released]),
        repo.cancel_jobs([canceled.job_id], ""),
        repo.insert_jobs([job]),
        repo.promote_due(10),
    ]

    async with second_connection.transaction():
        await second_connection.execute("LOCK TABLE pulse.jobs IN ACCESS EXCLUSIVE MODE")
        answers = asyncio.gather(*calls)
        await waits_for_longer(connection, len(calls))
    beats, completions, failures, releases, cancellations, inserted, _ = await answers

    assert beats.extended == {beaten}
    assert set(completions) == {completed}
    assert set(failures) == {failed}
    assert set(releases) == {released.job_id}
    assert [entry.ended_claim for entry in cancellations] == [canceled]
    assert inserted == [Submitted(job.id, False)]


async def test_reference_from_another_table_delays_the_completion_of_that_job_alone(
    impatient: Store, connection: Connection, second_connection: Connection
) -> None:
    await impatient.submit(a_job(), a_job(), a_job())
    referred, locked, free = await impatient.claim(count=3)

    async with second_connection.transaction():
        await second_connection.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR KEY SHARE", referred.job_id)
        await second_connection.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", locked.job_id)
        assert set(await impatient.repo.complete_jobs([referred, locked, free])) == {free}
        assert (await impatient.repo.extend_leases([referred, locked], LEASE)).extended == {referred}
    assert set(await impatient.repo.complete_jobs([referred, locked])) == {referred, locked}


async def test_reference_from_another_table_is_no_obstacle_to_an_operator(
    impatient: Store, connection: Connection, second_connection: Connection
) -> None:
    """Only a delete has to pass over the job, and over that one alone."""
    referred, free, locked = await impatient.submit(a_job(), a_job(), a_job())
    repo, all_of_them = impatient.repo, [referred, free, locked]

    async with second_connection.transaction():
        await second_connection.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR KEY SHARE", referred)
        await second_connection.execute("SELECT FROM pulse.jobs WHERE id = $1 FOR UPDATE", locked)
        assert {job.id for job in await repo.prioritize_jobs(all_of_them, 7)} == {referred, free}
        cancellations = await repo.cancel_jobs(all_of_them, "")
        assert {entry.job.id for entry in cancellations} == {referred, free}
        assert set(await repo.delete_jobs(all_of_them)) == {free}


@pytest.mark.parametrize("change", ["UPDATE pulse.jobs SET priority = 7", "DELETE FROM pulse.jobs"])
async def test_repeat_of_a_job_that_another_session_has_changed_keeps_no_submit_waiting(
    impatient: Store, connection: Connection, second_connection: Connection, change: str
) -> None:
    """Submits share a statement, and it would wait until that session commits. What is stored past the lock
    is claimed later."""
    job, other, taken, waits = (a_job(topic=name) for name in ("email", "sms", "push", "push"))
    keyed, repeat = a_job(idempotency_key="k"), a_job(idempotency_key="k")
    await impatient.submit(job, keyed)

    async with second_connection.transaction():
        await second_connection.execute(f"{change} WHERE id = ANY($1::uuid[])", [job.id, keyed.id])
        answers = await impatient.repo.insert_jobs([job, repeat, other])
        handed_over = await impatient.repo.hand_over_jobs(
            [repeat, taken, waits], [None, Taker("A", False), None], LEASE
        )
        alone = [
            await impatient.repo.hand_over_jobs([again], [Taker("A", False)], LEASE)
            for again in (job, repeat)
        ]
    assert answers == [Submitted(job.id, True), Submitted(keyed.id, True), Submitted(other.id, False)]
    assert alone == [[Submitted(job.id, True)], [Submitted(keyed.id, True)]]
    assert handed_over == [
        Submitted(keyed.id, True),
        Submitted(taken.id, False),
        Submitted(waits.id, False),
    ]


class RecordedConnections:
    """Stands for the connections: the named rows are locked, and each way that was gone is written down."""

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self.ways: list[str] = []

    async def fetch(self, _name: str, statement: str, ids: Any, *, if_locked: Callable[..., Any]) -> Any:
        self.ways.append("plain")
        return await if_locked(self._send) if self.locked & set(ids) else await self._send(statement, ids)

    async def transact(self, _name: str, work: Callable[..., Any]) -> Any:
        self.ways.append("looks first")
        return await work(self._send)

    async def _send(self, statement: str, ids: Any) -> Any:
        if statement == "lock":
            return [{"id": job_id} for job_id in ids if job_id not in self.locked]
        return [job_id for job_id in ids if job_id is not None]


async def test_row_that_was_locked_is_looked_at_first_until_it_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A report that is offered again and again must not keep its lane waiting each time."""
    connections: Any = RecordedConnections()
    rows = RowLocks({"lock_deletable_jobs": "lock", "complete_jobs": "complete"})
    connections.locked = {"b"}

    async def complete(*job_ids: str) -> list[str]:
        return list(await rows.fetch(connections, "complete_jobs", job_ids))

    assert await complete("a", "b", "c") == ["a", "c"]
    assert await complete("b") == []
    assert await complete("d") == ["d"]
    connections.locked = set()
    assert await complete("b", "e") == ["b", "e"]
    assert await complete("b") == ["b"]

    assert connections.ways == ["plain", "looks first", "plain", "looks first", "plain"]
    assert [record.getMessage() for record in caplog.records] == ["rows_locked"]


async def test_locked_rows_are_forgotten_in_time_and_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.jobs.leases.LOCKS_REMEMBERED", 3)
    now = 0.0
    connections: Any = RecordedConnections()
    rows = RowLocks({"lock_deletable_jobs": "lock", "complete_jobs": "complete"}, clock=lambda: now)
    connections.locked = set("abcdef")
    for job_id in "abcde":
        await rows.fetch(connections, "complete_jobs", [job_id])
    connections.ways.clear()

    await rows.fetch(connections, "complete_jobs", ["a"])  # forgotten for newer ones
    now = LOCK_REMEMBERED.total_seconds()
    await rows.fetch(connections, "complete_jobs", ["e"])
    await rows.fetch(connections, "complete_jobs", ["e"])

    assert connections.ways == ["plain", "plain", "looks first"]


@pytest.mark.usefixtures("blockers_seen")
async def test_schedule_that_is_locked_names_the_session(
    planning: Planning, second_connection: Connection
) -> None:
    schedule = await planning.make()
    service = Schedules(planning.repo, Replica().publisher)

    async with second_connection.transaction():
        await second_connection.execute("SELECT FROM pulse.schedules FOR UPDATE")
        named = f"process {second_connection.get_server_pid()} "
        for act in (service.pause, service.resume, service.delete):
            with pytest.raises(Unavailable, match=f"{named}.*Try again"):
                await act(schedule.id)
    assert (await service.pause(schedule.id)).paused
    await service.delete(schedule.id)
    with pytest.raises(ScheduleNotFound):
        await service.delete(schedule.id)


@pytest.mark.usefixtures("blockers_seen")
async def test_pause_switch_that_is_locked_names_the_session(
    shared_dsn: str, connection: Connection, second_connection: Connection
) -> None:
    database = Database(shared_dsn)
    switches = PostgresDispatchRepo(database)

    async with second_connection.transaction():
        await second_connection.execute("SELECT FROM pulse.dispatch_control FOR UPDATE")
        with pytest.raises(Unavailable, match=f"process {second_connection.get_server_pid()} "):
            await switches.pause_everything("")
    await switches.pause_everything("")
    assert (await switches.read_gate()).everything is not None
    await switches.resume_everything()
    await database.close()
