"""How long a supervisor waits before it starts a process again."""

from pulse_server.supervisor.supervising import RESTART_FIRST_SECONDS, RESTART_LONGEST_SECONDS, _Child


def test_process_that_dies_again_and_again_is_started_less_and_less_often() -> None:
    restarts = _Child(1, {}).restarts
    waits = [restarts.failed() for _ in range(100)]
    assert waits[0] <= RESTART_FIRST_SECONDS
    assert waits[:6] == sorted(waits[:6])  # each is drawn from the upper half of its range
    assert all(RESTART_LONGEST_SECONDS / 2 <= wait <= RESTART_LONGEST_SECONDS for wait in waits[8:])


def test_process_that_has_served_long_is_started_again_at_once() -> None:
    restarts = _Child(1, {}).restarts
    restarts.failed()
    assert restarts.wait_seconds(lived_seconds=3600.0) == 0.0
    assert restarts.failed() <= RESTART_FIRST_SECONDS
