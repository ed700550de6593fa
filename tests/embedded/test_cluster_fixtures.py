"""The database fixtures of the test suite."""

import pytest

from tests.embedded.observation import run_sql
from tests.lent_databases import LentDatabases
from tests.postgres_cluster import Databases


def test_database_of_a_test_has_the_schema(database_dsn: str) -> None:
    assert run_sql(database_dsn, "SELECT to_regclass('pulse.jobs') IS NOT NULL")


def test_empty_database_has_no_schema(empty_database_dsn: str) -> None:
    assert run_sql(empty_database_dsn, "SELECT to_regclass('pulse.jobs') IS NULL")


def test_databases_of_one_template_are_apart(databases: Databases, template_database: str) -> None:
    with databases.temporary(template_database) as one, databases.temporary(template_database) as other:
        run_sql(one, "CREATE TABLE mine ()")
        assert run_sql(other, "SELECT to_regclass('mine') IS NULL")


def test_database_is_lent_again_without_what_was_left_in_it(
    databases: Databases, template_database: str
) -> None:
    lent = LentDatabases(databases, template_database)
    with lent.lend() as first:
        run_sql(first, "INSERT INTO pulse.barred_topics (topic) VALUES ('mail')")
    with lent.lend() as second:
        assert second == first
        assert run_sql(second, "SELECT count(*) = 0 FROM pulse.barred_topics")
    lent.close()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE public.mine ()",
        "ALTER TABLE pulse.jobs ADD COLUMN mine text",
        "DROP INDEX pulse.jobs_due",
        "CREATE OR REPLACE FUNCTION pulse.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "GRANT SELECT ON pulse.jobs TO PUBLIC",
        "ANALYZE pulse.schema_migrations",
        "UPDATE pulse.dispatch_control SET paused = true, paused_at = now()",
        "DELETE FROM pulse.schema_migrations",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 64', current_database()); END $$",
        "DO 'BEGIN PERFORM pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid(); END'",
    ],
)
def test_database_that_is_not_as_it_was_is_not_lent_again(
    databases: Databases, template_database: str, change: str
) -> None:
    lent = LentDatabases(databases, template_database)
    with lent.lend() as first:
        run_sql(first, change)
    with lent.lend() as second:
        assert second != first
    lent.close()
