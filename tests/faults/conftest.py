"""The fixtures of the system tests serve here, too."""

import pytest

from tests.system.conftest import stage, table

__all__ = ["stage", "table"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test of all, which takes its minute whatever else runs beside it."""
    items.sort(key=lambda item: item.path.name != "test_chaos.py")
