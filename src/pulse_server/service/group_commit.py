"""Group commit: requests that arrive while a statement is in flight go out together in the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from pulse_server import tuning
from pulse_server.domain.errors import PulseError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


# A request is large from this share of a statement's bytes on.
_LARGE_SHARE = 8


class _Request(NamedTuple, Generic[Item, Answer]):
    items: Sequence[Item]
    size: int
    answer: asyncio.Future[Sequence[Answer]]


class GroupCommit(Generic[Item, Answer]):
    """Turns many small requests into few statements. Each is answered only after its statement committed.

    `commit` takes items and returns one answer for each, in order. At most `slots` commits are in
    flight; a request that finds a free slot leaves at once, so a lone caller does not wait. A statement
    has at most `limit` items and `most_bytes`, by `size_of`; an item that is larger goes alone. Large
    requests leave one slot to the small ones, which never wait for their bytes. ADR-0038

    A request that fills a statement reaches `commit` as it came. `size_of_all` is the sum of `size_of`, for
    requests that know it without a look at each item.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        slots: int,
        limit: int,
        size_of: Callable[[Item], int] | None = None,
        size_of_all: Callable[[Sequence[Item]], int] | None = None,
        most_bytes: int = tuning.COMMIT_BYTES,
    ) -> None:
        self._commit = commit
        self._free_slots = slots
        self._limit = limit
        self._size_of = size_of
        self._size_of_all = size_of_all
        self._most_bytes = most_bytes
        self._waiting: deque[_Request[Item, Answer]] = deque()
        self._large: deque[_Request[Item, Answer]] = deque()
        self._free_large_slots = max(1, slots - 1)
        self._running: set[asyncio.Task[None]] = set()

    async def add(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Have the items committed in one statement and return their answers, in order."""
        return await self._add(items, self._size(items))

    async def add_all(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Have any number of items committed, a statement's worth after the other; answers in order."""
        size = self._size(items)
        if len(items) <= self._limit and size <= self._most_bytes:
            return await self._add(items, size) if items else []
        answers: list[Answer] = []
        for batch in self._batches(items):
            answers.extend(await self.add(batch))
        return answers

    def _size(self, items: Sequence[Item]) -> int:
        if self._size_of_all is not None:
            return self._size_of_all(items)
        return sum(map(self._size_of, items)) if self._size_of is not None else 0

    def _batches(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        start = size = 0
        for end, item in enumerate(items):
            item_size = self._size_of(item) if self._size_of is not None else 0
            if end > start and (end - start == self._limit or size + item_size > self._most_bytes):
                yield items[start:end]
                start, size = end, 0
            size += item_size
        yield items[start:]

    async def _add(self, items: Sequence[Item], size: int) -> Sequence[Answer]:
        answer: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        is_large = size * _LARGE_SHARE > self._most_bytes
        (self._large if is_large else self._waiting).append(_Request(items, size, answer))
        if self._free_slots:
            self._free_slots -= 1
            slot = asyncio.create_task(self._drain())
            self._running.add(slot)
            slot.add_done_callback(self._running.discard)
        try:
            return await answer
        finally:
            # An error has this frame in its traceback, and with the future in it each would keep the other,
            # and the items, until the collector comes.
            del answer

    async def _drain(self) -> None:
        try:
            while True:
                if self._large and self._free_large_slots:
                    self._free_large_slots -= 1
                    try:
                        await self._commit_together(self._take(self._large))
                    finally:
                        self._free_large_slots += 1
                if self._waiting:
                    await self._commit_together(self._take(self._waiting))
                elif not self._large or not self._free_large_slots:
                    return
        finally:
            self._free_slots += 1

    def _take(self, waiting: deque[_Request[Item, Answer]]) -> list[_Request[Item, Answer]]:
        """The next requests that fit into one statement; at least one, however large it is."""
        taken = [waiting.popleft()]
        count, size = len(taken[0].items), taken[0].size
        while waiting:
            count += len(waiting[0].items)
            size += waiting[0].size
            if count > self._limit or size > self._most_bytes:
                break
            taken.append(waiting.popleft())
        return taken

    async def _commit_together(self, requests: list[_Request[Item, Answer]]) -> None:
        if len(requests) == 1:
            items = requests[0].items
        else:
            items = [item for request in requests for item in request.items]
        try:
            answers = await self._commit(items)
        except PulseError as error:
            _fail(requests, error.with_traceback(None))  # for the same reason: this frame has the futures
        except Exception as error:
            if len(requests) == 1:
                _fail(requests, error)
            else:
                # Something in this batch is poison. Its neighbors must not be refused for it.
                for alone in requests:
                    await self._commit_together([alone])
        else:
            start = 0
            for request, _, future in requests:
                end = start + len(request)
                if not future.done():
                    future.set_result(answers[start:end])
                start = end


def _fail(requests: Sequence[_Request[Item, Answer]], error: Exception) -> None:
    for request in requests:
        if not request.answer.done():
            request.answer.set_exception(error)
