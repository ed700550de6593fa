"""Group commit: requests that arrive while a statement is in flight go out together in the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from pulse_server.domain.errors import PulseError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class GroupCommit(Generic[Item, Answer]):
    """Turns many small requests into few statements. Each is answered only after its statement committed.

    `commit` takes a list of items and returns one answer for each, in order. At most `lanes` commits are in
    flight; a request that finds a free lane leaves at once, so a lone caller waits for nobody.
    """

    def __init__(
        self, commit: Callable[[list[Item]], Awaitable[Sequence[Answer]]], *, lanes: int, limit: int
    ) -> None:
        self._commit = commit
        self._free_lanes = lanes
        self._limit = limit
        self._waiting: deque[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._committed: Callable[[int], object] = lambda size: None

    def on_commit(self, committed: Callable[[int], object]) -> None:
        """Have this called with the number of items of each statement."""
        self._committed = committed

    async def add(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Have the items committed and return their answers, in order."""
        answer: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, answer))
        if self._free_lanes:
            self._free_lanes -= 1
            lane = asyncio.create_task(self._drain())
            self._running.add(lane)
            lane.add_done_callback(self._running.discard)
        try:
            return await answer
        finally:
            # An error has this frame in its traceback, and with the future in it each would keep the other,
            # and the items, until the collector comes.
            del answer

    async def add_all(self, items: Sequence[Item]) -> list[Answer]:
        """Have any number of items committed, a statement's worth after the other; answers in order."""
        answers: list[Answer] = []
        for start in range(0, len(items), self._limit):
            answers.extend(await self.add(items[start : start + self._limit]))
        return answers

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._commit_together(self._take())
        finally:
            self._free_lanes += 1

    def _take(self) -> list[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]]:
        """The next requests that fit into one statement; at least one, however large it is."""
        taken = [self._waiting.popleft()]
        size = len(taken[0][0])
        while self._waiting and size + len(self._waiting[0][0]) <= self._limit:
            taken.append(self._waiting.popleft())
            size += len(taken[-1][0])
        return taken

    async def _commit_together(
        self, requests: list[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]]
    ) -> None:
        items = [item for request, _ in requests for item in request]
        self._committed(len(items))
        try:
            answers = await self._commit(items)
        except PulseError as error:
            _fail(requests, error.with_traceback(None))  # for the same reason: this frame has the futures
        except Exception as error:
            if len(requests) == 1:
                _fail(requests, error)
            else:
                # Something in this batch is poison. Its neighbours must not be refused for it.
                for alone in requests:
                    await self._commit_together([alone])
        else:
            start = 0
            for request, future in requests:
                end = start + len(request)
                if not future.done():
                    future.set_result(answers[start:end])
                start = end


def _fail(
    requests: Sequence[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]], error: Exception
) -> None:
    for _, future in requests:
        if not future.done():
            future.set_exception(error)
