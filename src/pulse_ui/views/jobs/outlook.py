"""What happens to a job next, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pulse
from pulse_text import printable
from pulse_text.jobs import signals_in_a_line
from pulse_ui import words

_LONGEST_REASON = 300
# Causes that do not end by the normal course of the queue.
_ALARMING = frozenset(
    {"dispatch_paused", "topic_paused", "topic_held", "no_worker", "workers_quiet"}
    | {"worker_gone", "worker_silent", "locked", "overdue"}
)


@dataclass(frozen=True, slots=True)
class Outlook:
    """A sentence, optionally with a moment that the browser keeps up to date."""

    before: str
    moment: datetime | None = None
    after: str = ""
    tone: str = "info"
    """info, good, warn or bad."""
    remedy: str = ""
    """What must happen or be done."""


def outlook(job: pulse.JobInfo, now: datetime, why: pulse.Explanation | None = None) -> Outlook:
    """Return what happens next.

    `why` is the server's explanation, of an unfinished job. It is None if the visitor may not ask, or if the
    server is older or cannot answer.
    """
    match job.status:
        case pulse.JobStatus.PENDING | pulse.JobStatus.RETRYING:
            return _of_waiting(job, now) if why is None else _explained(why, now)
        case pulse.JobStatus.RUNNING:
            return _explained(why, now) if why is not None and why.cause else _of_running(job, now)
        case pulse.JobStatus.COMPLETED:
            return Outlook(f"Completed by attempt {job.attempts}.", tone="good")
        case pulse.JobStatus.CANCELED:
            return _of_canceled(job)
        case _:
            return _of_dead(job)


def _explained(why: pulse.Explanation, now: datetime) -> Outlook:
    sentence, remedy = printable.one_line(why.sentence), printable.one_line(why.remedy)
    tone = "warn" if why.cause in _ALARMING else "info"
    if why.expected_at is None or why.expected_at <= now:
        return Outlook(sentence, tone=tone, remedy=remedy)
    return Outlook(f"{sentence} Expected", why.expected_at, ".", tone, remedy)


def _of_waiting(job: pulse.JobInfo, now: datetime) -> Outlook:
    if job.waits_for_jobs:
        return Outlook("Waits for other jobs of its workflow.")
    if job.waits_for is not None:
        return _of_suspended(job, job.waits_for)
    if job.next_run_at is not None and job.next_run_at > now:
        return Outlook(f"{_next_attempt(job)} is due", job.next_run_at, ".")
    return Outlook(f"Waiting for a worker to run {_next_attempt(job).lower()}.")


def _of_suspended(job: pulse.JobInfo, signal: str) -> Outlook:
    if not signal:
        return Outlook("Sleeps: it goes on", job.next_run_at, ".")
    waits = f"Waits for the signal “{signals_in_a_line(signal)[:_LONGEST_REASON]}”"
    if job.next_run_at is None:
        return Outlook(f"{waits}.")
    return Outlook(f"{waits}, and goes on without it", job.next_run_at, ".")


def _of_running(job: pulse.JobInfo, now: datetime) -> Outlook:
    is_last = job.attempts >= job.max_attempts
    then = "it is dead-lettered" if is_last else f"attempt {job.attempts + 1} of {job.max_attempts} follows"
    if job.lease_until is not None and job.lease_until < now:
        silent = "Its worker sends no heartbeats: the lease expired"
        return Outlook(silent, job.lease_until, f", so {then} soon.", "warn")
    return Outlook(f"Running. If it fails, {then}{': this is the last attempt' if is_last else ''}.")


def _of_canceled(job: pulse.JobInfo) -> Outlook:
    last = job.history[-1] if job.history else None
    reason = job.last_error or ""
    if last is not None and last.outcome != "canceled" and reason.startswith(last.error):
        reason = ""  # the error of the previous attempt
    elif last is not None and last.outcome == "canceled":
        reason = last.error
    given = f" “{printable.one_line(reason)[:_LONGEST_REASON]}”." if reason else ""
    return Outlook(f"Canceled{':' if given else '.'}{given} It does not run unless it is retried.")


def _of_dead(job: pulse.JobInfo) -> Outlook:
    last = job.history[-1].outcome if job.history else ""
    if last == "discarded":
        why = "its handler discarded it"
    elif last == "snoozed":
        why = f"it was snoozed {words.count(job.snoozes)} times, which is the limit"
    elif last == "suspended":
        why = "it has as many steps as a job may have"
    elif last == "lease_expired" and job.attempts < job.max_attempts:
        why = f"{words.plural(job.crashes, 'attempt')} ended in a lost lease, which is the limit"
    else:
        why = "its only attempt failed" if job.attempts == 1 else f"all {job.attempts} attempts failed"
    return Outlook(f"Dead-lettered: {why}. It does not run again unless it is retried.", tone="bad")


def _next_attempt(job: pulse.JobInfo) -> str:
    return f"Attempt {job.attempts + 1} of {job.max_attempts}"
