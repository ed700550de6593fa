"""What JSON output looks like. Keys are only ever added; times are ISO 8601 in UTC, or null."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pulse_cli.durations import format_exact
from pulse_cli.moments import iso

if TYPE_CHECKING:
    import pulse

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
        "submitted_at": _time(job.submitted_at),
        "next_run_at": _time(job.next_run_at),
        "started_at": _time(job.started_at),
        "finished_at": _time(job.finished_at),
        "lease_until": _time(job.lease_until),
        "worker_id": job.worker_id,
        "last_error": job.last_error,
        "idempotency_key": job.idempotency_key,
        "schedule_id": job.schedule_id,
        "metadata": dict(job.metadata),
    }


def whole_job_shape(job: pulse.JobInfo) -> Shape:
    """A job on its own: with its payload and its failed attempts."""
    return job_shape(job) | payload_shape(job.payload) | {"history": [_attempt(past) for past in job.history]}


def handle_shape(handle: pulse.JobHandle) -> Shape:
    """A job that was stored."""
    return {"id": handle.id, "topic": handle.topic, "duplicate": handle.duplicate}


def schedule_shape(schedule: pulse.ScheduleInfo) -> Shape:
    """A schedule in a list."""
    return {
        "id": schedule.id,
        "name": schedule.name,
        "topic": schedule.topic,
        "kind": schedule.kind,
        **spec_shape(schedule.spec),
        "paused": schedule.paused,
        "next_run_at": _time(schedule.next_run_at),
        "last_run_at": _time(schedule.last_run_at),
        "priority": schedule.priority,
        "max_attempts": schedule.max_attempts,
        "catch_up": schedule.catch_up,
        "created_at": _time(schedule.created_at),
        "metadata": dict(schedule.metadata),
    }


def whole_schedule_shape(schedule: pulse.ScheduleInfo) -> Shape:
    """A schedule on its own: with the payload of its jobs."""
    return schedule_shape(schedule) | payload_shape(schedule.payload)


def fire_shape(fire: pulse.ScheduleFire) -> Shape:
    """One fire of a schedule."""
    return {"job_id": fire.job_id, "fired_at": _time(fire.fired_at), "status": str(fire.status)}


def dispatch_shape(status: pulse.DispatchStatus) -> Shape:
    """What is paused."""
    return {
        "paused": status.paused,
        "reason": status.reason or None,
        "paused_at": _time(status.paused_at),
        "topics": [
            {"topic": topic, "reason": pause.reason or None, "paused_at": _time(pause.paused_at)}
            for topic, pause in sorted(status.topics.items())
        ],
    }


def payload_shape(payload: bytes) -> Shape:
    """The payload as JSON where it is that, else its bytes in base64. Both are null for an empty one."""
    if not payload:
        return {"payload": None, "payload_base64": None}
    try:
        return {"payload": json.loads(payload, parse_constant=_refuse), "payload_base64": None}
    except (ValueError, RecursionError):
        return {"payload": None, "payload_base64": base64.b64encode(payload).decode()}


def spec_shape(spec: pulse.At | pulse.Every | pulse.Cron) -> Shape:
    """When a schedule fires: one of at, every and cron is set."""
    moment: datetime | None = getattr(spec, "moment", None)
    interval: timedelta | None = getattr(spec, "interval", None)
    return {
        "at": _time(moment),
        "every": None if interval is None else format_exact(interval),
        "cron": getattr(spec, "expression", None),
        "tz": getattr(spec, "tz", None),
    }


def _attempt(past: pulse.Attempt) -> Shape:
    return {
        "attempt": past.attempt,
        "outcome": past.outcome,
        "worker_id": past.worker_id,
        "started_at": _time(past.started_at),
        "ended_at": _time(past.ended_at),
        "error": past.error,
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)


def _refuse(constant: str) -> None:
    # Python would read NaN and write it again, and that is not JSON to anyone else.
    raise ValueError(constant)
