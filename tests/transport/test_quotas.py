"""Slots for requests: bounded in total and per caller, with a queue that is bounded in length and time."""

import asyncio
from datetime import timedelta

import pytest

from pulse_server.base.errors import ResourceExhausted
from pulse_server.base.sharing import PendingBytes
from pulse_server.doors.quotas import Quota
from tests.eventually import PROMPT_SECONDS


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_caller_with_its_share_does_not_keep_others_out() -> None:
    quota = Quota(3)
    greedy = [asyncio.create_task(quota.enter("greedy")) for _ in range(5)]
    await settle()
    assert [task.done() for task in greedy] == [True, True, False, False, False]

    await quota.enter("other")

    quota.leave("greedy")
    await settle()
    assert [task.done() for task in greedy] == [True, True, True, False, False]
    for task in greedy:
        task.cancel()


async def test_slot_goes_to_the_next_in_line() -> None:
    quota = Quota(1)
    await quota.enter("a")
    waiting = [asyncio.create_task(quota.enter(name)) for name in "bc"]
    await settle()

    quota.leave("a")
    await settle()

    assert [task.done() for task in waiting] == [True, False]
    waiting[1].cancel()


async def test_one_that_gives_up_leaves_the_line_as_it_was() -> None:
    quota = Quota(1)
    await quota.enter("a")
    first, second = (asyncio.create_task(quota.enter(name)) for name in "bc")
    await settle()
    first.cancel()
    await settle()

    quota.leave("a")

    await asyncio.wait_for(second, PROMPT_SECONDS)
    assert not quota.is_wanted("b")
    assert not quota.try_enter("d"), "the only slot is taken once"


async def test_one_that_gives_up_when_its_turn_has_come_gives_the_slot_back() -> None:
    quota = Quota(1)
    await quota.enter("a")
    waiting = asyncio.create_task(quota.enter("b"))
    await settle()

    quota.leave("a")
    waiting.cancel()
    await settle()

    assert quota.try_enter("c")


async def test_line_that_takes_too_long_is_refused_with_a_sentence() -> None:
    quota = Quota(1, turn=timedelta(milliseconds=1))
    await quota.enter("a")

    with pytest.raises(ResourceExhausted, match="Try again"):
        await quota.enter("b")

    quota.leave("a")
    await quota.enter("b")


async def test_line_is_bounded_and_half_of_it_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.doors.quotas.REQUESTS_IN_LINE", 4)
    quota = Quota(1)
    await quota.enter("a")
    waiting = [asyncio.create_task(quota.enter("greedy")) for _ in range(2)]
    await settle()
    with pytest.raises(ResourceExhausted):
        await quota.enter("greedy")

    waiting += [asyncio.create_task(quota.enter(name)) for name in "bc"]
    await settle()
    with pytest.raises(ResourceExhausted):
        await quota.enter("d")

    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()


async def test_nothing_is_read_until_enough_was_answered() -> None:
    pending = PendingBytes(10)
    pending.add(25)
    waiting = asyncio.create_task(pending.wait_below_limit())
    pending.remove(15)
    await settle()
    assert not waiting.done()

    pending.remove(1)

    await asyncio.wait_for(waiting, PROMPT_SECONDS)


async def test_caller_that_has_least_is_next_however_long_others_wait() -> None:
    quota = Quota(4, of_one=2)
    for caller in "aabb":
        await quota.enter(caller)
    waiting = [asyncio.create_task(quota.enter(name)) for name in "aabbc"]
    await settle()

    quota.leave("a")
    await settle()

    assert [task.done() for task in waiting] == [False, False, False, False, True]
    for task in waiting:
        task.cancel()


async def test_room_that_a_call_does_not_need_goes_to_the_next() -> None:
    quota = Quota(10, of_one=10, each=4)
    await quota.enter("a")
    await quota.enter("b")
    waiting = asyncio.create_task(quota.enter("c"))
    await settle()
    assert not waiting.done()

    assert quota.keep("a", 1) == 1
    await asyncio.wait_for(waiting, PROMPT_SECONDS)

    quota.leave("a", 1)
    assert not quota.try_enter("d"), "two calls have four each"


async def test_call_that_needs_more_than_there_is_is_refused() -> None:
    quota = Quota(10, of_one=6, each=4)
    await quota.enter("a")
    assert quota.keep("a", 6) == 6
    await quota.enter("b")

    with pytest.raises(ResourceExhausted):
        quota.keep("b", 5)

    quota.leave("b")
    quota.leave("a", 6)
    assert quota.try_enter("c")


async def test_spare_room_is_for_callers_that_have_less_than_one_call() -> None:
    quota = Quota(12, of_one=12, each=4, spare=4)
    for _ in range(2):
        await quota.enter("greedy")
    waiting = asyncio.create_task(quota.enter("greedy"))
    await settle()
    assert not waiting.done()

    await quota.enter("other")
    quota.keep("other", 0)
    await settle()
    assert not waiting.done(), "what was given back is spare again"
    assert quota.try_enter("third")
    waiting.cancel()


async def test_only_room_that_a_waiting_caller_could_take_is_wanted() -> None:
    quota = Quota(4, of_one=2)
    for caller in "aab":
        await quota.enter(caller)
    waiting = asyncio.create_task(quota.enter("a"))
    await settle()
    assert (quota.is_wanted("a"), quota.is_wanted("b")) == (True, False)

    await quota.enter("b")
    other = asyncio.create_task(quota.enter("c"))
    await settle()
    assert (quota.is_wanted("a"), quota.is_wanted("b")) == (True, True)
    for task in (waiting, other):
        task.cancel()
