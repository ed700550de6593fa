"""The failpoints around stores and services, by method. The composition root places them.

docs/figures.md#failpoints
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from pulse import failpoints
from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.store import PostgresDispatchRepo as Switches
from pulse_server.jobs.store import PostgresJobRepo as Jobs
from pulse_server.schedules.store import PostgresScheduleRepo
from pulse_server.steps.store import PostgresStepRepo as Steps
from pulse_server.topics.store import PostgresLimitRepo as Limits
from pulse_server.topics.store import PostgresTopicSettings
from pulse_server.work.attempts import Reports
from pulse_server.work.retention import ExpiredJobs
from pulse_server.work.submissions import Submissions

Owner = TypeVar("Owner")


class Points(NamedTuple):
    """A point before these methods, and one after each call that returned something which `counts`."""

    before: str
    after: str
    methods: tuple[Callable[..., Any], ...]
    counts: Callable[[Any], object] = lambda result: True


TABLE = (
    Points("jobs.inserting", "jobs.inserted", (Jobs.insert_jobs, Jobs.insert_rich_jobs)),
    Points("handover.storing", "handover.stored", (Jobs.hand_over_jobs, Limits.hand_over_limited)),
    Points("claim.leasing", "claim.leased", (Jobs.claim_batch,), counts=bool),
    Points("claim.leasing", "claim.leased", (Limits.claim_limited,), counts=attrgetter("jobs")),
    Points("jobs.completing", "jobs.completed", (Jobs.complete_jobs,)),
    Points("jobs.failing", "jobs.failed", (Jobs.fail_jobs, Jobs.snooze_jobs)),
    Points("leases.extending", "leases.extended", (Jobs.extend_leases,)),
    Points("jobs.releasing", "jobs.released", (Jobs.release_jobs,)),
    Points("jobs.reaping", "jobs.reaped", (Jobs.reap_expired,), counts=bool),
    Points("jobs.promoting", "jobs.promoted", (Jobs.promote_due,), counts=attrgetter("promoted")),
    Points("jobs.promoting", "", (Jobs.promote_in_turn,)),
    Points("", "jobs.cancelled", (Jobs.cancel_jobs,), counts=bool),
    Points("", "jobs.retried", (Jobs.retry_jobs,), counts=bool),
    Points("", "jobs.forgotten", (ExpiredJobs.delete_expired,), counts=attrgetter("deleted")),
    Points("steps.storing", "steps.stored", (Steps.store_steps,)),
    Points("steps.listing", "", (Steps.list_steps,)),
    Points("jobs.suspending", "jobs.suspended", (Steps.suspend_jobs,)),
    Points("signals.taking", "signals.taken", (Steps.take_signal,)),
    Points("signals.sending", "signals.sent", (Steps.signal_job,)),
    Points("schedules.firing", "schedules.fired", (PostgresScheduleRepo.fire_schedules,), counts=bool),
    Points(
        "limits.setting",
        "limits.set",
        (PostgresTopicSettings.declare_topics, PostgresTopicSettings.set_topic),
    ),
    Points(
        "limits.enforcing",
        "limits.enforced",
        (Limits.limit_topic, Limits.retire, Limits.hold, Limits.set_lane),
    ),
    Points("limits.enforcing", "limits.enforced", (Limits.remove_retired,), counts=bool),
    Points("gate.reading", "", (Switches.read_gate,)),
    Points("switch.turning", "switch.turned", (Switches.pause_everything, Switches.resume_everything)),
    Points("switch.turning", "switch.turned", (Switches.pause_topic, Switches.resume_topic)),
    Points("switch.turning", "switch.turned", (Switches.set_worker_state, Switches.resume_worker)),
    Points("", "submit.answered", (Submissions.submit,)),
    Points("", "report.answered", (Reports.report,)),
)


def with_failpoints(owner: Owner) -> Owner:
    """Place the armed points around the methods of this object. It is untouched if none is armed."""
    for points in TABLE:
        for method in points.methods:
            name = method.__name__
            if getattr(type(owner), name, None) is not method:
                continue
            plain = placed = getattr(owner, name)
            if points.after:
                placed = failpoints.after(points.after, Unavailable, counts=points.counts)(placed)
            if points.before:
                placed = failpoints.before(points.before, Unavailable)(placed)
            if placed is not plain:
                setattr(owner, name, placed)
    return owner
