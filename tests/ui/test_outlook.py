"""What happens to a job next, in one sentence."""

from __future__ import annotations

from datetime import datetime

import pulse
from pulse_ui.jobs.views import outlook
from tests.rows import each_row
from tests.ui.jobs_to_show import at, job, past, text_of

NOW = at(100)
WAITING = job(next_run_at=at(0))
LATER = job("RETRYING", attempts=2, next_run_at=at(340))


def sentence_of(shown: pulse.JobInfo, why: pulse.Explanation | None = None) -> str:
    return text_of(outlook(shown, NOW, why), NOW)


def because(cause: str, sentence: str, expected_at: datetime | None = None) -> pulse.Explanation:
    return pulse.Explanation("1", cause, sentence, "pulse dispatch resume", expected_at, "")


def test_explanation_of_the_server_comes_first() -> None:
    shown = outlook(WAITING, NOW, because("topic_paused", "Its topic is paused by ada."))
    assert text_of(shown, NOW) == "Its topic is paused by ada."
    assert (shown.tone, shown.remedy) == ("warn", "pulse dispatch resume")


def test_expected_time_is_relative() -> None:
    assert (
        sentence_of(LATER, because("delayed", "It is delayed.", at(340)))
        == "It is delayed. Expected in 4 min."
    )
    assert sentence_of(LATER, because("due", "It is due.", at(90))) == "It is due."


def test_job_without_an_explanation_has_its_next_attempt() -> None:
    """The visitor may not ask, or the server is older."""
    assert sentence_of(WAITING) == "Waiting for a worker to run attempt 1 of 5."
    assert sentence_of(LATER) == "Attempt 3 of 5 is due in 4 min."


def test_running_job_is_explained_if_its_worker_is_gone() -> None:
    running = job("RUNNING", attempts=2, lease_until=at(120))
    assert sentence_of(running, because("worker_gone", "Its worker is gone.", at(120))) == (
        "Its worker is gone. Expected in 20 s."
    )
    assert (
        sentence_of(running, because("", "It runs on w1.")) == "Running. If it fails, attempt 3 of 5 follows."
    )


def test_a_running_job_shows_what_a_failure_leads_to() -> None:
    early = job("RUNNING", attempts=2, lease_until=at(120))
    last = job("RUNNING", attempts=5, lease_until=at(120))

    assert sentence_of(early) == "Running. If it fails, attempt 3 of 5 follows."
    assert sentence_of(last) == "Running. If it fails, it is dead-lettered: this is the last attempt."


def test_a_worker_without_heartbeats_is_reported() -> None:
    silent = job("RUNNING", attempts=2, lease_until=at(75))
    assert (
        sentence_of(silent)
        == "Its worker sends no heartbeats: the lease expired 25 s ago, so attempt 3 of 5 follows soon."
    )


def test_a_dead_letter_shows_whether_its_handler_discarded_it() -> None:
    spent = job("DEAD_LETTERED", attempts=5, history=(past(5, 1, 2),))
    given_up = job("DEAD_LETTERED", attempts=1, history=(past(1, 1, 2, "discarded"),))

    assert sentence_of(spent).startswith("Dead-lettered: all 5 attempts failed.")
    assert sentence_of(given_up).startswith("Dead-lettered: its handler discarded it.")


def test_a_finished_job_has_no_next_step() -> None:
    assert sentence_of(job("COMPLETED", attempts=1)) == "Completed by attempt 1."
    assert sentence_of(job("CANCELED")) == "Canceled. It does not run unless it is retried."


def test_the_reason_of_a_cancel_is_shown_and_is_not_an_error() -> None:
    waited = job("CANCELED", last_error="wrong tenant")
    ran = job("CANCELED", last_error="too slow", history=(past(1, 1, 2, "canceled", "too slow"),))
    failed_before = job("CANCELED", last_error="boom", history=(past(1, 1, 2, "failed", "boom"),))

    assert sentence_of(waited).startswith("Canceled: “wrong tenant”. It does not run")
    assert sentence_of(ran).startswith("Canceled: “too slow”. It does not run")
    assert sentence_of(failed_before).startswith("Canceled. It does not run")


@each_row(
    "dead, why",
    [
        (job("DEAD_LETTERED", attempts=25, max_attempts=25, snoozes=2, history=(past(25, 0, 1),)), "all 25"),
        (
            job(
                "DEAD_LETTERED",
                attempts=5,
                max_attempts=25,
                crashes=5,
                history=(past(5, 0, 1, "lease_expired"),),
            ),
            "5 attempts ended in a lost lease, which is the limit",
        ),
        (
            job("DEAD_LETTERED", attempts=25, max_attempts=25, history=(past(25, 0, 1, "timed_out"),)),
            "all 25 attempts failed",
        ),
        (
            job(
                "DEAD_LETTERED",
                attempts=1001,
                max_attempts=1026,
                snoozes=1000,
                history=(past(9, 0, 1, "snoozed"),),
            ),
            "it was snoozed 1,000 times, which is the limit",
        ),
    ],
)
def test_dead_letter_names_the_limit_that_it_reached(dead: pulse.JobInfo, why: str) -> None:
    assert why in sentence_of(dead)
