"""A pulsed for the programs of the documentation."""

from collections.abc import Iterator

import pytest

from tests.cli.serving import serving
from tests.postgres_cluster import Databases


@pytest.fixture(scope="session")
def address(databases: Databases, template_database: str) -> Iterator[str]:
    """Where a pulsed serves that lets everybody in. The pages tell themselves apart by their topics."""
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        yield address
