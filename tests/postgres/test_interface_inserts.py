"""Jobs that the interface stores are as jobs that a server stores."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pulse_server.database.connections import Database
from tests.fakes.store import Store
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.interface import InterfaceRepo
from tests.postgres.sessions import Connection
from tests.postgres.test_store_insert import *  # noqa: F403 - its tests, with the store below
from tests.postgres.test_store_unique import *  # noqa: F403

# No caller can ask for these jobs: of a schedule, live and replaced, with a period of no time.
del test_job_comes_back_as_it_was_submitted  # noqa: F821
del test_retried_job_that_is_replaced_has_the_attempts_of_the_new_one_ahead  # noqa: F821
del test_throttled_job_that_still_waits_has_no_second_one_after_the_period  # noqa: F821


@pytest.fixture
async def store(shared_dsn: str, connection: Connection) -> AsyncIterator[Store]:
    database = Database(shared_dsn)
    yield Store(InterfaceRepo(database, connection), PostgresTimeMachine(connection))
    await database.close()
