"""A pulsed for the programs of the documentation."""

from collections.abc import Iterator

import pytest

from tests.cli.serving import serving
from tests.postgres_cluster import Databases


@pytest.fixture(scope="session")
def address(databases: Databases, template_database: str) -> Iterator[str]:
    """The address of a pulsed without users. Each page has topics of its own."""
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        yield address
