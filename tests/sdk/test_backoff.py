"""Growing waits, and the loop that tries again after each."""

from __future__ import annotations

import time

from pulse.wire.servers import JitteredBackoff


def test_waits_double_within_their_jitter_and_begin_again() -> None:
    backoff = JitteredBackoff(1, 5)
    for ceiling in (1, 2, 4, 5, 5):
        assert ceiling / 2 <= backoff.next_seconds() <= ceiling
    for _ in range(2000):
        assert backoff.next_seconds() <= 5
    backoff.reset()
    assert backoff.next_seconds() <= 1


async def test_first_try_comes_at_once_whatever_the_deadline() -> None:
    tries = 0
    async for _ in JitteredBackoff(60, 60, deadline=time.monotonic() - 1):
        tries += 1
    assert tries == 1


async def test_tries_end_where_the_next_wait_would_pass_the_deadline() -> None:
    tries = 0
    async for _ in JitteredBackoff(60, 60, deadline=time.monotonic() + 29):
        tries += 1
    assert tries == 1


async def test_tries_go_on_without_a_deadline() -> None:
    tries = 0
    async for _ in JitteredBackoff(0.0001, 0.0001):
        tries += 1
        if tries == 20:
            break
    assert tries == 20
