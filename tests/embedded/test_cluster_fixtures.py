"""The databases that the test suite hands out."""

from tests.embedded.observation import run_sql
from tests.postgres_cluster import Databases


def test_database_of_a_test_has_the_schema(database_dsn: str) -> None:
    assert run_sql(database_dsn, "SELECT to_regclass('pulse.jobs') IS NOT NULL")


def test_empty_database_has_no_schema(empty_database_dsn: str) -> None:
    assert run_sql(empty_database_dsn, "SELECT to_regclass('pulse.jobs') IS NULL")


def test_databases_of_one_template_are_apart(databases: Databases, template_database: str) -> None:
    with databases.temporary(template_database) as one, databases.temporary(template_database) as other:
        run_sql(one, "CREATE TABLE mine ()")
        assert run_sql(other, "SELECT to_regclass('mine') IS NULL")
