"""The fixtures of the system tests are used here as well."""

import pytest

from tests.system.conftest import stage, table

__all__ = ["stage", "table"]


# The first of them takes a minute, however many processes run the tests.
LONGEST = (
    "test_chaos.py",
    "test_handlers.py",
    "test_failpoint_recoveries.py",
    "test_bad_days_outage.py",
    "test_bad_days_restarts.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first: started last, they would run alone at the end."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
