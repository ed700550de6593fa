"""Answers that are kept for whoever asks next, and for no longer."""

from __future__ import annotations

import asyncio
import weakref

from pulse_server import tuning
from pulse_server.service.samples import Samples
from tests.fakes.clock import Seconds


class Answer:
    """Something that may be large: a day of one topic takes half a megabyte, and anybody makes up topics."""


async def answer(_question: str) -> Answer:
    await asyncio.sleep(0)
    return Answer()


async def test_answer_that_is_too_old_to_be_given_again_is_let_go() -> None:
    clock = Seconds()
    samples: Samples[str, Answer] = Samples(answer, 32, clock)
    old = weakref.ref(await samples.get("asked once"))
    clock.advance(tuning.TOPICS_SAMPLE_AGE.total_seconds())
    good = weakref.ref(await samples.get("asked now"))
    await samples.get("asked next")

    assert old() is None
    assert good() is not None


async def test_answer_that_is_being_taken_serves_those_who_ask_meanwhile() -> None:
    samples: Samples[str, Answer] = Samples(answer, 32, Seconds())
    first, second, _ = await asyncio.gather(samples.get("same"), samples.get("same"), samples.get("other"))

    assert first is second
