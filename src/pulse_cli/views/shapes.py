"""The shapes of JSON output. Keys are only ever added; times are ISO 8601 in UTC, or null."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pulse_cli.jobs.views import job_shape
from pulse_cli.output import Shape, fields_shape, payload_shape, time_shape, value_shape

if TYPE_CHECKING:
    import pulse
    from pulse_cli.views.overview_snapshot import Snapshot


def schedule_shape(schedule: pulse.ScheduleInfo) -> Shape:
    """A schedule in a list."""
    return (
        fields_shape(schedule, "id name topic kind")
        | spec_shape(schedule.spec)
        | fields_shape(
            schedule,
            "paused next_run_at last_run_at priority max_attempts catch_up created_at metadata declared_by "
            "vanished_at start_within overlap queued_for declared",
        )
        | {
            "overrides": [fields_shape(each, "entry set_by set_at") for each in schedule.overrides],
            "declares": None if schedule.declares is None else _declared_shape(schedule.declares),
        }
    )


def _declared_shape(schedule: pulse.ScheduleInfo) -> Shape:
    """What code declares in place of an operator's entries."""
    return (
        fields_shape(schedule, "topic")
        | spec_shape(schedule.spec)
        | fields_shape(schedule, "priority max_attempts catch_up metadata start_within overlap")
    )


def whole_schedule_shape(schedule: pulse.ScheduleInfo) -> Shape:
    """A schedule on its own: with the payload of its jobs."""
    shape = schedule_shape(schedule) | payload_shape(schedule.payload)
    if schedule.declares is not None:
        shape["declares"] |= payload_shape(schedule.declares.payload)
    return shape


def fire_shape(fire: pulse.ScheduleFire) -> Shape:
    """One fire of a schedule."""
    return fields_shape(fire, "job_id fired_at status")


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
    return fields_shape(
        topic,
        "topic ready waiting running dead_lettered canceled oldest_ready_at paused workers last_minute "
        "last_hour wait run waiting_for_jobs",
    )


def worker_shape(worker: pulse.WorkerInfo) -> Shape:
    """A worker, and the jobs that it holds."""
    return fields_shape(worker, "worker_id server connected_at topics capacity held_count held state")


def worker_order_shape(worker_id: str, state: str, note: str | None = None) -> Shape:
    """What was ordered of a worker."""
    return {"worker_id": worker_id, "state": state, "note": note}


def server_shape(server: pulse.ServerInfo) -> Shape:
    """A server."""
    return fields_shape(server, "id name address version started_at workers silent_since")


def held_shape(job: pulse.HeldJob) -> Shape:
    """A job held by a worker."""
    return fields_shape(job, "id topic attempt since lease_until progress")


def snapshot_shape(snapshot: Snapshot) -> Shape:
    """The queue at one moment."""
    return {
        "at": time_shape(snapshot.at),
        "dispatch": dispatch_shape(snapshot.dispatch, snapshot.topics, snapshot.total),
        "topics": [topic_shape(topic) for topic in snapshot.topics],
        "workers": [worker_shape(worker) for worker in snapshot.workers],
        "findings": [finding_shape(finding) for finding in snapshot.findings],
    }


def finding_shape(finding: pulse.Finding) -> Shape:
    """What needs attention about a topic, a worker or the queue."""
    return fields_shape(finding, "kind urgent topic worker_id sentence harm")


def dead_letter_shape(group: pulse.DeadLetterGroup) -> Shape:
    """Dead letters with the same error."""
    own = fields_shape(group, "topic error_group count first_at last_at")
    return own | {"sample": job_shape(group.sample)}


def identity_shape(identity: pulse.Identity) -> Shape:
    """The user and role of the caller."""
    return {"user": identity.user, "role": identity.role, "methods": sorted(identity.methods)}


def spec_shape(spec: pulse.At | pulse.Every | pulse.Cron) -> Shape:
    """The timetable of a schedule: one of at, every and cron is set."""
    moment: datetime | None = getattr(spec, "moment", None)
    interval: timedelta | None = getattr(spec, "interval", None)
    return {
        "at": value_shape(moment),
        "every": value_shape(interval),
        "cron": getattr(spec, "expression", None),
        "tz": getattr(spec, "tz", None),
    }
