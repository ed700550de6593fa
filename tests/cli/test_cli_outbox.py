"""`pulse outbox`: the functions in the database of an application, and refused jobs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from tests.cli.command_line import CommandLine
from tests.postgres_cluster import Databases

REFUSED = (
    "UPDATE pulse_outbox.jobs SET refused_at = clock_timestamp(), refusal = 'topic is bad' WHERE topic = $1"
)


@pytest.fixture
def shop(databases: Databases, alone: CommandLine) -> Iterator[str]:
    """The database of an application, with an outbox."""
    with databases.temporary() as dsn:
        alone.variables["PULSE_OUTBOX_DSN"] = dsn
        assert alone("outbox", "install").code == 0
        yield dsn


def ask(dsn: str, query: str, *values: Any) -> Any:
    """Return the rows of a statement as tuples."""

    async def run() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(dsn)
        try:
            return [tuple(row.values()) for row in await connection.fetch(query, *values)]
        finally:
            await connection.close()

    return asyncio.run(run())


def test_printed_statements_create_the_outbox(databases: Databases, alone: CommandLine) -> None:
    printed = alone("outbox", "install", "--print")
    with databases.temporary() as dsn:
        databases.run(_execute(dsn, printed.out))
        assert alone("outbox", "status", "--dsn", dsn, "-o", "json").json["waiting"] == 0


async def _execute(dsn: str, statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statements)
    await connection.close()


def test_second_install_keeps_the_jobs(shop: str, alone: CommandLine) -> None:
    ask(shop, "SELECT pulse_outbox.enqueue('mail', 'x')")
    assert alone("outbox", "install").code == 0
    status = alone("outbox", "status", "-o", "json").json
    assert (status["waiting"], status["refused"]) == (1, 0)
    assert status["oldest_at"] is not None
    assert "Waiting for a relay: 1, the oldest for" in alone("outbox", "status").out


def test_ids_are_uuids_of_version_7_that_carry_the_time(shop: str) -> None:
    ((made, now),) = ask(
        shop, "SELECT job_id, extract(epoch FROM now()) FROM pulse_outbox.enqueue_json('mail', '{}')"
    )
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert abs((made.int >> 80) / 1000 - float(now)) < 60


def test_many_jobs_are_stored_in_the_order_of_their_payloads(shop: str) -> None:
    ((ids,),) = ask(
        shop,
        "SELECT pulse_outbox.enqueue_many('mail', ARRAY['a', 'b', 'c']::bytea[], lane => 'all', "
        "keys => ARRAY['k1', NULL, 'k3'], lanes => ARRAY[NULL, 'own', NULL])",
    )
    stored = ask(shop, "SELECT id, payload, key, lane FROM pulse_outbox.jobs ORDER BY number")
    assert stored == [
        (ids[0], b"a", "k1", "all"),
        (ids[1], b"b", None, "own"),
        (ids[2], b"c", "k3", "all"),
    ]
    assert ask(shop, "SELECT pulse_outbox.enqueue_many('mail', '{}')") == [([],)]


@pytest.mark.parametrize("options", ["keys => '{k1}'", "lanes => '{x,y,z}'"])
def test_each_of_many_jobs_needs_its_key_and_lane(shop: str, options: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="an entry for each of the 2 payloads"):
        ask(shop, f"SELECT pulse_outbox.enqueue_many('mail', '{{a,b}}', {options})")


def test_empty_key_and_lane_are_not_given(shop: str) -> None:
    ask(shop, "SELECT pulse_outbox.enqueue('mail', 'x', key => '', lane => '')")
    assert ask(shop, "SELECT key, lane FROM pulse_outbox.jobs") == [(None, None)]


@pytest.mark.parametrize(
    "arguments",
    [
        "'mail', 'x', run_at => now(), delay => '1s'",
        "'mail', 'x', delay => '-1s'",
        "'mail', 'x', delay => '4000 days'",
        "'mail', 'x', start_within => '0'",
        "'mail', 'x', run_at => 'infinity'",
        "'mail', 'x', metadata => '[]'",
        "'mail', convert_to(repeat('x', 1048577), 'UTF8')",
        "'', 'x'",
        "NULL, 'x'",
        "'mail', NULL",
    ],
)
def test_values_that_no_relay_could_carry_are_refused_in_the_transaction(shop: str, arguments: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        ask(shop, f"SELECT pulse_outbox.enqueue({arguments})")
    assert refused.value.sqlstate in ("22023", "23514", "23502")


def test_role_that_may_enqueue_may_do_nothing_else(shop: str) -> None:
    async def attempt() -> list[str]:
        connection = await asyncpg.connect(shop)
        try:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("CREATE ROLE shop_of_outbox; SET LOCAL ROLE shop_of_outbox")
            denied = await _denied(connection, "SELECT pulse_outbox.enqueue('mail', 'x')")
            await connection.execute("RESET ROLE; GRANT USAGE ON SCHEMA pulse_outbox TO shop_of_outbox")
            await connection.execute("SET LOCAL ROLE shop_of_outbox")
            denied += await _denied(connection, "SELECT pulse_outbox.enqueue('mail', 'x')")
            await connection.execute(
                "RESET ROLE; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pulse_outbox TO shop_of_outbox"
            )
            await connection.execute("SET LOCAL ROLE shop_of_outbox")
            denied += await _denied(connection, "SELECT pulse_outbox.enqueue_json('mail', '{}')")
            denied += await _denied(connection, "SELECT * FROM pulse_outbox.jobs")
            await transaction.rollback()
            return denied
        finally:
            await connection.close()

    assert asyncio.run(attempt()) == ["schema", "function", "table"]


async def _denied(connection: asyncpg.Connection[Any], query: str) -> list[str]:
    """Return of what kind the object is that the role may not use; nothing if it may."""
    try:
        async with connection.transaction():
            await connection.fetch(query)
    except asyncpg.InsufficientPrivilegeError as error:
        return [str(error).split()[3]]
    return []


# ---------------------------------------------------------------- refused jobs


def test_refused_jobs_are_listed_retried_and_deleted(shop: str, alone: CommandLine) -> None:
    (first,), (second,), (_third,) = (
        ask(shop, "SELECT job_id::text FROM pulse_outbox.enqueue($1, 'x')", topic)[0] for topic in "aab"
    )
    ask(shop, REFUSED, "a")
    listed = alone("outbox", "list", "-o", "json").json
    assert [(job["id"], job["topic"], job["refusal"]) for job in listed] == [
        (first, "a", "topic is bad"),
        (second, "a", "topic is bad"),
    ]
    assert "topic is bad" in alone("outbox", "list").out

    assert alone("outbox", "retry", first).out == "Refused jobs to submit again: 1.\n"
    assert [row[0] for row in alone("outbox", "list", "-o", "plain").rows] == [second]
    assert alone("outbox", "delete", second, "-o", "json").json == [{"id": second}]
    status = alone("outbox", "status", "-o", "json").json
    assert (status["waiting"], status["refused"]) == (2, 0)
    assert alone("outbox", "list").err == "No job of the outbox was refused.\n"


def test_all_refused_jobs_are_deleted_only_after_a_question(shop: str, alone: CommandLine) -> None:
    ask(shop, "SELECT pulse_outbox.enqueue_many('a', ARRAY['x', 'y']::bytea[])")
    ask(shop, REFUSED, "a")
    refused = alone("outbox", "delete", "--all")
    assert refused.code == 2
    assert "Delete 2 refused jobs?" in refused.err
    assert alone("outbox", "delete", "--all", "--yes").out == "Refused jobs deleted: 2.\n"


def test_jobs_that_wait_are_neither_retried_nor_deleted(shop: str, alone: CommandLine) -> None:
    ((waiting,),) = ask(shop, "SELECT job_id::text FROM pulse_outbox.enqueue('a', 'x')")
    for verb in ("retry", "delete"):
        result = alone("outbox", verb, waiting)
        assert (result.code, "no refused job" in result.err) == (3, True)
    assert alone("outbox", "status", "-o", "json").json["waiting"] == 1


@pytest.mark.parametrize("arguments", [[], ["--all", "0199c0de-0000-7000-8000-000000000001"], ["mail"]])
def test_choice_of_refused_jobs_has_to_be_clear(alone: CommandLine, arguments: list[str]) -> None:
    assert alone("outbox", "retry", *arguments).code == 2


# ---------------------------------------------------------------- the DSN


def test_dsn_is_asked_for(alone: CommandLine) -> None:
    for verb in ("install", "relay", "status"):
        result = alone("outbox", verb)
        assert (result.code, "set PULSE_OUTBOX_DSN, or give --dsn" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("dsn", "code"),
    [
        ("postgresql://shop:hunter2@127.0.0.1:1/shop", 5),
        ("postgresql://shop:hunter2@127.0.0.1:port/shop", 2),
        ("postgresql://shop:hunter2@fish:hunter2@host/shop", 2),
        ("mysql://shop:hunter2@127.0.0.1/shop", 2),
    ],
)
def test_password_is_never_printed(alone: CommandLine, dsn: str, code: int) -> None:
    result = alone("outbox", "status", PULSE_OUTBOX_DSN=dsn)
    assert result.code == code
    assert "hunter2" not in result.out + result.err
    assert result.err.startswith("pulse: The ")


def test_database_without_an_outbox_says_how_to_create_it(
    empty_database_dsn: str, alone: CommandLine
) -> None:
    result = alone("outbox", "status", "--dsn", empty_database_dsn)
    assert (result.code, "pulse outbox install" in result.err) == (5, True)


def test_missing_driver_is_named(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    result = alone("outbox", "status", "--dsn", "postgresql://shop@127.0.0.1/shop")
    assert (result.code, "[cli,outbox]" in result.err) == (2, True)
