"""One Postgres per test run, and a database for each test while it runs.

The run's first process owns the server, and passes its address to the workers of pytest-xdist. With
TEST_DB_URL set (a superuser's URL), that server is used instead.
"""

import gc
import logging
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.lent_databases import LentDatabases
from tests.patience import have_patience
from tests.postgres_cluster import Databases, ThrowawayCluster, set_secret

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in its background makes them ignore SIGINT, and every process that they
    # start as well: a worker that is stopped with SIGINT would not notice.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # The same for SIGHUP under nohup, which replaces the processes of a worker.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# How long an example takes depends on the machine. The examples are the same in each run.
settings.register_profile(
    "pulse", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pulse")

_CLUSTER = pytest.StashKey[ThrowawayCluster]()
_RECORD_FACTORY = logging.getLogRecordFactory()


def _cluster_dsn(config: pytest.Config) -> str:
    """Return the address of the run's server, starting it on first use."""
    if hasattr(config, "workerinput"):
        return str(config.workerinput["cluster_dsn"])
    if given := os.environ.get("TEST_DB_URL"):
        return given
    if _CLUSTER not in config.stash:
        config.stash[_CLUSTER] = ThrowawayCluster()
    return config.stash[_CLUSTER].dsn


def pytest_collection() -> None:
    """Disable the collector while thousands of tests are imported: it would scan them again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude them from later collections. What they compute at import is of the product's own timeouts."""
    gc.freeze()
    gc.enable()
    have_patience()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the address to a worker of pytest-xdist, which must not start a server of its own."""
    node.workerinput["cluster_dsn"] = _cluster_dsn(node.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (cluster := config.stash.get(_CLUSTER, None)) is not None:
        cluster.stop()


@pytest.fixture(autouse=True)
def log_records_as_before() -> Iterator[None]:
    """A worker adds the running job to the log records of its process: one of a fixture, before this."""
    yield
    logging.setLogRecordFactory(_RECORD_FACTORY)


@pytest.fixture(scope="session")
def cluster_dsn(pytestconfig: pytest.Config) -> str:
    """The address of the run's server: a maintenance database, as a superuser."""
    return _cluster_dsn(pytestconfig)


@pytest.fixture(scope="session")
def databases(cluster_dsn: str) -> Iterator[Databases]:
    """Creates databases, for the tests that need several."""
    databases = Databases(cluster_dsn)
    yield databases
    databases.close()


@pytest.fixture(scope="session")
def template_database(databases: Databases) -> Iterator[str]:
    """The address of a database with every migration applied. Copy it, never connect to it."""
    from pulse_server.database.schema import apply_migrations

    with databases.temporary() as dsn:
        databases.run(apply_migrations(dsn))
        databases.run(set_secret(dsn))
        yield dsn


@pytest.fixture(scope="session")
def lent_databases(databases: Databases, template_database: str) -> Iterator[LentDatabases]:
    """Lends databases to one test after the other."""
    lent = LentDatabases(databases, template_database)
    yield lent
    lent.close()


@pytest.fixture
def database_dsn(lent_databases: LentDatabases) -> Iterator[str]:
    """The address of a database for this test alone, with the schema in place and no job."""
    with lent_databases.lend() as dsn:
        yield dsn


@pytest.fixture
def empty_database_dsn(databases: Databases) -> Iterator[str]:
    """The address of a database for this test alone, without any schema."""
    with databases.temporary() as dsn:
        yield dsn
