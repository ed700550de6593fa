import pytest

from tests.access.counted_checks import CountedChecks, count_checks


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> CountedChecks:
    return count_checks(monkeypatch)
