"""A role that serves without owning the schema goes on doing so after an upgrade."""

from __future__ import annotations

import asyncpg
import pytest

from pulse_server.postgres.migrations.runner import apply_migrations
from tests.postgres.release_before_0011 import make_old_schema

ROLE = "pulse_upgraded"


@pytest.mark.parametrize(("privileges", "may"), [("SELECT, INSERT, UPDATE, DELETE", True), ("SELECT", False)])
async def test_role_that_deletes_jobs_may_make_and_drop_days_after_the_upgrade(
    empty_database_dsn: str, privileges: str, may: bool
) -> None:
    await make_old_schema(empty_database_dsn)
    owner = await asyncpg.connect(empty_database_dsn)
    await owner.execute(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE}")
    try:
        await owner.execute(
            f"""GRANT USAGE ON SCHEMA pulse TO {ROLE};
                GRANT {privileges} ON ALL TABLES IN SCHEMA pulse TO {ROLE}"""
        )

        await apply_migrations(empty_database_dsn)

        for function in ("add_completed_days(date, integer)", "drop_completed_day(date, timestamptz)"):
            signature = f"pulse.{function}"
            allowed = await owner.fetchval(
                "SELECT has_function_privilege($1, $2, 'EXECUTE')", ROLE, signature
            )
            assert allowed is may
    finally:
        await owner.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")
        await owner.close()
