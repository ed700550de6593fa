"""What the tests of dispatch share."""

import pytest

from tests.dispatch.fake_claims import FakeClaims


@pytest.fixture
def claims() -> FakeClaims:
    return FakeClaims()
