"""What the tests of dispatch share."""

from __future__ import annotations

import pytest

from tests.dispatch.fake_claims import FakeClaims
from tests.fakes.replica import Replica


@pytest.fixture
def claims() -> FakeClaims:
    return FakeClaims()


@pytest.fixture
def replica() -> Replica:
    return Replica()
