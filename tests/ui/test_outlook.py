"""What happens to a job next, in one sentence."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pulse
from pulse_ui.views.jobs.outlook import outlook
from tests.rows import each_row
from tests.ui.jobs_to_show import at, job, past

NOW = at(100)
OPEN = pulse.DispatchStatus(False, "", None, {})


def topic(workers: int, ready: int = 0) -> pulse.TopicInfo:
    rates, latency = pulse.Rates(0, 0, 0, 0), pulse.Latency(0, 0, 0, 0)
    return pulse.TopicInfo("email", ready, 0, 0, 0, 0, None, rates, rates, False, workers, latency, latency)


def sentence_of(shown: pulse.JobInfo, of: pulse.TopicInfo | None = None, gate: Any = OPEN) -> str:
    return outlook(shown, of, gate, NOW).text(NOW)


WAITING = job(next_run_at=at(0))
LATER = job("RETRYING", attempts=2, next_run_at=at(340))


def test_job_without_workers_waits_for_one() -> None:
    assert sentence_of(WAITING, topic(0)) == "Waiting for a worker: none is connected for this topic."


def test_it_waits_for_a_free_worker_behind_others() -> None:
    expected = "Waiting for a free slot: 7 jobs of this topic are ready, 1 worker is connected."
    assert sentence_of(WAITING, topic(1, ready=7)) == expected


def test_outlook_without_permission_does_not_mention_workers() -> None:
    assert sentence_of(WAITING, None, None) == "Waiting for a worker to run attempt 1 of 5."


def test_the_next_attempt_has_its_time() -> None:
    assert sentence_of(LATER, topic(3)) == "Attempt 3 of 5 is due in 4 min."


def test_delayed_job_names_the_later_hindrance() -> None:
    paused = pulse.DispatchStatus(False, "", None, {"email": pulse.TopicPause("", at(0))})

    assert (
        sentence_of(LATER, topic(0))
        == "Attempt 3 of 5 is due in 4 min, but no worker is connected for this topic."
    )
    assert sentence_of(LATER, topic(3), paused) == "Attempt 3 of 5 is due in 4 min, but its topic is paused."


@each_row(
    "gate, sentence",
    [
        (
            pulse.DispatchStatus(True, "deploy", at(40), {}),
            "Paused: all dispatch was paused 1 min ago. The job waits until it is resumed.",
        ),
        (
            pulse.DispatchStatus(False, "", None, {"email": pulse.TopicPause("", at(40))}),
            "Paused: this topic was paused 1 min ago. The job waits until it is resumed.",
        ),
    ],
)
def test_a_pause_is_the_reason(gate: pulse.DispatchStatus, sentence: str) -> None:
    assert sentence_of(WAITING, topic(3), gate) == sentence


@each_row(
    "policy, running, held_until, next_start_at, sentence",
    [
        (
            pulse.FlowPolicy(limit=pulse.Concurrency(10)),
            *(10, None, None),
            "Waiting for the limit of its topic: 10 of 10 jobs are running.",
        ),
        (
            pulse.FlowPolicy(rate=pulse.Rate(100, per=timedelta(minutes=1))),
            *(3, None, at(130)),
            "Waiting for the rate of its topic: the next job starts in 30 s.",
        ),
        (
            pulse.FlowPolicy(limit=pulse.Concurrency(10)),
            *(10, at(160), None),
            "Held: jobs of this topic start again in 1 min.",
        ),
        (
            pulse.FlowPolicy(limit=pulse.Concurrency(10)),
            *(9, None, None),
            "Waiting for a free slot: 3 workers are connected for this topic.",
        ),
    ],
)
def test_a_limit_is_the_reason(
    policy: pulse.FlowPolicy,
    running: int,
    held_until: datetime | None,
    next_start_at: datetime | None,
    sentence: str,
) -> None:
    known = pulse.TopicLimits("email", policy, running, held_until, next_start_at)
    assert outlook(WAITING, topic(3), OPEN, NOW, known).text(NOW) == sentence


def test_a_pause_of_another_topic_is_ignored() -> None:
    gate = pulse.DispatchStatus(False, "", None, {"report": pulse.TopicPause("", at(40))})
    assert sentence_of(WAITING, topic(1), gate).startswith("Waiting for a free slot")


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
