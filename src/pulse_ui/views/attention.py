"""What needs somebody, most urgent first: each finding is one sentence and a place to act."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from math import inf
from urllib.parse import quote

from pulse import DispatchStatus, SchedulerStatus, TopicInfo, WorkerInfo
from pulse_ui.views import foreign_text, words
from pulse_ui.views.charts import percent

OLD_READY = timedelta(minutes=2)
"""A free worker takes a job within milliseconds. So long means that there are too few of them."""
VERY_OLD_READY = timedelta(minutes=15)
"""No burst: at this pace the queue does not recover by itself."""
WORKERS_AWAY = timedelta(seconds=15)
"""A worker that was restarted or lost its connection is back within seconds; before, nothing is missing."""
FAILING = 0.10
"""One attempt in ten. Retries hide less than that from everybody but the logs."""
MOSTLY_FAILING = 0.50
ENOUGH_ATTEMPTS = 20
"""In an hour. Of fewer, two unlucky ones would be an alarm."""
SCHEDULER_LATE = timedelta(seconds=10)
"""Due schedules are looked for every second, by every server: ten rounds in a row came to nothing."""
SCHEDULER_VERY_LATE = timedelta(minutes=1)

MOST_OF_A_KIND = 4
"""Of more, only the heaviest are told one by one: a hundred topics without a worker have one cause, and would
hide everything else."""
_TOPICS = ("#topics", "See the topics", "ListTopics")
_WORKERS = ("/workers", "See the workers", "ListWorkers")
_MANY = {
    "paused": "more topics are paused.",
    "starving": "more topics have ready jobs and no worker.",
    "old": "more topics fall behind.",
    "dead": "more topics lost jobs to the dead letters in the last hour.",
    "failing": "more topics fail often.",
    "worker": "more workers hold jobs but are connected to no server.",
    "silent": "more workers have gone silent.",
}


class Severity(IntEnum):
    WARNING = 1
    PROBLEM = 2

    @property
    def mark(self) -> str:
        return {Severity.WARNING: "!", Severity.PROBLEM: "✕"}[self]


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    about: str
    """Tells it from the others of its kind, from one look to the next."""
    severity: Severity
    subject: str
    """The topic or the worker; empty if it is about all."""
    sentence: str
    """What is said of the subject."""
    path: str
    path_text: str
    needs: str
    """The call of the contract that the place to act needs."""
    weight: float = 0.0
    """Among those of its kind, the heaviest comes first."""
    is_topic: bool = False
    """True if the subject is a topic."""

    @property
    def key(self) -> str:
        return f"{self.kind}-{self.about}"


def findings(
    topics: Sequence[TopicInfo],
    workers: Sequence[WorkerInfo],
    dispatch: DispatchStatus | None,
    scheduler: SchedulerStatus | None,
    now: datetime,
) -> list[Finding]:
    """Return what needs somebody. What the visitor may not see is empty or None; nothing is said of it."""
    # A pause explains what waits, and is a finding of its own.
    handed_out = [topic for topic in topics if not (topic.paused or (dispatch and dispatch.paused))]
    kinds = (
        _pauses(topics, dispatch, now),
        _lateness(scheduler),
        (finding for topic in handed_out for finding in _waiting(topic, now)),
        (finding for topic in topics for finding in _dead_letters(topic)),
        (finding for topic in topics for finding in _failures(topic)),
        _gone_workers(workers, now),
        _silent_workers(workers, now),
    )
    ordered = [finding for kind in kinds for finding in sorted(kind, key=lambda one: -one.weight)]
    return sorted(ordered, key=lambda finding: -finding.severity)


def summed_up(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings; of a kind that has too many, the heaviest, and how many more there are."""
    told: list[Finding] = []
    for kind, severity in dict.fromkeys((finding.kind, finding.severity) for finding in found):
        alike = [finding for finding in found if (finding.kind, finding.severity) == (kind, severity)]
        if len(alike) <= MOST_OF_A_KIND:
            told += alike
            continue
        kept = MOST_OF_A_KIND - 1
        told += alike[:kept]
        sentence = f"{words.count(len(alike) - kept)} {_MANY[kind]}"
        path, path_text, needs = _TOPICS if alike[0].is_topic else _WORKERS
        told.append(Finding(kind, f"+{severity}", severity, "", sentence, path, path_text, needs))
    return told


def _pauses(topics: Sequence[TopicInfo], dispatch: DispatchStatus | None, now: datetime) -> Iterator[Finding]:
    if dispatch is None:
        return
    ready = {topic.topic: topic.ready for topic in topics}
    if dispatch.paused:
        held = sum(ready.values())
        sentence = f"Everything {_paused(dispatch.paused_at, now)}; {_held_back(held)}."
        yield Finding(
            "paused",
            "",
            Severity.PROBLEM,
            "",
            sentence,
            "/dispatch",
            "Details",
            "GetDispatchStatus",
            inf,
        )
    for name, pause in dispatch.topics.items():
        held = ready.get(name, 0)
        yield Finding(
            "paused",
            name,
            Severity.WARNING,
            name,
            f"{_paused(pause.paused_at, now)}; {_held_back(held)}.",
            "/dispatch",
            "Details",
            "GetDispatchStatus",
            float(held),
            is_topic=True,
        )


def _paused(paused_at: datetime | None, now: datetime) -> str:
    if paused_at is None:
        return "is paused"
    return f"has been paused for {words.span(max(1, int((now - paused_at).total_seconds())))}"


def _held_back(ready: int) -> str:
    if not ready:
        return "nothing waits behind it"
    return f"{words.plural(ready, 'ready job waits', 'ready jobs wait')} behind it"


def _lateness(scheduler: SchedulerStatus | None) -> Iterator[Finding]:
    if scheduler is None or scheduler.late_seconds < SCHEDULER_LATE.total_seconds():
        return
    is_very_late = scheduler.late_seconds >= SCHEDULER_VERY_LATE.total_seconds()
    yield Finding(
        "scheduler",
        "",
        Severity.PROBLEM if is_very_late else Severity.WARNING,
        "",
        f"The scheduler is late: a schedule has been due for {words.span(scheduler.late_seconds)} "
        "and did not fire.",
        "/schedules",
        "See the schedules",
        "ListSchedules",
        scheduler.late_seconds,
    )


def _gone_workers(workers: Sequence[WorkerInfo], now: datetime) -> Iterator[Finding]:
    for worker in workers:
        if worker.connected_at is not None or not worker.held_count:
            continue
        until = max((job.lease_until for job in worker.held if job.lease_until), default=None)
        if until is None:
            freed = "They are freed when their leases end"
        elif until > now:
            freed = f"They are freed within {words.span((until - now).total_seconds())}"
        else:
            freed = "Their leases are over, so they are freed at the next round of the watchdog"
        held = words.plural(worker.held_count, "job")
        yield Finding(
            "worker",
            quote(worker.worker_id),
            Severity.WARNING,
            foreign_text.one_line(worker.worker_id),
            f"holds {held} but is connected to no server. {freed}, unless it comes back.",
            *_WORKERS,
            float(worker.held_count),
        )


def _silent_workers(workers: Sequence[WorkerInfo], now: datetime) -> Iterator[Finding]:
    """Workers that are connected, and have not beaten what they hold: frozen, or cut off in one direction."""
    for worker in workers:
        lapsed = sum(1 for job in worker.held if job.lease_until is not None and job.lease_until < now)
        if worker.connected_at is None or not lapsed:
            continue
        yield Finding(
            "silent",
            quote(worker.worker_id),
            Severity.WARNING,
            foreign_text.one_line(worker.worker_id),
            f"gives no sign of life: {words.plural(lapsed, 'lease')} ended. Others will run what it held.",
            *_WORKERS,
            float(lapsed),
        )


def _waiting(topic: TopicInfo, now: datetime) -> Iterator[Finding]:
    if not topic.ready or topic.oldest_ready_at is None:
        return
    age = now - topic.oldest_ready_at
    seconds = age.total_seconds()
    where = f"/jobs?topic={quote(topic.topic, safe='')}&status=PENDING"
    if not topic.workers:
        if age >= WORKERS_AWAY:
            ready = words.plural(topic.ready, "ready job")
            yield Finding(
                "starving",
                topic.topic,
                Severity.PROBLEM,
                topic.topic,
                f"has {ready} and no worker, for {words.span(seconds)}.",
                *_WORKERS,
                seconds,
                is_topic=True,
            )
    elif age >= OLD_READY:
        yield Finding(
            "old",
            topic.topic,
            Severity.PROBLEM if age >= VERY_OLD_READY else Severity.WARNING,
            topic.topic,
            f"falls behind: its oldest ready job has waited {words.span(seconds)}, "
            f"and {words.plural(topic.ready, 'job is', 'jobs are')} ready.",
            where,
            "See what waits",
            "ListJobs",
            seconds,
            is_topic=True,
        )


def _dead_letters(topic: TopicInfo) -> Iterator[Finding]:
    hour, minute = topic.last_hour.dead_lettered, topic.last_minute.dead_lettered
    died = max(hour, minute)
    if not died:
        return
    lately = f", {words.count(minute)} of them in the last minute" if minute else ""
    yield Finding(
        "dead",
        topic.topic,
        # In the last minute: it goes on while you read this.
        Severity.PROBLEM if minute else Severity.WARNING,
        topic.topic,
        f"lost {words.plural(died, 'job')} to the dead letters in the last hour{lately}.",
        f"/dead-letters?topic={quote(topic.topic, safe='')}",
        "See why",
        "ListDeadLetterGroups",
        float(died),
        is_topic=True,
    )


def _failures(topic: TopicInfo) -> Iterator[Finding]:
    attempts = topic.last_hour.completed + topic.last_hour.failed
    if attempts < ENOUGH_ATTEMPTS or topic.last_hour.failed < FAILING * attempts:
        return
    rate = topic.last_hour.failed / attempts
    yield Finding(
        "failing",
        topic.topic,
        Severity.PROBLEM if rate >= MOSTLY_FAILING else Severity.WARNING,
        topic.topic,
        f"fails {percent(rate)} of its attempts: "
        f"{words.count(topic.last_hour.failed)} of {words.count(attempts)} in the last hour.",
        f"/jobs?topic={quote(topic.topic, safe='')}&status=RETRYING",
        "See what is retried",
        "ListJobs",
        rate * 100,
        is_topic=True,
    )
