"""The fixtures of the system tests serve here, too."""

from tests.system.conftest import stage, table

__all__ = ["stage", "table"]
