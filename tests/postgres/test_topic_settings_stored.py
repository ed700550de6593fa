"""Settings of topics as they are stored: operators win over workers, entry by entry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from pulse.topic_settings import Backoff, Entries, from_json, to_json
from pulse_server.database.connections import Database
from pulse_server.topics.rules import Owners, Replaced, Runs
from pulse_server.topics.store import PostgresTopicSettings
from tests.postgres.sessions import Connection

MINUTE = timedelta(minutes=1)
BACKOFF = Backoff(first=timedelta(seconds=2), factor=3, longest=timedelta(hours=6), jitter=0.2)
DECLARED = {"backoff": BACKOFF, "max_attempts": 8, "attempt_timeout": 2 * MINUTE, "max_crashes": 3}


COLUMNS = ("max_attempts", "backoff", "attempt_timeout", "max_crashes")


@pytest.fixture
async def settings(shared_dsn: str, connection: Connection) -> AsyncIterator[PostgresTopicSettings]:
    database = Database(shared_dsn)
    yield PostgresTopicSettings(database)
    await database.close()


async def override(settings: PostgresTopicSettings, topic: str, *reset: str, **entries: Any) -> Owners:
    await settings.set_topic(topic, entries, reset, "ada")
    return await owners(settings, topic)


async def owners(settings: PostgresTopicSettings, topic: str) -> Owners:
    (found, *_) = [*await settings.read_owners([topic]), Owners(topic)]
    return found


async def in_force(connection: Connection) -> Mapping[str, Entries]:
    """What the statements that end an attempt or insert a job read."""
    rows = await connection.fetch("SELECT * FROM pulse.topic_rules")
    found = {row["topic"]: {name: row[name] for name in COLUMNS if row[name] is not None} for row in rows}
    for entries in found.values():
        if "backoff" in entries:
            entries.update(from_json({"backoff": json.loads(entries["backoff"])}))
    return found


async def rows_of(connection: Connection) -> Mapping[tuple[str, str], Entries]:
    rows = await connection.fetch("SELECT topic, owner, entries FROM pulse.topic_settings")
    return {(row["topic"], row["owner"]): from_json(json.loads(row["entries"])) for row in rows}


async def listed(settings: PostgresTopicSettings, limit: int = 10, after: str = "") -> list[str]:
    return [each.topic for each in await settings.list_topics(limit=limit, after=after)]


async def test_declaration_is_read_back_as_it_was_given(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    await settings.declare_topics({"mail": DECLARED}, "worker-1")
    found = await owners(settings, "mail")

    assert (found.topic, found.runs, found.runs_by) == ("mail", DECLARED, "worker-1")
    assert found.runs_at is not None
    assert (found.operator, found.set_by, found.set_at) == ({}, "", None)
    assert await in_force(connection) == {"mail": DECLARED}
    assert await settings.read_rules() == {"mail": Runs(8, False, 2 * MINUTE)}


async def test_what_an_operator_sets_wins_entry_by_entry(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    await settings.declare_topics({"mail": DECLARED}, "worker-1")
    found = await override(settings, "mail", max_attempts=50)

    assert (found.operator, found.runs, found.set_by) == ({"max_attempts": 50}, DECLARED, "ada")
    assert found.set_at is not None
    assert await in_force(connection) == {"mail": {**DECLARED, "max_attempts": 50}}
    assert await settings.read_rules() == {"mail": Runs(50, True, 2 * MINUTE)}


async def test_declaration_does_not_change_what_an_operator_has_set(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    await override(settings, "mail", max_attempts=50, attempt_timeout=MINUTE)
    await settings.declare_topics({"mail": DECLARED}, "worker-1")
    assert await in_force(connection) == {"mail": {**DECLARED, "max_attempts": 50, "attempt_timeout": MINUTE}}


async def test_entry_that_an_operator_resets_is_the_declared_one_again(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    await settings.declare_topics({"mail": DECLARED}, "worker-1")
    await override(settings, "mail", max_attempts=50, attempt_timeout=MINUTE)
    found = await override(settings, "mail", "max_attempts", max_crashes=1)

    assert found.operator == {"attempt_timeout": MINUTE, "max_crashes": 1}
    assert await in_force(connection) == {"mail": {**DECLARED, "attempt_timeout": MINUTE, "max_crashes": 1}}
    found = await override(settings, "mail", "attempt_timeout", "max_crashes")
    assert found.operator == {}
    assert await in_force(connection) == {"mail": DECLARED}


async def test_topic_without_an_entry_any_more_is_gone(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    await settings.declare_topics({"mail": DECLARED}, "worker-1")
    await override(settings, "mail", max_attempts=50)
    await override(settings, "mail", "max_attempts")
    await settings.declare_topics({"mail": {}}, "worker-1")

    assert await listed(settings) == []
    assert await in_force(connection) == {}
    assert await settings.read_rules() == {}


async def test_retention_and_runs_are_set_and_reset_apart(settings: PostgresTopicSettings) -> None:
    found = await override(settings, "mail", keep_completed="forever", max_attempts=2)
    assert found.operator == {"keep_completed": "forever", "max_attempts": 2}

    found = await override(settings, "mail", "keep_completed")
    assert found.operator == {"max_attempts": 2}
    assert await listed(settings) == ["mail"]


async def test_newest_declaration_holds_and_the_one_before_is_returned(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    declared = await settings.declare_topics({"mail": DECLARED, "sms": DECLARED}, "old")
    assert declared.replaced == [Replaced("mail", {}, "", None), Replaced("sms", {}, "", None)]
    declared = await settings.declare_topics({"mail": {"max_attempts": 9}, "sms": DECLARED}, "new")

    (replaced,) = declared.replaced
    assert (replaced.topic, replaced.entries, replaced.by) == ("mail", DECLARED, "old")
    assert replaced.at is not None
    assert await in_force(connection) == {"mail": {"max_attempts": 9}, "sms": DECLARED}


async def test_worker_that_declares_what_holds_writes_no_row(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    await settings.declare_topics({"mail": DECLARED}, "first")
    before = await connection.fetch("SELECT ctid, xmin, * FROM pulse.topic_settings")
    rules = await connection.fetch("SELECT ctid, xmin, * FROM pulse.topic_rules")

    for worker in ("second", "first"):
        declared = await settings.declare_topics({"mail": DECLARED}, worker)
        assert (declared.topics, declared.replaced) == ((), ())
    assert await connection.fetch("SELECT ctid, xmin, * FROM pulse.topic_settings") == before
    assert await connection.fetch("SELECT ctid, xmin, * FROM pulse.topic_rules") == rules


async def test_limits_that_are_declared_again_write_nothing_while_the_worker_is_connected(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    limited = {"mail": {"running": 5, "max_attempts": 3}}
    await settings.declare_topics(limited, "w1")
    assert (await settings.declare_topics(limited, "w1")).topics == ()
    await connection.execute("UPDATE pulse.topic_settings SET missing_since = now()")
    assert (await settings.declare_topics(limited, "w1")).topics == ["mail"]
    assert not await connection.fetchval("SELECT missing_since FROM pulse.topic_settings")


async def test_how_jobs_run_is_stored_with_one_worker_and_limits_with_each(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    await settings.declare_topics({"mail": {"running": 5, "max_attempts": 3}}, "a")
    await settings.declare_topics({"mail": {"running": 5, "max_attempts": 3}}, "b")
    assert await rows_of(connection) == {
        ("mail", "a"): {"running": 5, "max_attempts": 3},
        ("mail", "b"): {"running": 5},
    }
    await settings.declare_topics({"mail": {"running": 5, "max_attempts": 4}}, "b")
    assert await rows_of(connection) == {
        ("mail", "a"): {"running": 5},
        ("mail", "b"): {"running": 5, "max_attempts": 4},
    }
    await settings.declare_topics({"mail": {"max_attempts": 5}, "sms": {"max_attempts": 5}}, "c")
    await settings.declare_topics({"sms": {}}, "d")
    assert await rows_of(connection) == {
        ("mail", "a"): {"running": 5},
        ("mail", "b"): {"running": 5},
        ("mail", "c"): {"max_attempts": 5},
    }
    assert await in_force(connection) == {"mail": {"max_attempts": 5}}


async def test_workers_and_operators_at_once_leave_one_declaration_that_is_in_force(
    settings: PostgresTopicSettings, shared_dsn: str, connection: Connection
) -> None:
    """None waits for another in a circle, and the rules are those of the rows."""
    topics = [f"topic-{n}" for n in range(20)]
    other = Database(shared_dsn)
    second = PostgresTopicSettings(other)

    async def declare(number: int) -> None:
        store = (settings, second)[number % 2]
        for attempts in range(1, 6):
            entries = {"running": number + 1, "max_attempts": attempts * 10 + number}
            order = topics if number % 3 else topics[::-1]
            await store.declare_topics(dict.fromkeys(order, entries), f"w{number}")

    async def operate(number: int) -> None:
        for topic in topics[:: 1 - 2 * (number % 2)]:
            await (settings, second)[number % 2].set_topic(topic, {"max_crashes": number + 1}, (), "ada")

    await asyncio.gather(*map(declare, range(6)), *map(operate, range(4)))
    await other.close()

    rows, rules = await rows_of(connection), await in_force(connection)
    for topic in topics:
        said = [entries for (of, owner), entries in rows.items() if of == topic and owner]
        assert len(said) == 6
        (runs,) = [entries["max_attempts"] for entries in said if "max_attempts" in entries]
        crashes = rows[topic, ""]["max_crashes"]
        assert rules[topic] == {"max_attempts": runs, "max_crashes": crashes}


async def test_change_keeps_what_this_server_cannot_read(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    """A server of a later version has stored it. One wrong value does not stop the settings of others."""
    later = {"running": 5, "rate": {"starts": 0, "period": 60}, "of_a_later_version": {"a": 1}}
    await override(settings, "mail", running=5)
    await settings.declare_topics({"print": {"running": 2}}, "worker-1")
    await connection.execute(
        "UPDATE pulse.topic_settings SET entries = $1 WHERE topic = 'mail'", json.dumps(later)
    )
    assert {each.topic: each.operator for each in await settings.read_owners()} == {
        "mail": {"running": 5},
        "print": {},
    }

    assert (await override(settings, "mail", "running", max_attempts=3)).operator == {"max_attempts": 3}
    stored = await connection.fetchval("SELECT entries FROM pulse.topic_settings WHERE topic = 'mail'")
    del later["running"]
    assert json.loads(stored) == {**later, "max_attempts": 3}
    assert (await override(settings, "mail", "rate", running=4)).operator == {"max_attempts": 3, "running": 4}


async def test_declaration_of_a_thousand_topics_is_one_transaction_of_few_statements(
    settings: PostgresTopicSettings, connection: Connection
) -> None:
    declared = {f"topic-{n}": {"running": 5, "max_attempts": 3} for n in range(1000)}
    assert len((await settings.declare_topics(declared, "w1")).topics) == 1000
    rows = await connection.fetch("SELECT DISTINCT xmin::text FROM pulse.topic_settings")
    rules = await connection.fetch("SELECT DISTINCT xmin::text FROM pulse.topic_rules")
    assert len(rows) == 1
    assert rows == rules


async def test_topics_of_both_kinds_are_listed_by_name(settings: PostgresTopicSettings) -> None:
    await override(settings, "b", keep_completed="forever")
    await settings.declare_topics({"a": DECLARED, "c": {"running": 5}}, "worker-1")

    assert await listed(settings, 2) == ["a", "b"]
    assert await listed(settings, 2, after="b") == ["c"]


async def test_rules_that_have_not_changed_are_not_read_again(settings: PostgresTopicSettings) -> None:
    await settings.declare_topics({"mail": DECLARED}, "worker-1")
    first = await settings.read_rules()
    assert await settings.read_rules() is first

    await override(settings, "mail", max_attempts=50)
    assert await settings.read_rules() is not first


async def test_database_refuses_settings_without_entries_of_their_own(connection: Connection) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(
            "INSERT INTO pulse.topic_settings (topic, owner, entries) VALUES ('mail', '', '[]')"
        )


def test_every_entry_that_is_stored_is_read_back() -> None:
    assert from_json(json.loads(json.dumps(to_json(DECLARED)))) == DECLARED
