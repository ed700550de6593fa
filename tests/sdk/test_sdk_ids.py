"""Ids that the SDK makes for jobs."""

from __future__ import annotations

import os
import threading
import uuid

import pytest

from pulse.ids import uuid7, uuid7s
from tests.sdk.scripts import run_script


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
