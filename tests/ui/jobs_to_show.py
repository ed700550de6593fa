"""Jobs as pulsed returns them, for views."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pulse
from pulse_ui import words
from pulse_ui.jobs.views import Outlook

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """So many seconds after the job was submitted."""
    return START + timedelta(seconds=seconds)


def job(status: str = "PENDING", **facts: Any) -> pulse.JobInfo:
    """A job submitted at START; facts that are not given are empty."""
    defaults: dict[str, Any] = {
        "id": "019a0000-0000-7000-8000-000000000001",
        "status": pulse.JobStatus(status),
        "topic": "email",
        "priority": 0,
        "attempts": 0,
        "max_attempts": 5,
        "submitted_at": START,
        "metadata": {},
        "payload": b"",
        "history": (),
    }
    optional = ("next_run_at", "started_at", "finished_at", "lease_until", "worker_id", "last_error")
    keys = ("idempotency_key", "schedule_id", "error_group")
    return pulse.JobInfo(**{**dict.fromkeys((*optional, *keys)), **defaults, **facts})


def past(
    number: int, start: float, end: float, outcome: str = "failed", error: str = "boom"
) -> pulse.Attempt:
    """An attempt of that span."""
    return pulse.Attempt(number, "worker-1", at(start), at(end), outcome, error)


def text_of(shown: Outlook, now: datetime) -> str:
    """The sentence as the page has it."""
    middle = "" if shown.moment is None else f" {words.ago(shown.moment, now)}"
    return f"{shown.before}{middle}{shown.after}"
