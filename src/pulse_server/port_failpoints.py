"""The failpoints around ports and services, by method. The composition root places them. ADR-0032"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from pulse import failpoints
from pulse_server.domain.errors import Unavailable
from pulse_server.repos.dispatch import DispatchRepo, LimitOwnerRepo, LimitRepo, PolicyRepo
from pulse_server.repos.jobs import JobRepo
from pulse_server.repos.schedules import ScheduleRepo
from pulse_server.repos.steps import StepRepo
from pulse_server.service.reports import Reports
from pulse_server.service.submissions import Submissions
from pulse_server.upkeep.retention import ExpiredJobs

Port = TypeVar("Port")
Method: TypeAlias = Callable[..., Any]
Points: TypeAlias = Mapping[Method, Sequence[Callable[[Method], Method]]]

JOBS: Points = {
    JobRepo.insert_jobs: (
        failpoints.before("jobs.inserting", Unavailable),
        failpoints.after("jobs.inserted", Unavailable),
    ),
    JobRepo.insert_rich_jobs: (
        failpoints.before("jobs.inserting", Unavailable),
        failpoints.after("jobs.inserted", Unavailable),
    ),
    JobRepo.hand_over_jobs: (
        failpoints.before("handover.storing", Unavailable),
        failpoints.after("handover.stored", Unavailable),
    ),
    JobRepo.claim_batch: (
        failpoints.before("claim.leasing", Unavailable),
        failpoints.after("claim.leased", Unavailable, counts=bool),
    ),
    JobRepo.complete_jobs: (
        failpoints.before("jobs.completing", Unavailable),
        failpoints.after("jobs.completed", Unavailable),
    ),
    JobRepo.fail_jobs: (
        failpoints.before("jobs.failing", Unavailable),
        failpoints.after("jobs.failed", Unavailable),
    ),
    JobRepo.extend_leases: (
        failpoints.before("leases.extending", Unavailable),
        failpoints.after("leases.extended", Unavailable),
    ),
    JobRepo.snooze_jobs: (
        failpoints.before("jobs.failing", Unavailable),
        failpoints.after("jobs.failed", Unavailable),
    ),
    JobRepo.release_jobs: (
        failpoints.before("jobs.releasing", Unavailable),
        failpoints.after("jobs.released", Unavailable),
    ),
    JobRepo.reap_expired: (
        failpoints.before("jobs.reaping", Unavailable),
        failpoints.after("jobs.reaped", Unavailable, counts=bool),
    ),
    JobRepo.promote_due: (
        failpoints.before("jobs.promoting", Unavailable),
        failpoints.after("jobs.promoted", Unavailable, counts=attrgetter("promoted")),
    ),
    JobRepo.promote_in_turn: (failpoints.before("jobs.promoting", Unavailable),),
    JobRepo.cancel_jobs: (failpoints.after("jobs.cancelled", Unavailable, counts=bool),),
    JobRepo.retry_jobs: (failpoints.after("jobs.retried", Unavailable, counts=bool),),
}
_ENFORCING = (
    failpoints.before("limits.enforcing", Unavailable),
    failpoints.after("limits.enforced", Unavailable),
)
LIMITS: Points = {
    LimitRepo.claim_limited: (
        failpoints.before("claim.leasing", Unavailable),
        failpoints.after("claim.leased", Unavailable, counts=attrgetter("jobs")),
    ),
    LimitRepo.hand_over_limited: (
        failpoints.before("handover.storing", Unavailable),
        failpoints.after("handover.stored", Unavailable),
    ),
    LimitRepo.limit_topic: _ENFORCING,
    LimitRepo.retire: _ENFORCING,
    LimitRepo.remove_retired: (
        failpoints.before("limits.enforcing", Unavailable),
        failpoints.after("limits.enforced", Unavailable, counts=bool),
    ),
    LimitRepo.hold: _ENFORCING,
    LimitRepo.set_lane: _ENFORCING,
}
_SETTING = (
    failpoints.before("limits.setting", Unavailable),
    failpoints.after("limits.set", Unavailable),
)
LIMIT_OWNERS: Points = {
    LimitOwnerRepo.declare_limits: _SETTING,
}
POLICIES: Points = {
    PolicyRepo.set_policy: _SETTING,
}
STEPS: Points = {
    StepRepo.store_steps: (
        failpoints.before("steps.storing", Unavailable),
        failpoints.after("steps.stored", Unavailable),
    ),
    StepRepo.suspend_jobs: (
        failpoints.before("jobs.suspending", Unavailable),
        failpoints.after("jobs.suspended", Unavailable),
    ),
    StepRepo.take_signal: (
        failpoints.before("signals.taking", Unavailable),
        failpoints.after("signals.taken", Unavailable),
    ),
    StepRepo.signal_job: (
        failpoints.before("signals.sending", Unavailable),
        failpoints.after("signals.sent", Unavailable),
    ),
    StepRepo.list_steps: (failpoints.before("steps.listing", Unavailable),),
}
SCHEDULES: Points = {
    ScheduleRepo.fire_schedules: (
        failpoints.before("schedules.firing", Unavailable),
        failpoints.after("schedules.fired", Unavailable, counts=bool),
    ),
}
_SWITCH = (
    failpoints.before("switch.turning", Unavailable),
    failpoints.after("switch.turned", Unavailable),
)
DISPATCH: Points = {
    DispatchRepo.read_gate: (failpoints.before("gate.reading", Unavailable),),
    DispatchRepo.pause_everything: _SWITCH,
    DispatchRepo.resume_everything: _SWITCH,
    DispatchRepo.pause_topic: _SWITCH,
    DispatchRepo.resume_topic: _SWITCH,
    DispatchRepo.set_worker_state: _SWITCH,
    DispatchRepo.resume_worker: _SWITCH,
}
RETENTION: Points = {
    ExpiredJobs.delete_expired: (
        failpoints.after("jobs.forgotten", Unavailable, counts=attrgetter("deleted")),
    ),
}
SUBMISSIONS: Points = {
    Submissions.submit: (failpoints.after("submit.answered", Unavailable),),
}
REPORTS: Points = {
    Reports.report: (failpoints.after("report.answered", Unavailable),),
}


def with_failpoints(port: Port, points: Points) -> Port:
    """Place the armed points around the methods of this object. It is untouched if none is armed."""
    for method, decorators in points.items():
        name = method.__name__
        placed = plain = getattr(port, name)
        for decorate in reversed(decorators):
            placed = decorate(placed)
        if placed is not plain:
            setattr(port, name, placed)
    return port
