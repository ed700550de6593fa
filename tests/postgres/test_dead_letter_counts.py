"""Groups of dead letters: concurrent callers share one count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pulse_server.base.sharing import TOPICS_SAMPLE_AGE
from pulse_server.database.connections import Database
from pulse_server.views.attention import DEAD_LETTER_COUNTS_REMEMBERED, DeadLetters
from tests.calls import Calls
from tests.fakes.clock import Seconds
from tests.fakes.store import Store, failure


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
async def dead_letters(shared_dsn: str, store: Store, clock: Seconds) -> AsyncIterator[DeadLetters]:
    database = Database(shared_dsn)
    yield DeadLetters(database, clock=clock)
    await database.close()


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch, dead_letters: DeadLetters) -> Calls:
    return Calls(monkeypatch, dead_letters, "list_dead_letter_groups")


async def bury(store: Store, group: str, error: str = "boom", topic: str = "email") -> None:
    claim = await store.start(topic=topic)
    await store.repo.fail_jobs([failure(claim, error, discard=True, error_group=group)])


async def test_one_count_serves_everyone_who_asks_at_about_the_same_time(
    store: Store, dead_letters: DeadLetters, counts: Calls, clock: Seconds
) -> None:
    await bury(store, "aa")
    samples = await asyncio.gather(*(dead_letters.groups(None, limit) for limit in (1, 5, 100)))
    await bury(store, "bb")

    assert counts.count == 1
    assert [len(sample.groups) for sample in samples] == [1, 1, 1]
    clock.advance(TOPICS_SAMPLE_AGE.total_seconds())
    assert len((await dead_letters.groups(None, 100)).groups) == 2


async def test_topics_are_counted_apart(store: Store, dead_letters: DeadLetters, counts: Calls) -> None:
    await bury(store, "aa")
    await bury(store, "aa", topic="sms")

    for topic, count in ((None, 2), ("email", 1), ("no-jobs", 0)):
        assert len((await dead_letters.groups(topic, 9)).groups) == count
    assert counts.count == 3


async def test_counts_of_many_topics_do_not_fill_the_memory(dead_letters: DeadLetters, counts: Calls) -> None:
    many = DEAD_LETTER_COUNTS_REMEMBERED + 1
    for number in range(many):
        await dead_letters.groups(f"topic-{number}", 9)
    await dead_letters.groups(f"topic-{many - 1}", 9)
    assert counts.count == many

    await dead_letters.groups("topic-0", 9)  # the one that was evicted
    assert counts.count == many + 1


async def test_groups_that_were_not_asked_for_are_counted(store: Store, dead_letters: DeadLetters) -> None:
    for number in range(5):
        await bury(store, f"a{number}")

    sample = await dead_letters.groups(None, 2)

    assert (len(sample.groups), sample.left_out) == (2, 3)


async def test_groups_that_do_not_fit_into_an_answer_are_left_out(
    store: Store, dead_letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.base.ids.PAGE_BYTES", 10_000)
    for number in range(4):
        await bury(store, f"a{number}", "x" * 1000)

    sample = await dead_letters.groups(None, 9)

    assert (len(sample.groups), sample.left_out) == (2, 2)
