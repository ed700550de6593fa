"""A server's store, line, roster and publisher, in memory."""

from __future__ import annotations

import pytest

from tests.fakes.replica import Replica


@pytest.fixture
def replica() -> Replica:
    return Replica()
