"""`pulse jobs get`: snoozes, crashes, time limits, and until when a job may start."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import pulse as sdk
from pulse_cli.jobs.views import describe_job
from tests.cli.command_line import CommandLine

NOW = datetime.now(UTC)


def described(**facts: object) -> str:
    """The description of a job with these facts."""
    optional = ("next_run_at", "started_at", "finished_at", "lease_until", "worker_id", "last_error")
    fields = {
        **dict.fromkeys((*optional, "idempotency_key", "schedule_id", "error_group")),
        "id": "0199c0de-0000-7000-8000-000000000001",
        "status": sdk.JobStatus.RETRYING,
        "topic": "mail",
        "priority": 0,
        "attempts": 3,
        "max_attempts": 27,
        "submitted_at": NOW,
        "metadata": {},
        "payload": b"",
        "history": (),
        **facts,
    }
    lines = describe_job(sdk.JobInfo(**fields))  # type: ignore[arg-type]
    return "\n".join("".join(cell.text for cell in line) for line in lines)


def test_attempts_are_counted_with_what_became_of_them() -> None:
    assert "Attempts   3 of 27\n" in described()
    assert "Attempts   3 of 27, 2 snoozed\n" in described(snoozes=2)
    assert "3 of 27, 2 snoozed, 1 crash\n" in described(snoozes=2, crashes=1)
    assert "3 of 27, 3 crashes\n" in described(crashes=3)


def test_job_that_waits_shows_until_when_it_may_start() -> None:
    later = NOW + timedelta(hours=1)
    assert "Start by" in described(start_by=later, status=sdk.JobStatus.PENDING)
    assert "Start by" not in described(start_by=later, status=sdk.JobStatus.CANCELED)


def test_job_that_waits_for_other_jobs_has_no_next_run() -> None:
    later = NOW + timedelta(hours=1)
    shown = described(
        status=sdk.JobStatus.PENDING, next_run_at=later, waits_for_jobs=True, workflow_id="0199c0de"
    )
    assert "State      waits for other jobs\n" in shown
    assert "Workflow   0199c0de\n" in shown
    assert "Next run" not in shown
    assert "is due" not in shown


def test_outcomes_have_words() -> None:
    for outcome, words in (("timed_out", "attempt 1 timed out"), ("snoozed", "attempt 1 snoozed")):
        past = sdk.Attempt(1, "w1", NOW, NOW + timedelta(seconds=1), outcome, "why")
        assert f"{words} after 1s on w1" in described(history=(past,))


def test_snoozed_job_is_shown_with_its_snooze(working: CommandLine) -> None:
    job = working("submit", "later", "--wait", "-o", "json").json
    assert (job["status"], job["attempts"], job["max_attempts"], job["snoozes"]) == ("COMPLETED", 1, 25, 1)
    assert [past["outcome"] for past in job["history"]] == ["snoozed"]
    shown = working("jobs", "get", job["id"]).out
    assert "1 of 25, 1 snoozed" in shown
    assert "attempt 1 snoozed" in shown
    assert "the shop is closed" in shown


def test_attempt_that_ran_into_its_limit_is_shown_as_such(working: CommandLine) -> None:
    job = working("submit", "endless", "--max-attempts", "1", "--wait", "-o", "json").json
    assert (job["status"], job["crashes"]) == ("DEAD_LETTERED", 0)
    assert [past["outcome"] for past in job["history"]] == ["timed_out"]
    assert "attempt 1 timed out" in working("jobs", "get", job["id"]).out


def test_job_that_may_start_for_some_time_only_is_canceled_after_it(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    job = pulse("jobs", "get", stored(topic, "--start-within", "1h"), "-o", "json").json
    start_by, submitted = (datetime.fromisoformat(job[key]) for key in ("start_by", "submitted_at"))
    # From when it is due, which is a microsecond or so after it was submitted.
    assert timedelta(hours=1) <= start_by - submitted < timedelta(hours=1, minutes=1)
    assert "Start by" in pulse("jobs", "get", job["id"]).out

    result = pulse("submit", topic, "--start-within", "50ms", "--wait", "-o", "json")
    assert (result.code != 0, result.json["status"]) == (True, "CANCELED")
    assert "not started by" in result.json["last_error"].lower()
    many = pulse("submit", topic, "--start-within", "1h", "--count", "2", "-o", "json").json
    assert all(pulse("jobs", "get", one["id"], "-o", "json").json["start_by"] for one in many)


def test_list_without_the_reasons_is_still_a_list(
    pulse: CommandLine, topic: str, stored: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = stored(topic)

    def fail(*_: object) -> None:
        raise sdk.InternalError("The server failed.")

    monkeypatch.setattr(sdk.SyncPulse, "explain_jobs", fail)
    for command in (["list", "--topic", topic], ["find", job_id], ["get", job_id]):
        result = pulse("jobs", *command)
        assert (result.code, job_id in result.out) == (0, True)
        is_warned = "why jobs wait cannot be shown: The server failed." in result.err
        assert is_warned == (command[0] != "get")
