"""Runs for the tests of the checker, and the fixtures of the system tests."""

import pytest

from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.limits import MadeUpLimits
from faults.tests.made_up.runs import MadeUpRun
from tests.system.conftest import stage, table

__all__ = ["stage", "table"]


# The first of them takes a minute, however many processes run the tests.
LONGEST = (
    "test_chaos.py",
    "test_handlers.py",
    "test_workflows.py",
    "test_failpoint_recoveries.py",
    "test_bad_days_outage.py",
    "test_bad_days_restarts.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first: started last, they would run alone at the end."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture
def run() -> MadeUpRun:
    """A run in which nothing has happened yet."""
    return MadeUpRun()


@pytest.fixture
def job(run: MadeUpRun) -> MadeUpJob:
    return MadeUpJob(run)


@pytest.fixture
def made_up(run: MadeUpRun) -> MadeUpLimits:
    return MadeUpLimits(run)
