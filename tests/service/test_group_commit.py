"""Group commit: requests that arrive while a statement is in flight share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.base.sharing import GroupCommit
from tests.left_over import left_over

POISON = "poison"


class StagedCommit:
    """A commit that waits, while `is_open` is unset, until the test sets it."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.is_open = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, items: list[Any]) -> Sequence[str]:
        self.batches.append(items)
        await self.is_open.wait()
        if self.error is not None:
            raise self.error
        if POISON in items:
            raise ValueError("cannot be stored")
        return [f"answer to {item}" for item in items]


@pytest.fixture
def commit() -> StagedCommit:
    return StagedCommit()


async def settle() -> None:
    """Let every task run until only the test can wake it."""
    for _ in range(10):
        await asyncio.sleep(0)


async def adding(commits: GroupCommit[Any, str], *requests: list[Any]) -> list[asyncio.Task[Sequence[str]]]:
    tasks = []
    for request in requests:
        tasks.append(asyncio.create_task(commits.add(request)))
        await settle()
    return tasks


async def test_lone_request_leaves_at_once(commit: StagedCommit) -> None:
    (request,) = await adding(GroupCommit(commit, slots=1, limit=10), ["a"])

    assert commit.batches == [["a"]]
    commit.is_open.set()
    assert await request == ["answer to a"]


async def test_requests_during_a_commit_make_one_more_commit(commit: StagedCommit) -> None:
    requests = await adding(GroupCommit(commit, slots=1, limit=100), ["a"], ["b"], ["c", "d"], ["e"])

    commit.is_open.set()
    await asyncio.gather(*requests)

    assert commit.batches == [["a"], ["b", "c", "d", "e"]]


async def test_each_request_gets_its_own_answers_in_order(commit: StagedCommit) -> None:
    requests = await adding(GroupCommit(commit, slots=1, limit=100), ["a"], ["b", "c"], ["d"])

    commit.is_open.set()

    assert [list(await request) for request in requests] == [
        ["answer to a"],
        ["answer to b", "answer to c"],
        ["answer to d"],
    ]


async def test_no_answer_comes_before_the_commit(commit: StagedCommit) -> None:
    requests = await adding(GroupCommit(commit, slots=1, limit=100), ["a"], ["b"])

    assert not any(request.done() for request in requests)
    commit.is_open.set()
    await asyncio.gather(*requests)


async def test_statement_holds_no_more_than_the_limit(commit: StagedCommit) -> None:
    requests = await adding(
        GroupCommit(commit, slots=1, limit=3), ["a"], ["b", "c"], ["d", "e"], ["f"], list("ghijk"), ["l"]
    )

    commit.is_open.set()
    await asyncio.gather(*requests)

    # A request is never split: one that is larger than the limit goes alone.
    assert commit.batches == [["a"], ["b", "c"], ["d", "e", "f"], list("ghijk"), ["l"]]


async def test_no_more_commits_are_in_flight_than_there_are_lanes(commit: StagedCommit) -> None:
    requests = await adding(GroupCommit(commit, slots=2, limit=100), ["a"], ["b"], ["c"], ["d"])

    assert commit.batches == [["a"], ["b"]]
    commit.is_open.set()
    await asyncio.gather(*requests)
    assert commit.batches == [["a"], ["b"], ["c", "d"]]


async def test_lane_is_free_again_after_its_work(commit: StagedCommit) -> None:
    commits = GroupCommit(commit, slots=1, limit=100)
    commit.is_open.set()

    for number in range(3):
        assert await commits.add([number]) == [f"answer to {number}"]


async def test_poison_is_refused_alone(commit: StagedCommit) -> None:
    first, before, poisoned, after = await adding(
        GroupCommit(commit, slots=1, limit=100), ["a"], ["b"], [POISON], ["c"]
    )

    commit.is_open.set()

    assert await first == ["answer to a"]
    assert await before == ["answer to b"]
    assert await after == ["answer to c"]
    with pytest.raises(ValueError, match="cannot be stored"):
        await poisoned


async def test_lane_survives_poison(commit: StagedCommit) -> None:
    commits = GroupCommit(commit, slots=1, limit=100)
    commit.is_open.set()

    with pytest.raises(ValueError, match="cannot be stored"):
        await commits.add([POISON])
    assert await commits.add(["a"]) == ["answer to a"]


async def test_unavailable_is_raised_to_every_caller_of_the_statement_after_one_attempt(
    commit: StagedCommit,
) -> None:
    requests = await adding(GroupCommit(commit, slots=1, limit=100), ["a"], ["b"], ["c"])
    commit.error = Unavailable("The database did not answer.")

    commit.is_open.set()
    outcomes = await asyncio.gather(*requests, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
    assert commit.batches == [["a"], ["b", "c"]]


async def test_commits_go_on_after_an_outage(commit: StagedCommit) -> None:
    commits = GroupCommit(commit, slots=1, limit=100)
    commit.is_open.set()
    commit.error = Unavailable("The database did not answer.")
    with pytest.raises(Unavailable):
        await commits.add(["a"])

    commit.error = None

    assert await commits.add(["b"]) == ["answer to b"]


@pytest.mark.parametrize("canceled", [0, 1], ids=["in flight", "waiting"])
async def test_canceled_caller_affects_no_other(commit: StagedCommit, canceled: int) -> None:
    commits = GroupCommit(commit, slots=1, limit=100)
    requests = await adding(commits, ["a"], ["b"], ["c"])

    requests[canceled].cancel()
    await settle()
    commit.is_open.set()
    outcomes = await asyncio.gather(*requests, return_exceptions=True)

    answers = [["answer to a"], ["answer to b"], ["answer to c"]]
    for index, outcome in enumerate(outcomes):
        if index == canceled:
            assert isinstance(outcome, asyncio.CancelledError)
        else:
            assert outcome == answers[index]
    assert await commits.add(["d"]) == ["answer to d"]


async def test_outage_with_a_caller_gone_still_reaches_the_others(commit: StagedCommit) -> None:
    requests = await adding(GroupCommit(commit, slots=1, limit=100), ["a"], ["b"], ["c"])
    requests[1].cancel()
    await settle()
    commit.error = Unavailable("The database did not answer.")

    commit.is_open.set()
    outcomes = await asyncio.gather(*requests, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [Unavailable, asyncio.CancelledError, Unavailable]


async def test_request_that_failed_is_forgotten_at_once(commit: StagedCommit) -> None:
    """During an outage there are many of them, each with its payloads."""

    async def fail() -> None:
        with pytest.raises(Unavailable):
            await GroupCommit(commit, slots=1, limit=10).add(["a"])

    commit.is_open.set()
    commit.error = Unavailable("The database is away.")
    with left_over() as types:
        await asyncio.create_task(fail())
        commit.error = None
        commit.batches.clear()

    assert "Unavailable" not in types


async def test_requests_share_a_statement_only_while_their_bytes_fit(commit: StagedCommit) -> None:
    commits = GroupCommit(commit, slots=1, limit=100, size_of=len, most_bytes=5)
    requests = await adding(commits, ["a"], ["bb", "b"], ["cc"], ["d"], ["e" * 9], ["f"])

    commit.is_open.set()
    await asyncio.gather(*requests)

    assert commit.batches == [["a"], ["bb", "b", "cc"], ["d"], ["e" * 9], ["f"]]


async def test_one_request_is_split_by_its_bytes(commit: StagedCommit) -> None:
    commits = GroupCommit(commit, slots=1, limit=3, size_of=len, most_bytes=5)
    commit.is_open.set()
    items = ["aaa", "bb", "c", "d" * 9, "e", "f", "g", "h"]

    assert await commits.add_all(items) == [f"answer to {item}" for item in items]

    assert commit.batches == [["aaa", "bb"], ["c"], ["d" * 9], ["e", "f", "g"], ["h"]]


async def test_small_request_does_not_wait_for_large_ones(commit: StagedCommit) -> None:
    commits = GroupCommit(commit, slots=2, limit=100, size_of=len, most_bytes=16)
    requests = await adding(commits, ["a" * 16], ["b" * 16], ["c" * 16], ["d"])
    assert commit.batches == [["a" * 16], ["d"]]

    commit.is_open.set()
    await asyncio.gather(*requests)

    assert sorted(commit.batches) == [["a" * 16], ["b" * 16], ["c" * 16], ["d"]]
