from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.system.stage import Stage, table_of
from tests.transport.jobs_table import JobsTable


@pytest.fixture
def stage(database_dsn: str, tmp_path: Path) -> Iterator[Stage]:
    """A database and processes on it. Those that still run at the end are killed."""
    stage = Stage(database_dsn, tmp_path)
    yield stage
    stage.close()


@pytest.fixture
async def table(stage: Stage) -> AsyncIterator[JobsTable]:
    table = await table_of(stage.dsn)
    yield table
    await table.connection.close()
