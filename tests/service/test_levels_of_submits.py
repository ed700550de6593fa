"""Which levels a change is announced with. What has none is looked for as a whole. ADR-0055"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable

import pytest

from pulse_server.jobs.rules import Level
from pulse_server.work.jobs import Jobs
from pulse_server.work.submissions import Submissions
from tests.fakes.dispatch import RecordingRoster
from tests.fakes.replica import StoredReplica, stored_replica
from tests.fakes.store import a_job


class LevelRoster(RecordingRoster):
    """Keeps the levels it was woken for."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: list[set[tuple[str, int]]] = []

    def wake(
        self, topics: Collection[str] | None, levels: Iterable[Level] = (), jobs: int = 1
    ) -> Collection[str]:
        levels = list(levels)
        self.levels.append({level[:2] for level in levels})
        return super().wake(topics, levels, jobs)


@pytest.fixture
def roster() -> LevelRoster:
    return LevelRoster()


@pytest.fixture
async def replica(database_dsn: str, roster: LevelRoster) -> AsyncIterator[StoredReplica]:
    async with stored_replica(database_dsn, roster) as replica:
        yield replica


async def test_submit_wakes_with_the_levels_of_its_jobs(replica: StoredReplica, roster: LevelRoster) -> None:
    submissions = Submissions(replica.repo, replica.hub, replica.publisher)

    await submissions.submit([a_job(priority=2), a_job("sms"), a_job("sms", priority=9)])

    assert roster.levels == [{("email", 2), ("sms", 0), ("sms", 9)}]


async def test_topic_of_a_repeated_submit_has_no_level(replica: StoredReplica, roster: LevelRoster) -> None:
    """The first may be as old as it likes."""
    submissions = Submissions(replica.repo, replica.hub, replica.publisher)
    job = a_job()
    await submissions.submit([job])

    await submissions.submit([job, a_job(priority=5), a_job("sms")])

    assert roster.woken[-1] == {"email", "sms"}
    assert roster.levels[-1] == {("sms", 0)}


async def test_release_and_redrive_wake_without_levels(replica: StoredReplica, roster: LevelRoster) -> None:
    claim = await replica.store.start()

    await replica.claims.release([claim])

    assert (roster.woken[-1], roster.levels[-1]) == ({"email"}, set())


async def test_new_priority_makes_the_next_claim_a_full_look(
    replica: StoredReplica, roster: LevelRoster
) -> None:
    floors = roster.floors
    job = a_job()
    await replica.store.submit(job)
    floors.claimed(["email"], [], floors.claim_begins(["email"]), None, is_filled=False)
    assert floors.levels(["email"]) == []

    await Jobs(replica.repo, replica.publisher).prioritize(job.id, 5)

    assert floors.levels(["email"]) is None
