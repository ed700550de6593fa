"""What happens to a job next, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pulse
from pulse_text import printable
from pulse_text.jobs import signals_in_a_line
from pulse_ui.views import words
from pulse_ui.views.workflows.waits import Waits

_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Outlook:
    """A sentence, optionally with a moment that the browser keeps up to date."""

    before: str
    moment: datetime | None = None
    after: str = ""
    tone: str = "info"
    """info, good, warn or bad."""

    def text(self, now: datetime) -> str:
        """Return the whole sentence."""
        middle = "" if self.moment is None else f" {words.ago(self.moment, now)}"
        return f"{self.before}{middle}{self.after}"


def outlook(
    job: pulse.JobInfo,
    topic: pulse.TopicInfo | None,
    dispatch: pulse.DispatchStatus | None,
    now: datetime,
    known: pulse.TopicLimits | None = None,
    waits: Waits | None = None,
) -> Outlook:
    """Return what happens next. Arguments are None if the visitor may not see them.

    `waits` are the jobs that it waits for, of a job that `waits_for_jobs`.
    """
    match job.status:
        case pulse.JobStatus.PENDING if job.waits_for_jobs:
            return _of_child(waits, now)
        case pulse.JobStatus.PENDING | pulse.JobStatus.RETRYING:
            return _of_waiting(job, topic, dispatch, now, known)
        case pulse.JobStatus.RUNNING:
            return _of_running(job, now)
        case pulse.JobStatus.COMPLETED:
            return Outlook(f"Completed by attempt {job.attempts}.", tone="good")
        case pulse.JobStatus.CANCELED:
            return _of_canceled(job)
        case _:
            return _of_dead(job)


def _of_waiting(
    job: pulse.JobInfo,
    topic: pulse.TopicInfo | None,
    dispatch: pulse.DispatchStatus | None,
    now: datetime,
    known: pulse.TopicLimits | None,
) -> Outlook:
    if job.waits_for is not None:
        return _of_suspended(job, job.waits_for)
    is_due = job.next_run_at is None or job.next_run_at <= now
    if not is_due:
        hindrance = ""
        if dispatch is not None and dispatch.is_paused(job.topic):
            hindrance = ", but dispatch is paused" if dispatch.paused else ", but its topic is paused"
        elif topic is not None and not topic.workers:
            hindrance = ", but no worker is connected for this topic"
        tone = "warn" if hindrance else "info"
        return Outlook(f"{_next_attempt(job)} is due", job.next_run_at, f"{hindrance}.", tone)
    if dispatch is not None and dispatch.is_paused(job.topic):
        return _of_paused(job.topic, dispatch)
    if topic is None:
        return Outlook(f"Waiting for a worker to run {_next_attempt(job).lower()}.")
    if not topic.workers:
        return Outlook("Waiting for a worker: none is connected for this topic.", tone="warn")
    if known is not None and (limited := _of_limited(known)) is not None:
        return limited
    connected = f"{words.plural(topic.workers, 'worker')} {'is' if topic.workers == 1 else 'are'} connected"
    if topic.ready > 1:
        line = f"{words.count(topic.ready)} jobs of this topic are ready, {connected}."
        return Outlook(f"Waiting for a free slot: {line}")
    return Outlook(f"Waiting for a free slot: {connected} for this topic.")


def _of_child(waits: Waits | None, now: datetime) -> Outlook:
    if waits is None or not waits.parents.jobs:
        return Outlook("Waits for other jobs of its workflow.")
    return Outlook(f"Waits for {waits.in_words(now)}.")


def _of_suspended(job: pulse.JobInfo, signal: str) -> Outlook:
    if not signal:
        return Outlook("Sleeps: it goes on", job.next_run_at, ".")
    waits = f"Waits for the signal “{signals_in_a_line(signal)[:_LONGEST_REASON]}”"
    if job.next_run_at is None:
        return Outlook(f"{waits}.")
    return Outlook(f"{waits}, and goes on without it", job.next_run_at, ".")


def _of_paused(topic: str, dispatch: pulse.DispatchStatus) -> Outlook:
    after = ". The job waits until it is resumed."
    if dispatch.paused:
        return Outlook("Paused: all dispatch was paused", dispatch.paused_at, after, "warn")
    return Outlook("Paused: this topic was paused", dispatch.topics[topic].paused_at, after, "warn")


def _of_limited(known: pulse.TopicLimits) -> Outlook | None:
    """Return what keeps jobs of the topic from starting. The lane of a job may keep it longer."""
    if known.held_until is not None:
        return Outlook("Held: jobs of this topic start again", known.held_until, ".", "warn")
    if known.next_start_at is not None:
        return Outlook("Waiting for the rate of its topic: the next job starts", known.next_start_at, ".")
    limit = known.policy.limit
    if limit is not None and known.running >= limit.limit:
        counted = f"{words.count(known.running)} of {words.count(limit.limit)} jobs are running"
        return Outlook(f"Waiting for the limit of its topic: {counted}.")
    return None


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
