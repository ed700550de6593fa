"""How many jobs a worker asks for, and how old a message is."""

from __future__ import annotations

import pytest

from pulse import tuning
from pulse.worker.held_jobs import ServerClock, Window


def test_slow_handlers_get_no_work_ahead_and_fast_ones_do() -> None:
    window = Window(10)
    assert (window.size, window.changed_size()) == (10, 0)
    assert _after_fast_jobs(window, 2000) == 510
    window.acknowledged(510)
    assert window.changed_size() == 0
    for _ in range(20):
        window.observe(60)
        slow = window.size
    assert slow == 10
    assert window.changed_size() == 10
    window.close()
    assert window.changed_size() == 0


def test_window_widens_in_steps_each_after_a_window_full_of_fast_jobs() -> None:
    window = Window(10)
    assert _after_fast_jobs(window, 9) == 10
    assert _after_fast_jobs(window, 1) == 40
    assert _after_fast_jobs(window, 39) == 40
    assert _after_fast_jobs(window, 1) == 160


def test_window_has_a_bound() -> None:
    assert _after_fast_jobs(Window(100), 50_000) == 100 + tuning.PREFETCH_MOST
    assert _after_fast_jobs(Window(9_999), 50_000) == tuning.WINDOW_MOST


def _after_fast_jobs(window: Window, count: int) -> int:
    for _ in range(count):
        window.observe(0.001)
        size = window.size
    return size


def test_age_of_a_message_follows_from_the_fastest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr("pulse.worker.held_jobs.lease_clock", lambda: now)
    clock = ServerClock()
    clock.welcome(asked_at=50.0, reading=1000.0, clock_id="server")
    assert clock.age_seconds(1000.0) == 0
    now = 60.0
    assert clock.age_seconds(1003.0) == 7  # claimed 3 s after the welcome, read 10 s after it
    now = 61.0
    assert clock.age_seconds(1013.0) == 0  # so the welcome had been under way for 2 s
    assert clock.age_seconds(1003.0) == 10


def test_slow_welcome_is_made_up_for_by_a_faster_answer_of_the_same_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulse.worker.held_jobs.lease_clock", lambda: 60.0)
    clock = ServerClock()
    clock.welcome(asked_at=50.0, reading=1008.0, clock_id="server")  # the handshake took 8 s
    assert clock.age_seconds(1010.0) == 8
    clock.compare(59.0, 5.0, "another server")
    assert clock.age_seconds(1010.0) == 8
    clock.compare(59.0, 1009.5, "server")
    assert clock.age_seconds(1010.0) == 0.5
