"""Limits of connections that are too low: they are named, with the number that is needed."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlsplit

import asyncpg
import pytest

from pulse_server.base import tuning
from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Database
from tests.server.pulsed_process import pulsed, run_pulsed
from tests.server.roles import role_in

SERVE = (
    "GRANT USAGE ON SCHEMA pulse TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pulse TO {role}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pulse TO {role}",
)
NEEDED = tuning.connections_of_a_process()


async def test_limit_of_the_role_is_named_at_the_start_and_by_the_check(database_dsn: str) -> None:
    async with role_in(database_dsn, *SERVE, "ALTER ROLE {role} CONNECTION LIMIT 9") as (role, dsn):
        _, printed, _ = await run_pulsed("check", DB_HOST=dsn, PULSE_GRPC_ADDR="127.0.0.1:0")
        async with pulsed(dsn) as server:
            (event,) = [line for line in server.events if line["event"] == "connection_limit_is_low"]

    assert (event["level"], event["limit"], event["needed"]) == ("warning", 9, NEEDED)
    statement = f"ALTER ROLE {role} CONNECTION LIMIT {NEEDED};"
    assert statement in event["hint"]
    assert f"The role {role} allows 9 connections and 0 are open" in event["hint"]
    assert statement in " ".join(printed.split())


async def test_limit_of_the_database_is_named(database_dsn: str) -> None:
    limit = "ALTER DATABASE {database} CONNECTION LIMIT 12"
    async with role_in(database_dsn, *SERVE, limit) as (_, dsn), pulsed(dsn) as server:
        (event,) = [line for line in server.events if line["event"] == "connection_limit_is_low"]

    assert event["limit"] == 12
    assert f"ALTER DATABASE {urlsplit(dsn).path[1:]} CONNECTION LIMIT" in event["hint"]


async def test_start_without_a_connection_left_names_the_number(database_dsn: str) -> None:
    async with role_in(database_dsn, *SERVE, "ALTER ROLE {role} CONNECTION LIMIT 1") as (_, dsn):
        taken = await asyncpg.connect(dsn, timeout=60)
        code, output, errors = await run_pulsed("check", DB_HOST=dsn)
        await taken.close(timeout=10)
        printed = " ".join(output.split())

    assert (code, errors) == (1, "")
    assert "The database takes no more connections: too many connections for role" in printed
    assert f"Each process of pulsed needs up to {NEEDED}." in printed


async def test_refused_connection_is_logged_once_with_the_number(
    database_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with role_in(database_dsn, *SERVE, "ALTER ROLE {role} CONNECTION LIMIT 1") as (_, dsn):
        database = Database(dsn)
        await database.hot.fetch("one", "SELECT 1")
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                with pytest.raises(Unavailable):
                    await database.reads.fetch("one", "SELECT 1")
        await database.close()
        await asyncio.sleep(0)

    (record,) = [record for record in caplog.records if record.message == "connection_refused"]
    assert record.__dict__["needed_by_each_process"] == NEEDED
    assert "too many connections for role" in record.__dict__["reason"]


async def test_limit_that_is_high_enough_is_not_mentioned(database_dsn: str) -> None:
    limit = f"ALTER ROLE {{role}} CONNECTION LIMIT {NEEDED}"
    async with role_in(database_dsn, *SERVE, limit) as (_, dsn), pulsed(dsn) as server:
        assert "connection_limit_is_low" not in server.log
