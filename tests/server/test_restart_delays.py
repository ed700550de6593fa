"""How long a supervisor waits before it starts a process again."""

from datetime import timedelta

from pulse_server.supervisor.supervising import RESTART_LONGEST_WAIT, restart_wait


def test_process_that_dies_again_and_again_is_started_less_and_less_often() -> None:
    waits = [restart_wait(crashes) for crashes in range(100)]
    assert waits[0] < timedelta(seconds=1)
    assert waits == sorted(waits)
    assert waits[-1] == RESTART_LONGEST_WAIT
