"""What needs attention, most urgent first, and the thresholds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from urllib.parse import quote

from pulse import DispatchStatus, SchedulerStatus, TopicInfo, TopicLimits, WorkerInfo
from pulse_ui.views import words
from pulse_ui.views.overview.findings import WORKERS, Finding, Severity, about_all, about_topic, about_worker

OLD_READY = timedelta(minutes=2)
"""A free worker claims a job within milliseconds. A longer wait means too few workers."""
VERY_OLD_READY = timedelta(minutes=15)
"""More than a burst: the queue does not catch up."""
WORKERS_AWAY = timedelta(seconds=15)
"""A restarted or disconnected worker is back within seconds."""
FAILING = 0.10
"""One attempt in ten."""
MOSTLY_FAILING = 0.50
ENOUGH_ATTEMPTS = 20
"""Per hour. With fewer, two failures would raise an alarm."""
SCHEDULER_LATE = timedelta(seconds=10)
"""Every server looks for due schedules each second: ten rounds were missed."""
SCHEDULER_VERY_LATE = timedelta(minutes=1)

NO_LIMITS: Mapping[str, TopicLimits] = {}
_DISPATCH = ("/dispatch", "Details", "GetDispatchStatus")
_SCHEDULES = ("/schedules", "Show schedules", "ListSchedules")


def findings(
    topics: Sequence[TopicInfo],
    workers: Sequence[WorkerInfo],
    dispatch: DispatchStatus | None,
    scheduler: SchedulerStatus | None,
    now: datetime,
    limits: Mapping[str, TopicLimits] = NO_LIMITS,
) -> list[Finding]:
    """Return the findings. Arguments that the visitor may not see are empty or None."""
    # A pause explains waiting jobs, and is a separate finding.
    handed_out = [topic for topic in topics if not (topic.paused or (dispatch and dispatch.paused))]
    kinds = (
        _pauses(topics, dispatch, now),
        _lateness(scheduler),
        (finding for topic in handed_out for finding in _waiting(topic, limits.get(topic.topic), now)),
        (finding for topic in topics for finding in _dead_letters(topic)),
        (finding for topic in topics for finding in _failures(topic)),
        _gone_workers(workers, now),
        _silent_workers(workers, now),
    )
    ordered = [finding for kind in kinds for finding in sorted(kind, key=lambda one: -one.weight)]
    return sorted(ordered, key=lambda finding: -finding.severity)


def behind(topics: Sequence[TopicInfo], now: datetime) -> list[str]:
    """Return the topics whose oldest ready job has waited for long, the oldest first."""
    waiting = [(topic.oldest_ready_at, topic.topic) for topic in topics if topic.ready and topic.workers]
    return [
        name
        for since, name in sorted((since, name) for since, name in waiting if since)
        if now - since >= OLD_READY
    ]


# ------------------------------------------------------------ the queue


def _pauses(topics: Sequence[TopicInfo], dispatch: DispatchStatus | None, now: datetime) -> Iterator[Finding]:
    if dispatch is None:
        return
    ready = {topic.topic: topic.ready for topic in topics}
    if dispatch.paused:
        sentence = f"Everything {_paused(dispatch.paused_at, now)}; {_waiting_jobs(sum(ready.values()))}."
        yield about_all("paused", Severity.PROBLEM, sentence, _DISPATCH, inf)
    for name, pause in dispatch.topics.items():
        held = ready.get(name, 0)
        sentence = f"{_paused(pause.paused_at, now)}; {_waiting_jobs(held)}."
        yield about_topic("paused", name, Severity.WARNING, sentence, _DISPATCH, float(held))


def _paused(paused_at: datetime | None, now: datetime) -> str:
    if paused_at is None:
        return "is paused"
    return f"has been paused for {words.span(max(1, int((now - paused_at).total_seconds())))}"


def _waiting_jobs(ready: int) -> str:
    if not ready:
        return "no ready jobs wait"
    return f"{words.plural(ready, 'ready job waits', 'ready jobs wait')}"


def _lateness(scheduler: SchedulerStatus | None) -> Iterator[Finding]:
    if scheduler is None or scheduler.late_seconds < SCHEDULER_LATE.total_seconds():
        return
    is_very_late = scheduler.late_seconds >= SCHEDULER_VERY_LATE.total_seconds()
    late = words.span(scheduler.late_seconds)
    yield about_all(
        "scheduler",
        Severity.PROBLEM if is_very_late else Severity.WARNING,
        f"The scheduler is late: a schedule has been due for {late}.",
        _SCHEDULES,
        scheduler.late_seconds,
    )


# ------------------------------------------------------------ topics


def _waiting(topic: TopicInfo, known: TopicLimits | None, now: datetime) -> Iterator[Finding]:
    if not topic.ready or topic.oldest_ready_at is None:
        return
    age = now - topic.oldest_ready_at
    seconds = age.total_seconds()
    if not topic.workers:
        if age >= WORKERS_AWAY:
            ready = words.plural(topic.ready, "ready job")
            sentence = f"has {ready} and no worker, for {words.span(seconds)}."
            yield about_topic("starving", topic.topic, Severity.PROBLEM, sentence, WORKERS, seconds)
    elif age >= OLD_READY and known is not None and (reason := _limited(known)):
        yield about_topic(
            "limited",
            topic.topic,
            Severity.WARNING,
            f"{reason}: its oldest ready job has waited {words.span(seconds)}, "
            f"and {words.plural(topic.ready, 'job is', 'jobs are')} ready.",
            (f"/limits?topic={quote(topic.topic, safe='')}", "Show limits", "ListLimits"),
            seconds,
        )
    elif age >= OLD_READY:
        yield about_topic(
            "old",
            topic.topic,
            Severity.PROBLEM if age >= VERY_OLD_READY else Severity.WARNING,
            f"is falling behind: its oldest ready job has waited {words.span(seconds)}, "
            f"and {words.plural(topic.ready, 'job is', 'jobs are')} ready.",
            (f"/jobs?topic={quote(topic.topic, safe='')}&status=PENDING", "Show waiting jobs", "ListJobs"),
            seconds,
        )


def _limited(known: TopicLimits) -> str:
    """Return which limit keeps jobs of the topic from starting now, if one does."""
    if known.held_until is not None:
        return "is held"
    if known.next_start_at is not None:
        return "has spent its rate"
    limit = known.policy.limit
    return "is at its limit" if limit is not None and known.running >= limit.limit else ""


def _dead_letters(topic: TopicInfo) -> Iterator[Finding]:
    hour, minute = topic.last_hour.dead_lettered, topic.last_minute.dead_lettered
    died = max(hour, minute)
    if not died:
        return
    lately = f", {words.count(minute)} of them in the last minute" if minute else ""
    yield about_topic(
        "dead",
        topic.topic,
        # In the last minute: it is still happening.
        Severity.PROBLEM if minute else Severity.WARNING,
        f"dead-lettered {words.plural(died, 'job')} in the last hour{lately}.",
        (f"/dead-letters?topic={quote(topic.topic, safe='')}", "Show errors", "ListDeadLetterGroups"),
        float(died),
    )


def _failures(topic: TopicInfo) -> Iterator[Finding]:
    failed = topic.last_hour.failed
    attempts = topic.last_hour.completed + failed
    if attempts < ENOUGH_ATTEMPTS or failed < FAILING * attempts:
        return
    rate = failed / attempts
    yield about_topic(
        "failing",
        topic.topic,
        Severity.PROBLEM if rate >= MOSTLY_FAILING else Severity.WARNING,
        f"fails {words.percent(rate)} of its attempts: "
        f"{words.count(failed)} of {words.count(attempts)} in the last hour.",
        (f"/jobs?topic={quote(topic.topic, safe='')}&status=RETRYING", "Show retrying jobs", "ListJobs"),
        rate * 100,
    )


# ------------------------------------------------------------ workers


def _gone_workers(workers: Sequence[WorkerInfo], now: datetime) -> Iterator[Finding]:
    for worker in workers:
        if worker.connected_at is not None or not worker.held_count:
            continue
        until = max((job.lease_until for job in worker.held if job.lease_until), default=None)
        if until is None:
            freed = "They are reaped when their leases expire"
        elif until > now:
            freed = f"They are reaped within {words.span((until - now).total_seconds())}"
        else:
            freed = "Their leases have expired, so the watchdog reaps them next"
        held = words.plural(worker.held_count, "job")
        sentence = f"holds {held} but is not connected. {freed}, unless it reconnects."
        yield about_worker("worker", worker.worker_id, Severity.WARNING, sentence, float(worker.held_count))


def _silent_workers(workers: Sequence[WorkerInfo], now: datetime) -> Iterator[Finding]:
    """Yield connected workers whose heartbeats do not arrive: frozen, or cut off in one direction."""
    for worker in workers:
        expired = sum(1 for job in worker.held if job.lease_until is not None and job.lease_until < now)
        if worker.connected_at is None or not expired:
            continue
        ended = words.plural(expired, "lease")
        sentence = f"sends no heartbeats: {ended} expired. Other workers will run its jobs."
        yield about_worker("silent", worker.worker_id, Severity.WARNING, sentence, float(expired))
