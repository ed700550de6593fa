"""The fixtures of the system tests serve here, too."""

import pytest

from tests.system.conftest import stage, table

__all__ = ["stage", "table"]


# The first of them takes its minute whatever else runs beside it.
LONGEST = (
    "test_chaos.py",
    "test_failpoint_recoveries.py",
    "test_bad_days_outage.py",
    "test_bad_days_restarts.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests of all: at the end everybody would wait for them."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
