from __future__ import annotations

import asyncio
from typing import Any

from pulse.wire.streams import Coalescer


class Wire:
    """Stands for the calls: each batch waits until the test lets it through."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_pass = asyncio.Semaphore(0)

    async def send(self, batch: list[int]) -> None:
        self.batches.append(batch)
        await self.may_pass.acquire()


def coalescer(
    wire: Wire, in_flight: int = 1, most_items: int = 100, most_bytes: int = 1000
) -> Coalescer[int]:
    return Coalescer(
        wire.send,
        size_of=lambda item: item,
        most_items=most_items,
        most_bytes=most_bytes,
        in_flight=in_flight,
    )


async def spin() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_lone_item_leaves_at_once_and_the_rest_follows_together() -> None:
    wire = Wire()
    batches = coalescer(wire)
    batches.add(1)
    await spin()
    batches.add(2)
    batches.add(3)
    await spin()
    assert wire.batches == [[1]]
    wire.may_pass.release()
    await spin()
    assert wire.batches == [[1], [2, 3]]
    wire.may_pass.release()
    await batches.flushed()
    assert len(batches) == 0


async def test_items_of_one_instant_share_a_batch() -> None:
    wire = Wire()
    batches = coalescer(wire, in_flight=2)
    for number in range(5):
        batches.add(number)
    await spin()
    assert wire.batches == [[0, 1, 2, 3, 4]]
    await batches.close()


async def test_batch_is_cut_by_count_and_by_size_but_never_empty() -> None:
    wire = Wire()
    batches = coalescer(wire, in_flight=10, most_items=2, most_bytes=10)
    for size in (1, 1, 1, 99, 9, 9):
        batches.add(size)
    await spin()
    assert wire.batches == [[1, 1], [1], [99], [9], [9]]
    await batches.close()


async def test_no_more_calls_than_allowed_are_in_flight() -> None:
    wire = Wire()
    batches = coalescer(wire, in_flight=2, most_items=1)
    for number in range(5):
        batches.add(number)
    await spin()
    assert wire.batches == [[0], [1]]
    assert await batches.close() == [2, 3, 4]


async def test_item_that_comes_while_the_last_sender_ends_is_sent() -> None:
    sent: list[int] = []

    async def send(batch: list[int]) -> None:
        sent.extend(batch)

    batches = Coalescer(send, size_of=lambda _: 1, most_items=100, most_bytes=1000, in_flight=1)
    batches.add(1)
    # Runs in the same pass of the loop as the sender, after it has ended and before its callbacks.
    asyncio.get_running_loop().call_soon(batches.add, 2)
    await spin()
    assert sent == [1, 2]


async def test_item_that_is_to_be_sent_later_holds_nothing_up_and_is_waited_for() -> None:
    wire = Wire()
    batches = coalescer(wire)
    batches.add_later(1, 0.01)
    batches.add(2)
    for _ in range(2):
        wire.may_pass.release()
    await batches.flushed()
    assert wire.batches == [[2], [1]]


async def test_item_that_was_to_be_sent_later_is_returned_by_a_close() -> None:
    batches = coalescer(Wire())
    batches.add_later(1, 60)
    assert await batches.close() == [1]


async def test_batches_do_not_pass_through_the_task_factory_of_the_event_loop() -> None:
    made: list[object] = []

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    loop = asyncio.get_running_loop()
    wire = Wire()
    batches = coalescer(wire)
    loop.set_task_factory(make_task)
    try:
        batches.add(1)
        batches.add_later(2, 0)
        wire.may_pass.release()
        wire.may_pass.release()
        await batches.flushed()
    finally:
        loop.set_task_factory(None)

    assert wire.batches == [[1], [2]]
    assert made == []
