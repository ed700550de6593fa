"""The attempts of a job on one line of time."""

from __future__ import annotations

import pytest

from pulse_ui.jobs.views import Timeline, timeline
from tests.ui.jobs_to_show import at, job, past


def outcomes(line: Timeline) -> list[tuple[int, str]]:
    return [(attempt.number, attempt.outcome) for attempt in line.attempts]


def widths(line: Timeline) -> float:
    return sum(attempt.wait_width + attempt.run_width for attempt in line.attempts)


def test_a_job_that_waits_has_one_attempt_to_come() -> None:
    line = timeline(job(next_run_at=at(0)), now=at(30))

    assert outcomes(line) == [(1, "waiting")]
    assert line.attempts[0].waited == 30
    assert line.made == ()


def test_a_retry_that_is_not_due_yet_stands_at_its_time() -> None:
    retrying = job("RETRYING", attempts=1, history=(past(1, 2, 3),), next_run_at=at(60))
    line = timeline(retrying, now=at(10))

    assert outcomes(line) == [(1, "failed"), (2, "due")]
    assert line.attempts[1].waited == 57
    assert line.ends_at == at(60)


def test_the_success_that_history_leaves_out_is_the_last_attempt() -> None:
    done = job(
        "COMPLETED", attempts=2, history=(past(1, 1, 2),), started_at=at(5), finished_at=at(9), worker_id="w"
    )
    line = timeline(done, now=at(99))

    assert outcomes(line) == [(1, "failed"), (2, "completed")]
    assert [(attempt.waited, attempt.ran) for attempt in line.attempts] == [(1, 1), (3, 4)]
    assert [attempt.number for attempt in line.made] == [2, 1]
    assert line.ran == 5


def test_a_running_attempt_goes_on_until_now() -> None:
    line = timeline(job("RUNNING", attempts=1, started_at=at(1), worker_id="w"), now=at(11))

    assert [(attempt.outcome, attempt.ran) for attempt in line.attempts] == [("running", 10)]


def test_a_job_that_was_canceled_before_it_ran_has_no_attempts() -> None:
    assert timeline(job("CANCELED", finished_at=at(5)), now=at(9)).attempts == ()


def test_attempts_continue_after_a_retry() -> None:
    history = (past(1, 1, 2, "discarded"), past(2, 50, 51, "canceled"))
    line = timeline(job("PENDING", attempts=2, history=history, next_run_at=at(90)), now=at(95))

    assert outcomes(line) == [(1, "discarded"), (2, "canceled"), (3, "waiting")]
    assert [attempt.was_retried for attempt in line.attempts] == [False, True, True]


def test_early_attempts_that_are_no_longer_stored_are_counted() -> None:
    history = tuple(past(number, number * 10, number * 10 + 1) for number in range(6, 26))
    line = timeline(job("DEAD_LETTERED", attempts=25, max_attempts=25, history=history), now=at(999))

    assert line.left_out == 5
    assert line.begins_at == at(60)
    assert line.attempts[0].waited is None


def test_suspended_attempts_that_only_the_last_stands_for_have_no_queue_wait() -> None:
    history = (past(3, 40, 41, "suspended"),)
    line = timeline(
        job("COMPLETED", attempts=4, started_at=at(60), finished_at=at(61), history=history), at(99)
    )

    assert outcomes(line) == [(3, "suspended"), (4, "completed")]
    assert line.queue_wait is None
    assert line.is_thinned
    first = timeline(job("COMPLETED", attempts=1, started_at=at(6), finished_at=at(7)), at(99))
    assert (first.queue_wait, first.is_thinned) == (6, False)


def test_an_attempt_that_was_given_back_may_share_its_number_but_not_its_anchor() -> None:
    history = (past(1, 1, 2, "lease_expired"), past(1, 3, 4), past(2, 5, 6))
    line = timeline(job("DEAD_LETTERED", attempts=2, history=history), now=at(9))

    assert [attempt.anchor for attempt in line.attempts] == ["attempt-1", "attempt-1-2", "attempt-2"]


def test_the_last_error_is_shown_whole_though_history_keeps_its_beginning() -> None:
    whole = "ValueError: " + "x" * 4000
    history = (past(1, 1, 2, error="y" * 1000), past(2, 3, 4, error=whole[:1000]))
    line = timeline(job("DEAD_LETTERED", attempts=2, history=history, last_error=whole), now=at(9))

    assert [attempt.error_is_cut for attempt in line.attempts] == [True, False]
    assert line.attempts[1].error == whole


def test_the_line_is_filled_and_nothing_overlaps() -> None:
    history = tuple(past(number, number**3, number**3 + 0.01) for number in range(1, 11))
    line = timeline(job("DEAD_LETTERED", attempts=10, history=history), now=at(5000))

    assert widths(line) == pytest.approx(100, abs=0.5)
    ends = [attempt.run_left + attempt.run_width for attempt in line.attempts]
    assert ends == sorted(ends)


def test_an_attempt_of_a_moment_is_wide_enough_to_be_seen() -> None:
    history = (past(1, 3600, 3600.001), past(2, 7200, 7200.001))
    line = timeline(job("DEAD_LETTERED", attempts=2, history=history), now=at(9000))

    assert min(attempt.run_width for attempt in line.attempts) >= 1


def test_a_wait_out_of_all_proportion_leaves_room_for_the_rest() -> None:
    days = 5 * 86_400
    history = (past(1, 1, 2), past(2, 6, 7), past(3, 16, 17, "canceled"), past(4, days, days + 2))
    line = timeline(job("DEAD_LETTERED", attempts=4, history=history), now=at(days + 9))

    assert [attempt.wait_is_shortened for attempt in line.attempts] == [False, False, False, True]
    assert line.attempts[3].waited == days - 17
    assert line.attempts[3].wait_width < 60


def test_the_growing_waits_of_retries_stay_to_scale() -> None:
    history = (
        past(1, 1, 1.1),
        past(2, 2.1, 2.2),
        past(3, 6.2, 6.3),
        past(4, 15.3, 15.4),
        past(5, 31.4, 31.5),
    )
    line = timeline(job("DEAD_LETTERED", attempts=5, history=history), now=at(99))

    assert not line.is_shortened


def test_a_job_that_was_over_at_once_has_a_line_all_the_same() -> None:
    line = timeline(job("COMPLETED", attempts=1, started_at=at(0), finished_at=at(0)), now=at(0))

    assert line.attempts[0].run_width > 0


def test_what_an_error_hides_is_written_out() -> None:
    line = timeline(
        job("DEAD_LETTERED", attempts=1, history=(past(1, 1, 2, error="bad \u202e\x1b[2J"),)), now=at(9)
    )

    assert line.attempts[0].summary == "bad \\u202e\\x1b[2J"
