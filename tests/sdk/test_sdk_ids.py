"""Ids that the SDK makes for jobs, and ids that it is given."""

from __future__ import annotations

import os
import threading
import uuid
from functools import partial

import pytest

import pulse
from pulse.ids import uuid7, uuid7s
from tests.sdk.scripts import run_script
from tests.transport.pulse_server_under_test import ServerUnderTest


def test_ids_are_version_7_and_sort_as_they_were_made() -> None:
    made = [uuid7() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert {(uuid.UUID(text).version, uuid.UUID(text).variant) for text in made} == {(7, uuid.RFC_4122)}


def test_ids_of_many_threads_never_meet() -> None:
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend([uuid7() for _ in range(2000)])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 16_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ids_of_a_forked_child_are_not_its_parents() -> None:
    # In a process of its own: this one has threads, and gRPC.
    printed = run_script(
        """
        import os, time
        from pulse.ids import uuid7
        time.time_ns = lambda: 10**18  # one millisecond for both
        uuid7()
        child = os.fork()
        made = uuid7()
        if child:
            os.waitpid(child, 0)  # one after the other: unbuffered, two prints could mix
        print(made, flush=True)
        """
    )
    first, second = printed.split()
    assert first[:13] == second[:13]
    assert first != second


def test_ids_made_at_once_are_version_7_and_sort_among_the_others() -> None:
    made = [uuid7(), *uuid7s(100_000), uuid7(), *uuid7s(1), uuid7()]
    assert made == sorted(set(made))
    assert {(uuid.UUID(text).version, uuid.UUID(text).variant) for text in made} == {(7, uuid.RFC_4122)}
    assert uuid7s(0) == []


async def test_id_that_no_job_can_have_is_not_found_by_any_verb(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        verbs = (p.get_job, p.cancel, p.retry, p.delete, p.steps, partial(p.prioritize, priority=1))
        for verb in (*verbs, partial(p.signal, name="go")):
            with pytest.raises(pulse.NotFound, match="There is no job '123': ids of jobs are UUIDs"):
                await verb("123")
        with pytest.raises(pulse.InvalidArgument, match="job_id is empty"):
            await p.get_job("")


async def test_id_that_is_no_string_is_refused_by_every_verb_with_what_to_write(p: pulse.Pulse) -> None:
    verbs = (p.get_job, p.cancel, p.retry, p.delete, p.explain, p.steps, partial(p.prioritize, priority=1))
    waits = (partial(p.signal, name="go"), lambda id_: p.handle(id_).result())
    for verb in (*verbs, *waits):
        with pytest.raises(pulse.InvalidArgument, match=r"job_id has to be a string, .* write str\(…\)\."):
            await verb(uuid.uuid4())  # type: ignore[operator]
        with pytest.raises(pulse.InvalidArgument, match=r"job_id has to be a string, .* write its \.id\."):
            await verb(p.handle("01a1"))  # type: ignore[operator]
        with pytest.raises(pulse.InvalidArgument, match="job_id has to be a string, but 5 was given"):
            await verb(5)  # type: ignore[operator]


async def test_topic_that_is_no_string_is_refused_in_plain_words(p: pulse.Pulse) -> None:
    with pytest.raises(pulse.InvalidArgument, match="topic=5 cannot be sent: only strings are allowed"):
        await p.pause(topic=5, reason="x")  # type: ignore[arg-type]
