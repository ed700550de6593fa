"""Policies of topics, between messages and the domain. Requests are checked here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import bounds
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.limit_owners import LimitOwners
from pulse_server.domain.limits import LIMIT_ENTRIES, LimitPolicy
from pulse_server.domain.policies import Kept, PolicyChange, TopicPolicy
from pulse_server.domain.run_policies import (
    MAX_DECLARED,
    RUN_ENTRIES,
    Backoff,
    Declaration,
    RunPolicy,
    check_backoff,
    check_max_crashes,
    check_timeout,
)
from pulse_server.domain.status import JobStatus
from pulse_server.transport.grpc.convert_limits import (
    declared_limits,
    limit_change,
    wire_differing,
    wire_limit_policy,
)
from pulse_server.transport.grpc.convert_times import duration, timestamp, wire_duration

_FIELDS = {
    "completed": JobStatus.COMPLETED,
    "canceled": JobStatus.CANCELED,
    "dead_lettered": JobStatus.DEAD_LETTERED,
}


def policy_change(request: pb.SetTopicPolicyRequest) -> PolicyChange:
    """Return the changes. Raises InvalidArgument, which names the field."""
    kept, returned = _kept(request.retention)
    run = run_policy(request.run, "run")
    limits = limit_change(request.limits, "limits")
    names = frozenset(_check_entry(name, "returned") for name in request.returned)
    for part, policy, entries in (("run", run, RUN_ENTRIES), ("limits", limits, LIMIT_ENTRIES)):
        if both := sorted(name for name in names.intersection(entries) if getattr(policy, name) is not None):
            raise InvalidArgument(
                "returned", f"has {both[0]!r}, which {part} sets as well: leave one of them out."
            )
    run_returned, limits_returned = names.intersection(RUN_ENTRIES), names.intersection(LIMIT_ENTRIES)
    return PolicyChange(kept, returned, run, run_returned, limits, limits_returned)


def _check_entry(name: str, field: str) -> str:
    entries = (*RUN_ENTRIES, *LIMIT_ENTRIES)
    if name not in entries:
        raise InvalidArgument(
            field, f"has {name[:40]!r}, which is no entry: the entries are {', '.join(entries)}."
        )
    return name


def _kept(retention: pb.Retention) -> tuple[dict[JobStatus, Kept], frozenset[JobStatus]]:
    kept: dict[JobStatus, Kept] = {}
    returned = set()
    for field, status in _FIELDS.items():
        if not retention.HasField(field):  # type: ignore[arg-type]  # it has all of them
            continue
        keep: pb.Keep = getattr(retention, field)
        match keep.WhichOneof("length"):
            case "duration":
                name = f"retention.{field}.duration"
                kept[status] = bounds.check_retention(duration(keep.duration, name), name)
            case "forever" if keep.forever:
                kept[status] = None
            case "forever":
                raise InvalidArgument(f"retention.{field}.forever", "is false: set a duration instead.")
            case None:
                returned.add(status)
    return kept, frozenset(returned)


def declared_policies(
    request: pb.DeclareTopicPoliciesRequest,
) -> tuple[dict[str, RunPolicy], dict[str, LimitPolicy]]:
    """Return the declared run policies and limits by topic. Raises InvalidArgument for a field."""
    bounds.check_count("policies", len(request.policies), MAX_DECLARED)
    declared: dict[str, RunPolicy] = {}
    limits: dict[str, LimitPolicy] = {}
    for entry in request.policies:
        topic = bounds.check_topic(entry.topic, "policies.topic")
        if topic in declared:
            raise InvalidArgument("policies", f"has the topic {topic!r} twice: declare it once.")
        declared[topic] = run_policy(entry.run, "policies.run")
        limits[topic] = declared_limits(entry.limits, "policies.limits")
    return declared, limits


def run_policy(message: pb.RunPolicy, field: str) -> RunPolicy:
    return RunPolicy(
        backoff=_backoff(message.backoff, f"{field}.backoff") if message.HasField("backoff") else None,
        max_attempts=bounds.check_max_attempts(message.max_attempts, f"{field}.max_attempts")
        if message.HasField("max_attempts")
        else None,
        timeout=check_timeout(duration(message.timeout, f"{field}.timeout"), f"{field}.timeout")
        if message.HasField("timeout")
        else None,
        max_crashes=check_max_crashes(message.max_crashes, f"{field}.max_crashes")
        if message.HasField("max_crashes")
        else None,
    )


def _backoff(message: pb.Backoff, field: str) -> Backoff:
    return check_backoff(
        Backoff(
            duration(message.first, f"{field}.first"),
            message.factor,
            duration(message.longest, f"{field}.longest"),
            message.jitter,
        ),
        field,
    )


def wire_policy(
    policy: TopicPolicy, effective: RunPolicy, owners: LimitOwners | None = None, limits_pending: str = ""
) -> pb.TopicPolicy:
    limits = owners or LimitOwners(policy.topic)
    set_at, set_by = _last_change(policy, limits)
    return pb.TopicPolicy(
        topic=policy.topic,
        retention=wire_retention(policy.kept),
        set_by=set_by,
        set_at=timestamp(set_at),
        run=None if policy.run.is_empty else wire_run_policy(policy.run),
        declared=None if policy.declared.is_empty else wire_run_policy(policy.declared),
        declared_by=policy.declared_by,
        declared_at=timestamp(policy.declared_at),
        effective=wire_run_policy(effective),
        limits=wire_limit_policy(limits.override),
        declared_limits=wire_limit_policy(limits.declared),
        effective_limits=wire_limit_policy(limits.effective),
        differing_limits=wire_differing(limits),
        retention_before=wire_retention(policy.before) if policy.before else None,
        shorter_from=timestamp(policy.shorter_from),
        limits_pending=limits_pending,
    )


def _last_change(policy: TopicPolicy, limits: LimitOwners) -> tuple[datetime | None, str]:
    """Return when an operator last set anything, and who."""
    changes = [(policy.set_at, policy.set_by)]
    if limits.override != LimitPolicy():
        changes.append((limits.set_at, limits.set_by))
    return max(((at, by) for at, by in changes if at is not None), default=(None, ""))


def replaced_policy(declaration: Declaration) -> pb.ReplacedPolicy:
    return pb.ReplacedPolicy(
        topic=declaration.topic,
        run=wire_run_policy(declaration.run),
        declared_by=declaration.by,
        declared_at=timestamp(declaration.at),
    )


def wire_run_policy(policy: RunPolicy) -> pb.RunPolicy:
    backoff = policy.backoff
    return pb.RunPolicy(
        backoff=pb.Backoff(
            first=wire_duration(backoff.first),
            factor=backoff.factor,
            longest=wire_duration(backoff.longest),
            jitter=backoff.jitter,
        )
        if backoff is not None
        else None,
        max_attempts=policy.max_attempts,
        timeout=wire_duration(policy.timeout) if policy.timeout is not None else None,
        max_crashes=policy.max_crashes,
    )


def wire_retention(kept: Mapping[JobStatus, Kept]) -> pb.Retention:
    return pb.Retention(**{field: _keep(kept[status]) for field, status in _FIELDS.items() if status in kept})


def _keep(kept: Kept) -> pb.Keep:
    return pb.Keep(forever=True) if kept is None else pb.Keep(duration=wire_duration(kept))
