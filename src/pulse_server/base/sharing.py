"""What concurrent callers share: a statement, an answer, and a bounded amount.

`GroupCommit`: requests that arrive while a statement is in flight go out together in the next one. `Samples`:
cached answers. `Budget` counts what callers have (bytes, slots, streams, awaited jobs), and bounds it.
ADR-0038
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from pulse_server.base import tuning
from pulse_server.base.errors import PulseError, ResourceExhausted
from pulse_server.base.loops import lease_clock

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


class EachAlone(GroupCommit[Item, Answer]):
    """Commits each request by itself, in the task of its caller. For a store that answers at once."""

    async def _add(self, items: Sequence[Item], size: int) -> Sequence[Answer]:
        return await self._commit(items)


def _fail(requests: Sequence[_Request[Item, Answer]], error: Exception) -> None:
    for request in requests:
        if not request.answer.done():
            request.answer.set_exception(error)


# A count of all topics is cached this long, and at least SAMPLE_REST times as long as it took. The
# same holds for minutes.
TOPICS_SAMPLE_AGE = timedelta(seconds=1)

Question = TypeVar("Question")
Value = TypeVar("Value")

unsampled: ContextVar[bool] = ContextVar("pulse_unsampled", default=False)
"""Whether each call reads anew: a test looks, lets something happen, and looks again at once."""


class Sample(Generic[Value]):
    """A cached answer. Concurrent callers share one query. The next query waits for SAMPLE_REST
    times the duration of the last one."""

    def __init__(
        self,
        take: Callable[[], Awaitable[Value]],
        clock: Callable[[], float] = lease_clock,
        *,
        to_its_end: bool = False,
    ) -> None:
        """`to_its_end`: finish the query even if no caller waits for it any more. Otherwise one that takes
        longer than the timeouts of callers would never finish."""
        self._take = take
        self._clock = clock
        self._to_its_end = to_its_end
        self._waiting = 0
        self._taken: tuple[Value] | None = None
        self._good_until = 0.0
        self._taking: asyncio.Task[Value] | None = None

    @property
    def is_of_use(self) -> bool:
        """Whether the cached answer is fresh, or a query is in progress."""
        return self._taking is not None or self._clock() < self._good_until

    async def get(self) -> Value:
        """Return the answer, from a new query if it is too old. Concurrent callers share it."""
        if unsampled.get():
            return await self._take()
        if self._taking is None:
            if self._taken is not None and self._clock() < self._good_until:
                return self._taken[0]
            self._taking = asyncio.create_task(self._take_anew())
            self._taking.add_done_callback(self._note_taken)
        taking = self._taking
        self._waiting += 1
        try:
            return await asyncio.shield(taking)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._to_its_end and self._taking is taking:
                self._taking = None
                taking.cancel()

    async def _take_anew(self) -> Value:
        began = self._clock()
        value = await self._take()
        took = self._clock() - began
        shortest = TOPICS_SAMPLE_AGE.total_seconds()
        self._taken = (value,)
        self._good_until = self._clock() + max(shortest, took * tuning.SAMPLE_REST)
        return value

    def _note_taken(self, taking: asyncio.Task[Value]) -> None:
        if self._taking is taking:
            self._taking = None
        if not taking.cancelled():
            taking.exception()  # retrieved: callers that waited have it, and without any it needs no log


class Samples(Generic[Question, Value]):
    """Cached answers by question. Keeps the last `most` questions while their answers are fresh."""

    def __init__(
        self,
        take: Callable[[Question], Awaitable[Value]],
        most: int,
        clock: Callable[[], float] = lease_clock,
    ) -> None:
        self._take = take
        self._most = most
        self._clock = clock
        self._samples: dict[Question, Sample[Value]] = {}

    async def get(self, question: Question) -> Value:
        self._samples = {asked: sample for asked, sample in self._samples.items() if sample.is_of_use}
        sample = self._samples.pop(question, None) or Sample(partial(self._take, question), self._clock)
        self._samples[question] = sample  # asked last, so it goes last
        if len(self._samples) > self._most:
            del self._samples[next(iter(self._samples))]
        return await sample.get()


class Budget:
    """A count in total and per caller, each with a bound."""

    def __init__(self, most: float = math.inf, *, of_one: int, refusal: str = "") -> None:
        self._most = most
        self._of_one = of_one
        self._refusal = refusal
        self._taken: Counter[str] = Counter()
        self.total = 0

    @property
    def is_full(self) -> bool:
        return self.total >= self._most

    def of(self, caller: str) -> int:
        return self._taken[caller]

    def has_room(self, caller: str, count: int = 1) -> bool:
        return self.total + count <= self._most and self._taken[caller] + count <= self._of_one

    def take(self, caller: str, count: int = 1) -> bool:
        """Take `count` if there is room. Returns whether there is."""
        if not self.has_room(caller, count):
            return False
        self.total += count
        self._taken[caller] += count
        return True

    def give_back(self, caller: str, count: int = 1) -> None:
        """Give back `count` of the caller's share."""
        self.total -= count
        self._taken[caller] -= count
        if not self._taken[caller]:
            del self._taken[caller]

    @contextmanager
    def taken(self, caller: str, count: int = 1) -> Iterator[None]:
        """Take `count` while the block runs. Raises ResourceExhausted if there is no room."""
        if not self.take(caller, count):
            raise ResourceExhausted(self._refusal)
        try:
            yield
        finally:
            self.give_back(caller, count)


class PendingBytes:
    """The bytes of requests that were read and not answered yet."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def is_full(self) -> bool:
        return self._count >= self._most

    async def wait_below_limit(self) -> None:
        """Return once the pending bytes are below the limit. The next request may be of any size."""
        while self.is_full:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(turn)
            try:
                await turn
            finally:
                self._waiting.discard(turn)

    def add(self, count: int) -> None:
        self._count += count

    def remove(self, count: int) -> None:
        self._count -= count
        if self._waiting and self._count < self._most:
            for turn in self._waiting:
                if not turn.done():
                    turn.set_result(None)
