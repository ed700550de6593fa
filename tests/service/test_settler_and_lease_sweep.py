"""The settler keeps up with the claims, and the sweep walks all unfinished jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.base.ids import PageKey
from pulse_server.jobs.leases import Restoration
from pulse_server.work import attempts
from pulse_server.work.attempts import LeaseSweep, Settler

BACK = attempts.SETTLE_MARGIN + timedelta(seconds=1)
FULL = attempts.SETTLE_BATCH
PAGE = attempts.SWEEP_BATCH


class FakeLeaseChecks:
    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[int] = []
        self.takes = 0.0
        self.fails = False
        self.looks: list[timedelta | None] = []
        self.pages: list[Restoration] = []
        self.walked: list[PageKey | None] = []

    async def settle_claims(self, limit: int, looking_back: timedelta | None = None) -> int:
        assert limit == FULL
        if self.fails:
            raise Unavailable("The database is away.")
        self.looks.append(looking_back)
        self.now += self.takes
        return self.due.pop(0) if self.due else 0

    async def restore_lease_checks(self, *, after: PageKey | None, limit: int) -> Restoration:
        assert limit == PAGE
        self.walked.append(after)
        self.now += self.takes
        return self.pages.pop(0)


@pytest.fixture
def repo() -> FakeLeaseChecks:
    return FakeLeaseChecks()


@pytest.fixture
def settler(repo: FakeLeaseChecks) -> Settler:
    return Settler(repo, clock=lambda: repo.now)


async def test_settler_goes_on_while_it_finds_full_batches(repo: FakeLeaseChecks, settler: Settler) -> None:
    repo.due = [FULL, FULL, 3]

    await settler.tick()

    assert len(repo.looks) == 3


async def test_settler_looks_at_everything_first_and_every_so_often(
    repo: FakeLeaseChecks, settler: Settler
) -> None:
    for _ in range(61):
        await settler.tick()
        repo.now += 1

    assert repo.looks == [None, *[BACK] * 59, None]


async def test_look_at_everything_that_takes_long_is_rare(repo: FakeLeaseChecks, settler: Settler) -> None:
    repo.takes = 10.0
    await settler.tick()
    repo.takes = 0.0
    for _ in range(180):
        await settler.tick()
        repo.now += 1

    assert repo.looks.count(None) == 1


async def test_settler_looks_back_to_its_last_success(repo: FakeLeaseChecks, settler: Settler) -> None:
    await settler.tick()
    repo.fails = True
    for _ in range(10):
        repo.now += 1
        with pytest.raises(Unavailable):
            await settler.tick()
    repo.fails = False

    await settler.tick()

    assert repo.looks == [None, timedelta(seconds=10) + attempts.SETTLE_MARGIN]


async def test_sweep_walks_page_after_page_and_starts_over(
    repo: FakeLeaseChecks, caplog: pytest.LogCaptureFixture
) -> None:
    reached = PageKey(datetime(2030, 1, 1, tzinfo=UTC), "id")
    repo.pages = [Restoration(PAGE, reached), Restoration(7, reached, restored=2), Restoration()]
    repo.takes = 0.01
    sweep = LeaseSweep(repo, clock=lambda: repo.now)

    pauses = [await sweep.tick() for _ in range(3)]

    assert repo.walked == [None, reached, None]
    assert pauses[0].total_seconds() == pytest.approx(0.09)
    assert pauses[1:] == [attempts.SWEEP_INTERVAL] * 2
    assert [record.message for record in caplog.records] == ["lease_checks_restored"]
