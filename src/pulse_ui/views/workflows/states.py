"""The states of the jobs of a workflow: their kinds on pages, and words for one job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import pulse
from pulse_text import printable
from pulse_text.jobs import STATUS_MARKS, STATUS_NAMES, STATUS_WORDS, what_it_waits_for
from pulse_ui import tuning, words

SKIPPED, WAITING, SUSPENDED = "SKIPPED", "WAITING", "SUSPENDED"
"""The kinds besides the statuses: not needed; waiting for other jobs; sleeping, or waiting for a signal."""

MARKS: Mapping[str, str] = {**STATUS_MARKS, SKIPPED: "»", WAITING: "◌", SUSPENDED: "☾"}
NAMES: Mapping[str, str] = {
    **STATUS_NAMES,
    SKIPPED: "Skipped",
    WAITING: "Waiting",
    SUSPENDED: "Suspended",
}
ORDER = (
    *("DEAD_LETTERED", "RUNNING", "RETRYING", SUSPENDED, "PENDING", WAITING),
    *("COMPLETED", "CANCELED", SKIPPED),
)
"""Jobs that need attention first. A box of several jobs has the color of the first kind that it has."""

CONDITIONS: Mapping[str, str] = {"failed": "if failed", "always": "always"}
"""When a job runs, in a word or two. The default is not shown."""

_OF_DELETED = {"succeeded": "COMPLETED", "failed": "DEAD_LETTERED", "skipped": SKIPPED}
_LONGEST_ERROR = 200


def kind_of(job: pulse.WorkflowJob) -> str:
    """Return the status of a job or another kind. A deleted job has the kind of its outcome."""
    if not job.status:
        return _OF_DELETED.get(str(job.outcome), "CANCELED")
    if job.status == "CANCELED":
        return SKIPPED if "skipped" in (job.state, job.outcome) else "CANCELED"
    if job.status == "PENDING" and job.state == "waiting":
        return WAITING
    if job.status == "RETRYING" and job.waits_for is not None:
        return SUSPENDED
    return str(job.status)


def detail(job: pulse.WorkflowJob, now: datetime) -> str:
    """Return how the job stands: "running for 3 s", "retrying in 4 s", "dead-lettered: ValueError"."""
    said, reason = brief(job, now), reason_of(job)
    return f"{said}: {reason}" if reason else said


def brief(job: pulse.WorkflowJob, now: datetime) -> str:
    """Return the same without the reason."""
    kind = kind_of(job)
    if kind == WAITING:
        return f"waits for {words.count(job.unended_parents)} of {words.count(len(job.parents))}"
    if kind == "PENDING":
        return "ready" if job.next_run_at is None or job.next_run_at <= now else _until("due", job, now)
    if kind == SUSPENDED:
        return what_it_waits_for(
            job.waits_for or "",
            job.next_run_at,
            now,
            lambda rest: words.ago(now + rest, now).removeprefix("in "),
        )
    if kind == "RETRYING":
        return _until("retrying", job, now)
    if kind == SKIPPED:
        return "skipped"
    said = STATUS_WORDS[kind]
    if kind == "RUNNING" and job.started_at is not None and job.started_at < now:
        since = words.ago(job.started_at, now)
        return said if since == "now" else f"{said} for {since.removesuffix(' ago')}"
    if kind == "COMPLETED" and (seconds := took(job, now)) is not None:
        return f"{said} in {words.span(seconds)}"
    return said


def reason_of(job: pulse.WorkflowJob) -> str:
    """Return why a job failed or was canceled, in a line; else ""."""
    if not job.status:
        return "deleted"
    kind = kind_of(job)
    if kind == "CANCELED" and job.state == "dropped":
        return "a job that it waited for did not succeed"
    if kind == SKIPPED:
        return "not needed"
    if kind in ("DEAD_LETTERED", "RETRYING", "CANCELED"):
        return printable.summary(job.last_error or "")[:_LONGEST_ERROR]
    return ""


def took(job: pulse.WorkflowJob, now: datetime) -> float | None:
    """Return the run time of the last attempt in seconds, also while it runs; None if it did not start."""
    if job.started_at is None or kind_of(job) not in ("RUNNING", "COMPLETED", "DEAD_LETTERED"):
        return None
    end = now if job.finished_at is None else job.finished_at
    return max(0.0, (end - job.started_at).total_seconds())


def counted(jobs: Iterable[pulse.WorkflowJob]) -> dict[str, int]:
    """Return how many jobs are of each kind, in ORDER, without zeros."""
    found = dict.fromkeys(ORDER, 0)
    for job in jobs:
        found[kind_of(job)] += 1
    return {kind: number for kind, number in found.items() if number}


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Return the counts in words: "3 dead, 877 waiting, 9,120 completed"."""
    return ", ".join(f"{words.count(number)} {NAMES[kind].lower()}" for kind, number in counts.items())


def _until(said: str, job: pulse.WorkflowJob, now: datetime) -> str:
    if job.next_run_at is None or job.next_run_at <= now:
        return f"{said} now"
    if job.next_run_at > tuning.LAST_MOMENT:
        return "waits for a signal"
    return f"{said} {words.ago(job.next_run_at, now)}"
