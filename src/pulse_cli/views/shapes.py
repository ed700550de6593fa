"""The shapes of JSON output. Keys are only ever added; times are ISO 8601 in UTC, or null."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pulse_cli.views.progress import progress_shape
from pulse_text.times import format_exact, iso

if TYPE_CHECKING:
    import pulse
    from pulse_cli.views.overview_snapshot import Snapshot

Shape = dict[str, Any]


def job_shape(job: pulse.JobInfo) -> Shape:
    """A job in a list."""
    return {
        "id": job.id,
        "topic": job.topic,
        "status": str(job.status),
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "priority": job.priority,
        "submitted_at": time_shape(job.submitted_at),
        "next_run_at": time_shape(job.next_run_at),
        "started_at": time_shape(job.started_at),
        "finished_at": time_shape(job.finished_at),
        "lease_until": time_shape(job.lease_until),
        "worker_id": job.worker_id,
        "last_error": job.last_error,
        "idempotency_key": job.idempotency_key,
        "schedule_id": job.schedule_id,
        "metadata": dict(job.metadata),
        "error_group": job.error_group,
        "snoozes": job.snoozes,
        "crashes": job.crashes,
        "start_by": time_shape(job.start_by),
        "unique_key": job.unique_key,
        "unique_while": job.unique_while,
        "lane": job.lane,
        "progress": progress_shape(job.progress),
        "steps": job.steps,
        "suspensions": job.suspensions,
        "waits_for": job.waits_for,
    }


def whole_job_shape(job: pulse.JobInfo) -> Shape:
    """A job on its own: with its payload, its result and its failed attempts."""
    return (
        job_shape(job)
        | payload_shape(job.payload)
        | payload_shape(job.result_bytes or b"", "result")
        | {"history": [_attempt(past) for past in job.history]}
    )


def handle_shape(handle: pulse.JobHandle) -> Shape:
    """A job that was stored."""
    return {
        "id": handle.id,
        "topic": handle.topic,
        "duplicate": handle.duplicate,
        "replaced": handle.replaced,
    }


def schedule_shape(schedule: pulse.ScheduleInfo) -> Shape:
    """A schedule in a list."""
    return {
        "id": schedule.id,
        "name": schedule.name,
        "topic": schedule.topic,
        "kind": schedule.kind,
        **spec_shape(schedule.spec),
        "paused": schedule.paused,
        "next_run_at": time_shape(schedule.next_run_at),
        "last_run_at": time_shape(schedule.last_run_at),
        "priority": schedule.priority,
        "max_attempts": schedule.max_attempts,
        "catch_up": schedule.catch_up,
        "created_at": time_shape(schedule.created_at),
        "metadata": dict(schedule.metadata),
        "declared_by": schedule.declared_by,
        "vanished_at": time_shape(schedule.vanished_at),
        "start_within": None if schedule.start_within is None else format_exact(schedule.start_within),
        "overlap": schedule.overlap,
        "queued_for": time_shape(schedule.queued_for),
    }


def whole_schedule_shape(schedule: pulse.ScheduleInfo) -> Shape:
    """A schedule on its own: with the payload of its jobs."""
    return schedule_shape(schedule) | payload_shape(schedule.payload)


def fire_shape(fire: pulse.ScheduleFire) -> Shape:
    """One fire of a schedule."""
    return {"job_id": fire.job_id, "fired_at": time_shape(fire.fired_at), "status": str(fire.status)}


def dispatch_shape(
    status: pulse.DispatchStatus, topics: Iterable[pulse.TopicInfo], total: pulse.TopicInfo | None = None
) -> Shape:
    """The pauses, and how many ready jobs each holds. `total` is the sum of all topics."""
    ready = {topic.topic: topic.ready for topic in topics}
    ready_and_paused = sum(topic.ready for topic in topics if topic.paused)
    return {
        "paused": status.paused,
        "reason": status.reason or None,
        "paused_at": time_shape(status.paused_at),
        "paused_by": status.paused_by or None,
        "held_back": total.ready if status.paused and total else ready_and_paused,
        "topics": [
            {
                "topic": topic,
                "reason": pause.reason or None,
                "paused_at": time_shape(pause.paused_at),
                "paused_by": pause.paused_by or None,
                "held_back": ready.get(topic, 0),
            }
            for topic, pause in sorted(status.topics.items())
        ],
    }


def topic_shape(topic: pulse.TopicInfo) -> Shape:
    """The counts and rates of a topic."""
    return {
        "topic": topic.topic,
        "ready": topic.ready,
        "waiting": topic.waiting,
        "running": topic.running,
        "dead_lettered": topic.dead_lettered,
        "canceled": topic.canceled,
        "oldest_ready_at": time_shape(topic.oldest_ready_at),
        "paused": topic.paused,
        "workers": topic.workers,
        "last_minute": _rates(topic.last_minute),
        "last_hour": _rates(topic.last_hour),
        "wait": _latency(topic.wait),
        "run": _latency(topic.run),
    }


def worker_shape(worker: pulse.WorkerInfo) -> Shape:
    """A worker, and the jobs that it holds."""
    return {
        "worker_id": worker.worker_id,
        "server": worker.server,
        "connected_at": time_shape(worker.connected_at),
        "topics": list(worker.topics),
        "capacity": worker.capacity,
        "held_count": worker.held_count,
        "held": [held_shape(job) for job in worker.held],
    }


def held_shape(job: pulse.HeldJob) -> Shape:
    """A job held by a worker."""
    return {
        "id": job.id,
        "topic": job.topic,
        "attempt": job.attempt,
        "since": time_shape(job.since),
        "lease_until": time_shape(job.lease_until),
        "progress": progress_shape(job.progress),
    }


def transition_shape(change: pulse.Transition) -> Shape:
    """One transition of a job."""
    return {
        "event": "transition",
        "at": time_shape(change.at),
        "status": str(change.status),
        "topic": change.topic,
        "job_id": change.job_id,
        "attempt": change.attempt,
        "worker_id": change.worker_id,
        "error": change.error,
    }


def gap_shape(news: pulse.Transitions) -> Shape:
    """Transitions that were missed."""
    return {"event": "gap", "missed": news.missed, "interrupted": news.interrupted}


def snapshot_shape(snapshot: Snapshot) -> Shape:
    """The queue at one moment."""
    return {
        "at": time_shape(snapshot.at),
        "dispatch": dispatch_shape(snapshot.dispatch, snapshot.topics, snapshot.total),
        "topics": [topic_shape(topic) for topic in snapshot.topics],
        "workers": [worker_shape(worker) for worker in snapshot.workers],
    }


def dead_letter_shape(group: pulse.DeadLetterGroup) -> Shape:
    """Dead letters with the same error."""
    return {
        "topic": group.topic,
        "error_group": group.error_group,
        "count": group.count,
        "first_at": time_shape(group.first_at),
        "last_at": time_shape(group.last_at),
        "sample": job_shape(group.sample),
    }


def identity_shape(identity: pulse.Identity) -> Shape:
    """The user and role of the caller."""
    return {"user": identity.user, "role": identity.role, "methods": sorted(identity.methods)}


def bulk_shape(
    matched: int | None,
    changed: int,
    locked: int = 0,
    held: int = 0,
    *,
    counted_at: datetime | None,
    is_complete: bool,
    is_dry_run: bool,
) -> Shape:
    """The result of an action on many jobs. `matched` is None if they were not counted."""
    return {
        "matched": matched,
        "locked": locked,
        "held": held,
        "changed": changed,
        "complete": is_complete,
        "dry_run": is_dry_run,
        "counted_at": time_shape(counted_at),
    }


def payload_shape(payload: bytes, name: str = "payload") -> Shape:
    """The payload as JSON if it is JSON, else its bytes in base64. Both are null for an empty one."""
    if not payload:
        return {name: None, f"{name}_base64": None}
    try:
        return {name: json.loads(payload, parse_constant=_refuse), f"{name}_base64": None}
    except (ValueError, RecursionError):
        return {name: None, f"{name}_base64": base64.b64encode(payload).decode()}


def spec_shape(spec: pulse.At | pulse.Every | pulse.Cron) -> Shape:
    """The timetable of a schedule: one of at, every and cron is set."""
    moment: datetime | None = getattr(spec, "moment", None)
    interval: timedelta | None = getattr(spec, "interval", None)
    return {
        "at": time_shape(moment),
        "every": None if interval is None else format_exact(interval),
        "cron": getattr(spec, "expression", None),
        "tz": getattr(spec, "tz", None),
    }


def _attempt(past: pulse.Attempt) -> Shape:
    return {
        "attempt": past.attempt,
        "outcome": past.outcome,
        "worker_id": past.worker_id,
        "started_at": time_shape(past.started_at),
        "ended_at": time_shape(past.ended_at),
        "error": past.error,
    }


def _latency(latency: pulse.Latency) -> Shape:
    return {"count": latency.count, "p50": latency.p50, "p95": latency.p95, "p99": latency.p99}


def _rates(rates: pulse.Rates) -> Shape:
    return {
        "submitted": rates.submitted,
        "completed": rates.completed,
        "failed": rates.failed,
        "dead_lettered": rates.dead_lettered,
    }


def time_shape(moment: datetime | None) -> str | None:
    """A moment as JSON."""
    return None if moment is None else iso(moment)


def _refuse(constant: str) -> None:
    # Python reads and writes NaN, which is not JSON.
    raise ValueError(constant)
