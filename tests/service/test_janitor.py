"""The janitor: small steps with pauses, and a walk that starts over now and then."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta

import pytest

from pulse_server.domain.errors import Unavailable
from pulse_server.domain.jobs import PageKey
from pulse_server.domain.policies import Kept
from pulse_server.domain.status import JobStatus
from pulse_server.repos.retention import Sweep
from pulse_server.service.janitor import RETENTION_PAUSE, RETENTION_SHARE, RETENTION_START_OVER, Janitor
from pulse_server.telemetry.metrics import Metrics
from tests.fakes.clock import Seconds
from tests.fakes.replica import Replica
from tests.fakes.retention import InMemoryRetentionRepo

DAY = timedelta(days=1)
INTERVAL = timedelta(minutes=5)
KEPT = {JobStatus.COMPLETED: 7 * DAY, JobStatus.DEAD_LETTERED: 30 * DAY}
BATCH = 2


class WatchedRetentionRepo(InMemoryRetentionRepo):
    """Records where each step begins, and lets each take a given time."""

    def __init__(self, replica: Replica, seconds: Seconds) -> None:
        super().__init__(replica.repo)
        self._seconds = seconds
        self.takes = 0.0
        self.steps: list[PageKey | None] = []

    async def delete_expired(
        self, kept: Mapping[JobStatus, Kept], *, after: PageKey | None, limit: int
    ) -> Sweep:
        self.steps.append(after)
        self._seconds.advance(self.takes)
        return await super().delete_expired(kept, after=after, limit=limit)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.service.janitor.RETENTION_BATCH", BATCH)


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def repo(replica: Replica, seconds: Seconds) -> WatchedRetentionRepo:
    return WatchedRetentionRepo(replica, seconds)


@pytest.fixture
def metrics(replica: Replica) -> Metrics:
    return replica.metrics


@pytest.fixture
def janitor(repo: WatchedRetentionRepo, seconds: Seconds, replica: Replica) -> Janitor:
    return Janitor(repo, replica.publisher, KEPT, interval=INTERVAL, clock=seconds)


async def add_finished(replica: Replica, *days_ago: int, status: JobStatus = JobStatus.COMPLETED) -> None:
    for days in days_ago:
        job_id = await replica.store.reach(status)
        await replica.store.time.age(job_id, submitted=days * DAY, finished=days * DAY)


async def run_pass(janitor: Janitor) -> None:
    while await janitor.tick() < INTERVAL:
        continue


async def test_pass_rests_after_each_step_and_ends_at_jobs_that_are_too_young(
    replica: Replica, janitor: Janitor, repo: WatchedRetentionRepo
) -> None:
    await add_finished(replica, 20, 19, 18, 17, 16, 1)

    rests = [await janitor.tick() for _ in range(3)]

    assert rests == [RETENTION_PAUSE, RETENTION_PAUSE, INTERVAL]
    assert len(replica.repo.jobs) == 1


async def test_statements_take_no_more_than_their_share_of_the_time(
    replica: Replica, janitor: Janitor, repo: WatchedRetentionRepo
) -> None:
    await add_finished(replica, 20, 19, 18)
    repo.takes = 2.0

    rest = await janitor.tick()
    assert repo.takes / (repo.takes + rest.total_seconds()) == RETENTION_SHARE


async def test_next_pass_goes_on_where_the_last_one_ended(
    replica: Replica, janitor: Janitor, repo: WatchedRetentionRepo
) -> None:
    await add_finished(replica, 20, 19, 18, status=JobStatus.DEAD_LETTERED)
    await run_pass(janitor)
    looked_at = len(repo.steps)

    await run_pass(janitor)

    assert len(repo.steps) == looked_at + 1
    assert repo.steps[-1] is not None


async def test_job_that_was_alive_when_it_was_passed_is_found_when_the_walk_starts_over(
    replica: Replica, janitor: Janitor, repo: WatchedRetentionRepo, seconds: Seconds
) -> None:
    claim = await replica.store.start()
    await replica.store.time.age(claim.job_id, submitted=20 * DAY)
    await add_finished(replica, 19, status=JobStatus.DEAD_LETTERED)
    await run_pass(janitor)
    await replica.repo.complete_jobs([claim])
    await replica.store.time.age(claim.job_id, submitted=21 * DAY, finished=8 * DAY)

    await run_pass(janitor)
    assert claim.job_id in replica.repo.jobs

    seconds.advance(RETENTION_START_OVER.total_seconds())
    await run_pass(janitor)  # the last one that goes on
    await run_pass(janitor)
    assert None in repo.steps[-2:]
    assert claim.job_id not in replica.repo.jobs


async def test_pass_is_left_to_the_replica_that_is_at_it(
    replica: Replica, janitor: Janitor, repo: WatchedRetentionRepo
) -> None:
    await add_finished(replica, 20, 19, 18)
    repo.is_taken = True

    assert await janitor.tick() == INTERVAL
    assert len(replica.repo.jobs) == 3


async def test_outage_in_the_middle_costs_no_ground(
    replica: Replica, janitor: Janitor, repo: WatchedRetentionRepo
) -> None:
    await add_finished(replica, 20, 19, 18, 17)
    await janitor.tick()
    replica.repo.is_away = True
    with pytest.raises(Unavailable):
        await janitor.tick()
    replica.repo.is_away = False

    await run_pass(janitor)

    assert repo.steps[1] == repo.steps[2]
    assert not replica.repo.jobs


async def test_pass_logs_its_deletions_once_and_counts_them(
    replica: Replica, janitor: Janitor, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    await add_finished(replica, 20, 19, 18)
    await add_finished(replica, 40, status=JobStatus.DEAD_LETTERED)

    with caplog.at_level(logging.INFO):
        await run_pass(janitor)
        await run_pass(janitor)

    (logged,) = [vars(record) for record in caplog.records if record.message == "jobs_deleted"]
    assert (logged["COMPLETED"], logged["DEAD_LETTERED"]) == (3, 1)
    assert metrics.deleted.values == {("COMPLETED", "retention"): 3, ("DEAD_LETTERED", "retention"): 1}


async def test_one_statement_an_interval_is_sent_if_everything_is_kept_forever(
    replica: Replica, repo: WatchedRetentionRepo
) -> None:
    """A topic may have a policy, which the statement reads."""
    assert await Janitor(repo, replica.publisher, {}, interval=INTERVAL).tick() == INTERVAL
    assert repo.steps == [None]
