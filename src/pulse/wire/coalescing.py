"""Batching of calls: items that arrive while a call is in flight are sent with the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Generic, TypeVar, cast

Item = TypeVar("Item")


def batch_bounds(sizes: Iterable[int], most_items: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each batch of items with these sizes. A larger item goes alone."""
    begin = end = total = 0
    for size in sizes:
        total += size
        if end > begin and (end - begin == most_items or total > most_bytes):
            yield begin, end
            begin, total = end, size
        end += 1
    if end > begin:
        yield begin, end


class Coalescer(Generic[Item]):
    """Collects items and sends them in batches. A single item is sent at once.

    `send` settles every item that it is given and does not raise. Belongs to one event loop.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[None]],
        *,
        size_of: Callable[[Item], int],
        most_items: int,
        most_bytes: int,
        in_flight: int,
    ) -> None:
        self._send = send
        self._size_of = size_of
        self._most_items = most_items
        self._most_bytes = most_bytes
        self._in_flight = in_flight
        self._waiting: deque[Item] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._resting: dict[asyncio.Task[None], Item] = {}
        self._is_starting = False

    def add(self, item: Item) -> None:
        """Add an item. It is sent with the next batch."""
        self._waiting.append(item)
        if not self._is_starting and len(self._senders) < self._in_flight:
            self._start_sender()

    def add_later(self, item: Item, seconds: float) -> None:
        """Add an item after a delay, without delaying other items."""
        loop = asyncio.get_running_loop()
        rest = asyncio.Task(self._add_after(item, seconds), loop=loop)
        self._resting[rest] = item

    def __len__(self) -> int:
        """Return the number of items that wait for a batch."""
        return len(self._waiting)

    async def flushed(self) -> None:
        """Return once all added items have been sent."""
        while under_way := self._senders | self._resting.keys():
            await asyncio.wait(under_way)

    async def close(self) -> list[Item]:
        """Stop sending. Returns the items that were never sent."""
        left = [*self._waiting, *self._resting.values()]
        self._waiting.clear()
        under_way = [*self._senders, *self._resting]
        self._resting.clear()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        return left

    async def _add_after(self, item: Item, seconds: float) -> None:
        await asyncio.sleep(seconds)
        del self._resting[cast("asyncio.Task[None]", asyncio.current_task())]
        self.add(item)

    def _start_sender(self) -> None:
        # The task starts after all callbacks that are ready now, so a burst of callers shares its batch. Not
        # by create_task: the loop's task factory may be eager, or wrap the tasks of handlers.
        loop = asyncio.get_running_loop()
        self._is_starting = True
        sender = asyncio.Task(self._send_waiting(), loop=loop)
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)

    async def _send_waiting(self) -> None:
        self._is_starting = False
        try:
            while self._waiting:
                batch = self._take()
                if self._waiting and not self._is_starting and len(self._senders) < self._in_flight:
                    self._start_sender()
                await self._send(batch)
        finally:
            # In the same step that found nothing waiting: the done callback runs a step later, and an item
            # added in between would rely on a sender that has ended.
            self._senders.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    def _take(self) -> list[Item]:
        waiting = self._waiting
        batch: list[Item] = []
        size = 0
        while waiting and len(batch) < self._most_items:
            size += self._size_of(waiting[0])
            if batch and size > self._most_bytes:
                break
            batch.append(waiting.popleft())
        return batch
