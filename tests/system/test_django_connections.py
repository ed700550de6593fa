"""A worker of a Django project goes on after its database was restarted, and holds few connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import pulse
from tests.cli.serving import serving
from tests.postgres_cluster import Databases
from tests.server.outage_postgres import OutagePostgres
from tests.system.django_project import PATIENCE_SECONDS, Project, until

PATIENCE = timedelta(seconds=PATIENCE_SECONDS)
CONCURRENCY = 4
JOBS = 32

# Of a connection that lasts as long as its thread.
FOR_EVER: dict[str, Any] = {"CONN_MAX_AGE": None}
CHECKED = {**FOR_EVER, "CONN_HEALTH_CHECKS": True}


@pytest.fixture(scope="module")
def address(databases: Databases, template_database: str) -> Iterator[str]:
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        yield address


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutagePostgres]:
    """The database of the project: another server than that of pulsed."""
    database = OutagePostgres(tmp_path_factory.mktemp("outage") / "cluster")
    database.start()
    yield database
    database.close()


def project_with(connections: dict[str, Any], tmp_path: Path, address: str, dsn: str) -> Project:
    project = Project(tmp_path, address, dsn, {"SHOP_CONNECTIONS": json.dumps(connections)})
    project.create_tables()
    return project


def run_jobs(p: pulse.SyncPulse, topic: str, order: int, count: int, seconds: float = 0) -> list[Any]:
    """Return the results. Raises JobFailed for a dead letter."""
    arguments = {"order": order, "seconds": seconds}
    # One attempt: each failure would be a dead letter.
    jobs = p.enqueue_many(topic, [arguments] * count, max_attempts=1)
    return p.gather(*jobs, timeout=PATIENCE)


@pytest.mark.parametrize("connections", [{}, FOR_EVER, CHECKED], ids=["default", "for ever", "checked"])
@pytest.mark.parametrize("topic", ["send-receipt", "asend-receipt", "send-receipt-apart"])
def test_no_job_after_a_restart_of_the_database_is_a_dead_letter(
    tmp_path: Path, address: str, database: OutagePostgres, topic: str, connections: dict[str, Any]
) -> None:
    project = project_with(connections, tmp_path, address, database.dsn)
    order = project.new_order()
    with project.worker("--concurrency", str(CONCURRENCY)), pulse.SyncPulse(address) as p:
        # All slots at once, so that each thread has a connection.
        run_jobs(p, topic, order, 2 * CONCURRENCY, seconds=0.2)
        database.stop()
        database.start()
        after = run_jobs(p, topic, order, JOBS)
        assert [result["receipts"] for result in after] == [1] * JOBS


@pytest.mark.parametrize(
    ("connections", "held"), [({}, 0), (FOR_EVER, CONCURRENCY)], ids=["default", "for ever"]
)
@pytest.mark.parametrize("topic", ["send-receipt", "asend-receipt"])
def test_worker_holds_at_most_a_connection_for_each_slot(
    tmp_path: Path,
    address: str,
    database: OutagePostgres,
    topic: str,
    connections: dict[str, Any],
    held: int,
) -> None:
    project = project_with(connections, tmp_path, address, database.dsn)
    order = project.new_order()

    def sessions() -> int:
        with psycopg.connect(database.dsn) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ).fetchone()
            assert found is not None
            return int(found[0])

    until(lambda: sessions() == 0, lambda: "others are connected")
    with project.worker("--concurrency", str(CONCURRENCY)), pulse.SyncPulse(address) as p:
        results = run_jobs(p, topic, order, 5 * CONCURRENCY, seconds=0.1)
        if held:
            assert len({result["session"] for result in results}) == held
        until(lambda: sessions() == held, lambda: f"{sessions()} sessions are open")
