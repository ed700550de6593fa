"""How long a failed job waits."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from pulse_server.domain.bounds import MAX_ATTEMPTS, MAX_DELAY
from pulse_server.memory.backoff import retry_delay
from pulse_server.settings import read_settings

attempts = st.integers(min_value=1, max_value=MAX_ATTEMPTS)


@given(attempts)
def test_wait_is_the_square_of_the_attempts_in_seconds(attempts: int) -> None:
    assert retry_delay(attempts) == timedelta(seconds=attempts**2)


@given(attempts)
def test_each_wait_is_longer_than_the_one_before(attempts: int) -> None:
    assert retry_delay(attempts + 1) > retry_delay(attempts) > timedelta(0)


def test_longest_wait_is_one_that_a_caller_could_have_asked_for() -> None:
    assert retry_delay(MAX_ATTEMPTS) < MAX_DELAY


def test_default_retries_last_a_day_and_are_spread() -> None:
    run = read_settings({"DB_HOST": "postgres://localhost/pulse"}).run
    assert run.backoff is not None
    assert run.max_attempts is not None
    waits = [retry_delay(attempt, run.backoff) for attempt in range(1, run.max_attempts)]
    assert timedelta(hours=24) < sum(waits, timedelta(0)) < timedelta(hours=25)
    assert run.backoff.jitter == 0.2
