"""How long the default retries last, by the delays that the database is compared with."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.base.bounds import MAX_ATTEMPTS, MAX_DELAY
from pulse_server.settings import read_settings
from tests.retry_delays import retry_delay


def test_longest_wait_is_one_that_a_caller_could_have_asked_for() -> None:
    assert retry_delay(MAX_ATTEMPTS) < MAX_DELAY


def test_default_retries_last_a_day_and_are_spread() -> None:
    runs = read_settings({"DB_HOST": "postgres://localhost/pulse"}).runs
    waits = [retry_delay(attempt, runs["backoff"]) for attempt in range(1, runs["max_attempts"])]
    assert timedelta(hours=24) < sum(waits, timedelta(0)) < timedelta(hours=25)
    assert runs["backoff"].jitter == 0.2
