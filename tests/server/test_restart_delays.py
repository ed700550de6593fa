"""How long a supervisor waits before it starts a process again."""

from pulse_server.supervisor import RESTART_FIRST_SECONDS, RESTART_LONGEST_SECONDS, restarts


def test_process_that_dies_again_and_again_is_started_less_and_less_often() -> None:
    starts = restarts()
    waits = [starts.failed() for _ in range(100)]
    assert waits[0] <= RESTART_FIRST_SECONDS
    assert waits[:6] == sorted(waits[:6])  # each is drawn from the upper half of its range
    assert all(RESTART_LONGEST_SECONDS / 2 <= wait <= RESTART_LONGEST_SECONDS for wait in waits[8:])


def test_process_that_has_served_long_is_started_again_at_once() -> None:
    starts = restarts()
    starts.failed()
    assert starts.wait_seconds(lived_seconds=3600.0) == 0.0
    assert starts.failed() <= RESTART_FIRST_SECONDS
