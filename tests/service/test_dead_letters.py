"""Groups of dead letters: concurrent callers share one count."""

from __future__ import annotations

import asyncio

import pytest

from pulse_server.service.dead_letters import DEAD_LETTER_COUNTS_REMEMBERED, DeadLetters
from pulse_server.service.samples import TOPICS_SAMPLE_AGE
from tests.fakes.clock import Seconds
from tests.fakes.dead_letters import InMemoryDeadLetterRepo
from tests.fakes.replica import Replica
from tests.fakes.store import failure


@pytest.fixture
def repo(replica: Replica) -> InMemoryDeadLetterRepo:
    return InMemoryDeadLetterRepo(replica.repo)


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def dead_letters(repo: InMemoryDeadLetterRepo, clock: Seconds) -> DeadLetters:
    return DeadLetters(repo, clock=clock)


async def bury(replica: Replica, group: str, error: str = "boom", topic: str = "email") -> None:
    claim = await replica.store.start(topic=topic)
    await replica.repo.fail_jobs([failure(claim, error, discard=True, error_group=group)])


async def test_one_count_serves_everyone_who_asks_at_about_the_same_time(
    replica: Replica, repo: InMemoryDeadLetterRepo, dead_letters: DeadLetters, clock: Seconds
) -> None:
    await bury(replica, "aa")
    samples = await asyncio.gather(*(dead_letters.groups(None, limit) for limit in (1, 5, 100)))
    await bury(replica, "bb")

    assert repo.counts == 1
    assert [len(sample.groups) for sample in samples] == [1, 1, 1]
    clock.advance(TOPICS_SAMPLE_AGE.total_seconds())
    assert len((await dead_letters.groups(None, 100)).groups) == 2


async def test_topics_are_counted_apart(
    replica: Replica, repo: InMemoryDeadLetterRepo, dead_letters: DeadLetters
) -> None:
    await bury(replica, "aa")
    await bury(replica, "aa", topic="sms")

    for topic, count in ((None, 2), ("email", 1), ("no-jobs", 0)):
        assert len((await dead_letters.groups(topic, 9)).groups) == count
    assert repo.counts == 3


async def test_counts_of_many_topics_do_not_fill_the_memory(
    repo: InMemoryDeadLetterRepo, dead_letters: DeadLetters
) -> None:
    many = DEAD_LETTER_COUNTS_REMEMBERED + 1
    for number in range(many):
        await dead_letters.groups(f"topic-{number}", 9)
    await dead_letters.groups(f"topic-{many - 1}", 9)
    assert repo.counts == many

    await dead_letters.groups("topic-0", 9)  # the one that was evicted
    assert repo.counts == many + 1


async def test_groups_that_were_not_asked_for_are_counted(
    replica: Replica, dead_letters: DeadLetters
) -> None:
    for number in range(5):
        await bury(replica, f"a{number}")

    sample = await dead_letters.groups(None, 2)

    assert (len(sample.groups), sample.left_out) == (2, 3)


async def test_groups_that_do_not_fit_into_an_answer_are_left_out(
    replica: Replica, dead_letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.service.paging.PAGE_BYTES", 10_000)
    for number in range(4):
        await bury(replica, f"a{number}", "x" * 1000)

    sample = await dead_letters.groups(None, 9)

    assert (len(sample.groups), sample.left_out) == (2, 2)
