"""Rows to lock, in place of advisory locks, which every role that may connect can take and keep."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from pulse_server.base import tuning
from pulse_server.base.errors import Unavailable
from pulse_server.base.ids import new_id
from pulse_server.database import connections as pools
from pulse_server.database.audit import Action, under_way
from pulse_server.database.connections import Database
from pulse_server.database.schema import known_functions
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.dispatch.store import PostgresDispatchRepo
from pulse_server.schedules.store import PostgresScheduleRepo
from pulse_server.topics.store import PostgresLimitRepo, PostgresTopicSettings
from pulse_server.work.retention import ExpiredJobs, PostgresCompletedDayRepo
from tests.postgres.planning import Planning
from tests.postgres.sessions import Connection, blocked
from tests.postgres.sql_files import FILES
from tests.server.roles import role_in

TASKS = {"retention", "completed_days"}
MAIL = "mail"
A_CHANGE = {"running": 3}


def action(method: str, *topics: str, **asked: Any) -> Action:
    return Action(new_id(), method, "ann", "operator", "", topics=topics, asked=asked)


async def acted(method: str, change: Awaitable[Any], *topics: str, **asked: Any) -> Any:
    """Make the change as an operator's action, which is recorded in the audit."""
    with under_way(action(method, *topics, **asked)):
        return await asyncio.ensure_future(change)


@pytest.fixture
async def database(shared_dsn: str, connection: Connection) -> AsyncIterator[Database]:
    await connection.execute("DELETE FROM pulse.audit; DELETE FROM pulse.locks")
    database = Database(shared_dsn)
    yield database
    await database.close()


@asynccontextmanager
async def stranger(dsn: str) -> AsyncIterator[Connection]:
    """A session of a role that may connect, and nothing else."""
    async with role_in(dsn) as (_, address):
        session = await asyncpg.connect(address, timeout=60)
        try:
            yield session
        finally:
            await session.close()


def test_no_statement_takes_an_advisory_lock() -> None:
    """The migrations do: an empty database has no row to lock."""
    texts = [text for file in FILES for text in statements(file).values()]
    texts += [function.sql for function in known_functions()]

    assert [text for text in texts if "pg_advisory" in text or "pg_try_advisory" in text] == []


async def test_role_that_may_connect_holds_up_nothing(
    database: Database, shared_dsn: str, planning: Planning, connection: Connection
) -> None:
    """It holds the keys of the advisory locks that servers took once, which it can compute."""
    schedule = await planning.make()
    of_settings = [[[], None, None], [[MAIL], None, None], [[], schedule.id, None], [[], None, "w1"]]
    switches, limits = PostgresDispatchRepo(database), PostgresLimitRepo(database)
    schedules, days = PostgresScheduleRepo(database), PostgresCompletedDayRepo(database)
    async with stranger(shared_dsn) as other:
        for key in range(482973020531, 482973020534):
            await other.execute("SELECT pg_advisory_lock($1)", key)
        for of in of_settings:
            key = "pg_advisory_lock(hashtextextended($1, 482973020533))"
            await other.execute(f"SELECT {key}", json.dumps(of))

        async with asyncio.timeout(tuning.STATEMENT_TIMEOUT.total_seconds()):
            await acted("PauseDispatch", switches.pause_everything("fire"))
            await acted("ResumeDispatch", switches.resume_everything())
            await acted("PauseDispatch", switches.pause_topic(MAIL, "fire"), MAIL)
            await acted("ResumeDispatch", switches.resume_topic(MAIL), MAIL)
            await acted("SetWorkerState", switches.set_worker_state("w1", {"run": "quiet"}, ""))
            await acted("SetWorkerState", switches.resume_worker("w1"))
            await acted("SetTopic", PostgresTopicSettings(database).set_topic(MAIL, A_CHANGE, (), ""), MAIL)
            await limits.limit_topic(MAIL, {"running": 3})
            await acted("SetLane", limits.set_lane(MAIL, "a", 2, None), MAIL, lane="a")
            await acted("HoldTopic", limits.hold(MAIL, timedelta(seconds=1), by_operator=True), MAIL)
            assert await acted("PauseSchedule", schedules.pause_schedule(schedule.id))
            assert await acted("DeleteSchedule", schedules.delete_schedule(schedule.id))
            swept = await ExpiredJobs(database).delete_expired({}, after=None, limit=10)
            assert not swept.is_taken
            old = date(2001, 1, 1)
            assert await connection.fetchval("SELECT pulse.add_completed_days_v1($1, 1)", old) == [old]
            assert await days.drop_completed_day(old, datetime.now(UTC)) == 0

    # Each change of a setting has its entry, and no lock is left.
    assert await connection.fetchval("SELECT count(*) FROM pulse.audit") >= 8
    assert {row["name"] for row in await connection.fetch("SELECT name FROM pulse.locks")} == TASKS


@pytest.mark.parametrize(
    "rights",
    [(), ("GRANT USAGE ON SCHEMA pulse TO {role}", "GRANT SELECT ON ALL TABLES IN SCHEMA pulse TO {role}")],
)
@pytest.mark.parametrize(
    "lock",
    [
        "SELECT FROM pulse.locks FOR UPDATE",
        "SELECT FROM pulse.locks FOR KEY SHARE",
        "INSERT INTO pulse.locks VALUES ('pause ')",
        "BEGIN; LOCK TABLE pulse.locks IN ROW SHARE MODE",
        "SELECT pulse.try_lock_v1('retention')",
    ],
)
async def test_rows_cannot_be_locked_by_a_role_that_only_reads(
    database_dsn: str, rights: tuple[str, ...], lock: str
) -> None:
    async with role_in(database_dsn, *rights) as (_, dsn):
        session = await asyncpg.connect(dsn, timeout=60)
        try:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await session.execute(lock)
        finally:
            await session.close()


def test_pause_waits_for_less_than_a_second() -> None:
    """For the audit, for its setting and for the switch, one after the other."""
    assert timedelta(seconds=1) > 3 * pools.HASTE


@pytest.mark.usefixtures("blockers_seen")
@pytest.mark.parametrize(
    ("held", "passes"),
    [
        ("INSERT INTO pulse.locks VALUES ('pause '), ('pause mail')", ""),
        ("LOCK TABLE pulse.audit IN ACCESS EXCLUSIVE MODE", ""),
        ("LOCK TABLE pulse.locks IN ACCESS EXCLUSIVE MODE", ""),
        ("SELECT FROM pulse.dispatch_control FOR UPDATE", "mail"),
        ("INSERT INTO pulse.barred_topics (topic) VALUES ('mail')", "everything"),
    ],
)
async def test_pause_that_is_held_up_is_refused_with_the_session_and_changes_nothing(
    database: Database, connection: Connection, rival: Connection, held: str, passes: str
) -> None:
    """Also a further one, which waits behind the first. A pause that needs another lock is made."""
    await rival.execute(held)
    switches = PostgresDispatchRepo(database)

    async def pause(topic: str) -> None:
        if topic == "everything":
            await acted("PauseDispatch", switches.pause_everything("fire"))
        else:
            await acted("PauseDispatch", switches.pause_topic(topic, "fire"), topic)

    names = ("everything", "everything", MAIL, MAIL)
    refusals = await asyncio.gather(*map(pause, names), return_exceptions=True)
    await rival.execute("ROLLBACK")

    for name, refusal in zip(names, refusals, strict=True):
        if name == passes:
            assert refusal is None
            continue
        assert isinstance(refusal, Unavailable)
        assert f"process {rival.get_server_pid()} of role" in str(refusal)
        assert "Nothing was changed" in str(refusal)
    state = await switches.read_gate()
    made = {*state.topics, *(["everything"] if state.everything else [])}
    assert made == ({passes} if passes else set())
    assert await connection.fetch("SELECT FROM pulse.locks WHERE name LIKE 'pause%'") == []


@pytest.mark.usefixtures("blockers_seen")
async def test_prepared_transaction_that_holds_up_a_pause_is_named(
    database: Database, connection: Connection
) -> None:
    """No session has it any more."""
    await connection.execute("BEGIN; INSERT INTO pulse.locks VALUES ('pause '); PREPARE TRANSACTION 'old'")
    try:
        with pytest.raises(Unavailable, match="a prepared transaction of pg_prepared_xacts"):
            await acted("PauseDispatch", PostgresDispatchRepo(database).pause_everything("fire"))
    finally:
        await connection.execute("ROLLBACK PREPARED 'old'")


async def test_pause_passes_operators_who_wait(
    database: Database, connection: Connection, rival: Connection
) -> None:
    """Changes of settings take every connection of operators, and one waits for the settings of the topic."""
    policies, switches = PostgresTopicSettings(database), PostgresDispatchRepo(database)
    await rival.execute("INSERT INTO pulse.locks VALUES ('settings mail')")
    waiting = [
        asyncio.create_task(acted("SetTopic", policies.set_topic(MAIL, A_CHANGE, (), ""), MAIL))
        for _ in range(2 * tuning.OPERATOR_CONNECTIONS)
    ]
    await blocked(connection, waiting[0])

    await acted("PauseDispatch", switches.pause_everything("fire"))
    await acted("PauseDispatch", switches.pause_topic(MAIL, "fire"), MAIL)

    assert not any(task.done() for task in waiting)
    state = await switches.read_gate()
    assert (state.everything is not None, set(state.topics)) == (True, {MAIL})
    await rival.execute("ROLLBACK")
    await asyncio.gather(*waiting)


async def test_change_that_is_held_up_for_long_names_the_session_that_holds_the_row(
    shared_dsn: str, connection: Connection, rival: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the second of two, which waits behind the first."""
    monkeypatch.setattr("pulse_server.base.tuning.STATEMENT_TIMEOUT", timedelta(seconds=3))
    database = Database(shared_dsn)
    policies = PostgresTopicSettings(database)
    await rival.execute("INSERT INTO pulse.locks VALUES ('settings mail')")

    changes = [acted("SetTopic", policies.set_topic(MAIL, A_CHANGE, (), ""), MAIL) for _ in range(2)]
    refusals = await asyncio.gather(*changes, return_exceptions=True)
    await rival.execute("ROLLBACK")
    await database.close()

    for refusal in refusals:
        assert f"process {rival.get_server_pid()} of role" in str(refusal)


async def test_change_of_two_servers_waits_for_the_other(
    database: Database, shared_dsn: str, connection: Connection
) -> None:
    """The lock is there before the setting is, and with the setting it goes."""
    second, begun, ended = Database(shared_dsn), asyncio.Event(), asyncio.Event()

    async def slowly(_fetch: Fetch) -> Rows:
        begun.set()
        await ended.wait()
        return []

    first = asyncio.create_task(acted("SetTopic", database.operators.transact("set_topic", slowly), MAIL))
    await begun.wait()
    change = acted("SetTopic", PostgresTopicSettings(second).set_topic(MAIL, A_CHANGE, (), ""), MAIL)
    waiting = await blocked(connection, change)
    ended.set()
    await asyncio.gather(first, waiting)
    await second.close()

    assert await connection.fetch("SELECT FROM pulse.locks WHERE name LIKE 'settings%'") == []


async def test_session_that_keeps_a_task_for_itself_is_logged(
    database: Database, rival: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another server has the task for a moment, and is not."""
    days, expired = PostgresCompletedDayRepo(database), ExpiredJobs(database)
    await rival.execute("SELECT pulse.try_lock_v1('retention'), pulse.try_lock_v1('completed_days')")

    assert (await expired.delete_expired({}, after=None, limit=10)).is_taken
    assert "lock_met" not in caplog.messages
    monkeypatch.setattr("pulse_server.database.connections.TASK_PATIENCE", timedelta())
    monkeypatch.setattr("pulse_server.database.connections.LOGGED_EVERY", timedelta())
    assert (await expired.delete_expired({}, after=None, limit=10)).is_taken
    assert await days.add_completed_days(0) == ()
    assert (
        await days.delete_expired_completed("completed_jobs_default", None, after=None, limit=10)
    ).is_taken

    logged = [vars(record) for record in caplog.records if record.getMessage() == "lock_met"]
    assert [each["statement"] for each in logged] == ["delete_expired", *["completed_days"] * 2]
    assert {(each["pid"], each["table"]) for each in logged} == {(rival.get_server_pid(), "pulse.locks")}
