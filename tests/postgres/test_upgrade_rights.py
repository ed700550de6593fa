"""A role that serves without owning the schema goes on doing so after an upgrade."""

from __future__ import annotations

import os

import asyncpg
import pytest

from pulse_server.database.schema import Function, apply_migrations, known_migrations

# A role is one of the whole server, on which other processes of pytest-xdist run these tests, too.
ROLE = f"pulse_upgraded_{os.getpid()}"
NEXT = Function(
    "drop_completed_day_v2",
    """
    CREATE OR REPLACE FUNCTION pulse.drop_completed_day_v2(day date) RETURNS date LANGUAGE sql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT day $$;
    REVOKE EXECUTE ON FUNCTION pulse.drop_completed_day_v2 FROM PUBLIC;
    """,
)
FOR_ITS_CALLER = Function(NEXT.name, NEXT.sql.replace("SECURITY DEFINER", "").partition("REVOKE")[0])


@pytest.mark.parametrize("function", [NEXT, FOR_ITS_CALLER], ids=["for its owner", "for its caller"])
@pytest.mark.parametrize(("privileges", "may"), [("SELECT, INSERT, UPDATE, DELETE", True), ("SELECT", False)])
async def test_role_that_deletes_jobs_may_call_new_functions(
    database_dsn: str, privileges: str, may: bool, function: Function
) -> None:
    owner = await asyncpg.connect(database_dsn)
    await owner.execute(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE}")
    try:
        await owner.execute(
            f"""GRANT USAGE ON SCHEMA pulse TO {ROLE};
                GRANT {privileges} ON ALL TABLES IN SCHEMA pulse TO {ROLE}"""
        )

        await apply_migrations(database_dsn, known_migrations(), [function])

        allowed = await owner.fetchval(
            "SELECT has_function_privilege($1, 'pulse.drop_completed_day_v2(date)', 'EXECUTE')", ROLE
        )
        assert allowed is may
    finally:
        await owner.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")
        await owner.close()
