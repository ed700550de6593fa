"""Cached answers: concurrent callers share one query."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Generic, TypeVar

from pulse_server import tuning
from pulse_server.clock import lease_clock

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
