"""What happens to a job next, in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

import pulse
from pulse_ui.views.jobs.outlook import outlook
from tests.ui.jobs_to_show import at, job, past

NOW = at(100)
OPEN = pulse.DispatchStatus(False, "", None, {})


def topic(workers: int, ready: int = 0) -> pulse.TopicInfo:
    rates, latency = pulse.Rates(0, 0, 0, 0), pulse.Latency(0, 0, 0, 0)
    return pulse.TopicInfo("email", ready, 0, 0, 0, 0, None, rates, rates, False, workers, latency, latency)


def told(shown: pulse.JobInfo, of: pulse.TopicInfo | None = None, gate: Any = OPEN) -> str:
    return outlook(shown, of, gate, NOW).text(NOW)


WAITING = job(next_run_at=at(0))
LATER = job("RETRYING", attempts=2, next_run_at=at(340))


def test_it_waits_for_a_worker_where_there_is_none() -> None:
    assert told(WAITING, topic(0)) == "Waits for a worker: none is connected for this topic."


def test_it_waits_for_a_free_worker_behind_others() -> None:
    expected = "Waits for a free worker: 7 jobs of this topic are ready, 1 worker is connected."
    assert told(WAITING, topic(1, ready=7)) == expected


def test_who_may_not_see_workers_is_told_nothing_of_them() -> None:
    assert told(WAITING, None, None) == "Waits for a worker to take it. Attempt 1 of 5 starts then."


def test_the_next_attempt_has_its_time() -> None:
    assert told(LATER, topic(3)) == "Attempt 3 of 5 is due in 4 min."


def test_what_will_be_in_the_way_is_told_before_it_is() -> None:
    paused = pulse.DispatchStatus(False, "", None, {"email": pulse.TopicPause("", at(0))})

    assert (
        told(LATER, topic(0)) == "Attempt 3 of 5 is due in 4 min, but no worker is connected for this topic."
    )
    assert told(LATER, topic(3), paused) == "Attempt 3 of 5 is due in 4 min, but its topic is paused."


@pytest.mark.parametrize(
    ("gate", "sentence"),
    [
        (
            pulse.DispatchStatus(True, "deploy", at(40), {}),
            "Paused: all dispatch was paused 1 min ago. It waits until somebody resumes it.",
        ),
        (
            pulse.DispatchStatus(False, "", None, {"email": pulse.TopicPause("", at(40))}),
            "Paused: this topic was paused 1 min ago. It waits until somebody resumes it.",
        ),
    ],
    ids=["everything", "its topic"],
)
def test_a_pause_is_the_reason(gate: pulse.DispatchStatus, sentence: str) -> None:
    assert told(WAITING, topic(3), gate) == sentence


def test_a_pause_of_another_topic_is_none_of_its_business() -> None:
    gate = pulse.DispatchStatus(False, "", None, {"report": pulse.TopicPause("", at(40))})
    assert told(WAITING, topic(1), gate).startswith("Waits for a free worker")


def test_a_running_job_tells_what_a_failure_would_lead_to() -> None:
    early = job("RUNNING", attempts=2, lease_until=at(120))
    last = job("RUNNING", attempts=5, lease_until=at(120))

    assert told(early) == "Runs. If it fails, attempt 3 of 5 follows."
    assert told(last) == "Runs. If it fails, it is dead-lettered: this is the last attempt."


def test_a_worker_that_fell_silent_is_told() -> None:
    silent = job("RUNNING", attempts=2, lease_until=at(75))
    assert (
        told(silent)
        == "Its worker has gone silent: the lease ended 25 s ago, so attempt 3 of 5 follows soon."
    )


def test_a_dead_letter_tells_whether_its_handler_gave_it_up() -> None:
    spent = job("DEAD_LETTERED", attempts=5, history=(past(5, 1, 2),))
    given_up = job("DEAD_LETTERED", attempts=1, history=(past(1, 1, 2, "discarded"),))

    assert told(spent).startswith("Dead: all 5 attempts failed.")
    assert told(given_up).startswith("Dead: its handler gave it up.")


def test_the_end_is_told_as_such() -> None:
    assert told(job("COMPLETED", attempts=1)) == "Finished by attempt 1. Nothing happens any more."
    assert told(job("CANCELED")) == "Canceled. It does not run unless somebody retries it."


def test_the_reason_of_a_cancel_is_told_and_no_error_is_taken_for_one() -> None:
    waited = job("CANCELED", last_error="wrong tenant")
    ran = job("CANCELED", last_error="too slow", history=(past(1, 1, 2, "canceled", "too slow"),))
    failed_before = job("CANCELED", last_error="boom", history=(past(1, 1, 2, "failed", "boom"),))

    assert told(waited).startswith("Canceled: “wrong tenant”. It does not run")
    assert told(ran).startswith("Canceled: “too slow”. It does not run")
    assert told(failed_before).startswith("Canceled. It does not run")
