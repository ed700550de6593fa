"""A test over the kit costs the same in an application with many handlers: calls are counted, not times."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import pulse
from pulse.testing import Kit
from pulse.testing.store import Calls

MANY = 200
CALLS_OF_A_TEST = 5


def test_suite_of_an_application_with_200_handlers_calls_the_server_a_few_times_a_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = pulse.SyncPulse("localhost:1")
    jobs = [s.register(f"many-{number}", _double, max_attempts=2) for number in range(MANY)]
    calls: Counter[str] = Counter()
    handler = Calls.handler

    def counted(found: Calls, path: str) -> Any:
        calls[path] += 1
        return handler(found, path)

    monkeypatch.setattr(Calls, "handler", counted)
    attempts: Counter[str] = Counter()
    for number, job in enumerate(jobs):
        with Kit(s) as kit:
            handle = job.enqueue(number)
            attempts.update(kit.drain())
            assert kit.result(handle) == 2 * number
            assert kit.one(job, n=number).max_attempts == 2
    assert attempts == {"completed": MANY}
    assert calls.total() <= MANY * CALLS_OF_A_TEST, calls


def _double(n: int) -> int:
    return 2 * n
