"""Cached answers: shared by callers, bounded in age and memory."""

from __future__ import annotations

import asyncio
import weakref

from pulse_server.base.sharing import TOPICS_SAMPLE_AGE, Sample, Samples
from tests.fakes.clock import Seconds


class Answer:
    """An answer that may be large: a day of one topic takes half a megabyte, and callers invent topics."""


async def answer(_question: str) -> Answer:
    await asyncio.sleep(0)
    return Answer()


async def test_answer_that_is_too_old_is_dropped() -> None:
    clock = Seconds()
    samples: Samples[str, Answer] = Samples(answer, 32, clock)
    old = weakref.ref(await samples.get("asked once"))
    clock.advance(TOPICS_SAMPLE_AGE.total_seconds())
    good = weakref.ref(await samples.get("asked now"))
    await samples.get("asked next")

    assert old() is None
    assert good() is not None


async def test_answer_under_way_is_shared_by_callers_that_ask_meanwhile() -> None:
    samples: Samples[str, Answer] = Samples(answer, 32, Seconds())
    first, second, _ = await asyncio.gather(samples.get("same"), samples.get("same"), samples.get("other"))

    assert first is second


class SlowAnswer:
    """An answer that is ready when the test allows it."""

    def __init__(self) -> None:
        self.may_come = asyncio.Event()
        self.begun = self.canceled = 0

    async def __call__(self) -> Answer:
        self.begun += 1
        try:
            await self.may_come.wait()
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        return Answer()


async def leave_unanswered(sample: Sample[Answer]) -> None:
    asking = asyncio.create_task(sample.get())
    await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.wait({asking})


async def test_answer_outlasts_the_timeout_of_its_callers() -> None:
    slow = SlowAnswer()
    sample = Sample(slow, Seconds(), to_its_end=True)
    for _ in range(3):
        await leave_unanswered(sample)
    slow.may_come.set()
    await sample.get()

    assert (slow.begun, slow.canceled) == (1, 0)


async def test_answer_that_no_caller_waits_for_is_canceled() -> None:
    slow = SlowAnswer()
    sample = Sample(slow, Seconds())
    await leave_unanswered(sample)
    await asyncio.sleep(0)
    assert slow.canceled == 1
    slow.may_come.set()
    await sample.get()

    assert slow.begun == 2


async def test_answer_goes_on_while_a_caller_still_waits() -> None:
    slow = SlowAnswer()
    sample = Sample(slow, Seconds())
    patient = asyncio.create_task(sample.get())
    await leave_unanswered(sample)
    slow.may_come.set()
    await patient

    assert (slow.begun, slow.canceled) == (1, 0)
