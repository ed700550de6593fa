"""Limits and lanes, between messages and the domain. Requests are checked here."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import bounds
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.limit_owners import LimitDeclaration, LimitOwners
from pulse_server.domain.limits import (
    LONGEST_HOLD,
    MAX_LIMIT,
    LaneState,
    LimitPolicy,
    Rate,
    check_policy,
    check_pool,
)
from pulse_server.service.limits import TopicLimits
from pulse_server.transport.grpc.convert_times import duration, moment, timestamp, wire_duration


def declared_limits(message: pb.LimitPolicy, field: str) -> LimitPolicy:
    """Return a worker's declared policy. Raises InvalidArgument, which names the entry."""
    return check_policy(_limit_policy(message, field), field)


def limit_change(message: pb.LimitPolicy, field: str) -> LimitPolicy:
    """Return an operator's policy. Required entries, such as a pool's limit, may be declared."""
    policy = _limit_policy(message, field)
    check_policy(replace(policy, pool=None), field)
    if policy.pool is not None:
        check_pool(policy.pool, f"{field}.pool")
    return policy


def _limit_policy(message: pb.LimitPolicy, field: str) -> LimitPolicy:
    return LimitPolicy(
        limit=message.limit if message.HasField("limit") else None,
        rate=_rate(message.rate, f"{field}.rate") if message.HasField("rate") else None,
        pool=message.pool if message.HasField("pool") else None,
        per_lane=message.per_lane if message.HasField("per_lane") else None,
        lane_rate=_rate(message.lane_rate, f"{field}.lane_rate") if message.HasField("lane_rate") else None,
        turns=message.turns if message.HasField("turns") else None,
        ordered=message.ordered if message.HasField("ordered") else None,
        aging=duration(message.aging, f"{field}.aging") if message.HasField("aging") else None,
    )


def _rate(message: pb.StartRate, field: str) -> Rate:
    return Rate(message.starts, duration(message.period, f"{field}.period"))


def hold_length(request: pb.HoldTopicRequest, longest: timedelta) -> timedelta:
    """Return how long to hold the topic. Zero ends the hold."""
    match request.WhichOneof("length"):
        case "duration":
            span = duration(request.duration, "duration")
            if span < timedelta(0):
                raise InvalidArgument("duration", "is negative: give how long to hold the topic.")
            field = "duration"
        case "until":
            span = moment(request.until, "until") - datetime.now(UTC)
            if span <= timedelta(0):
                raise InvalidArgument("until", "lies in the past: give a moment to come.")
            field = "until"
        case _:
            raise InvalidArgument("duration", "and until are missing: give one of them.")
    if span > LONGEST_HOLD:
        raise InvalidArgument(
            field, f"is more than {LONGEST_HOLD.days} days from now: pause the topic instead."
        )
    if span > longest:
        raise InvalidArgument(
            field,
            "is more than a day from now, and a worker holds a topic for no longer. Hold it again later, or "
            "let an operator hold it.",
        )
    return span


def lane_name(lane: str) -> str:
    """Return the lane of the request."""
    if not lane:
        raise InvalidArgument("lane", "is empty: name the lane, as it was given at submit.")
    bounds.check_lane(lane)
    return lane


def lane_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument("limit", f"is {limit}: it must be from 1 to {MAX_LIMIT:,}.")
    return limit


def wire_limit_policy(policy: LimitPolicy) -> pb.LimitPolicy | None:
    """Return the policy; None for one without entries."""
    if policy == LimitPolicy():
        return None
    return pb.LimitPolicy(
        limit=policy.limit,
        rate=_wire_rate(policy.rate),
        pool=policy.pool,
        per_lane=policy.per_lane,
        lane_rate=_wire_rate(policy.lane_rate),
        turns=policy.turns,
        ordered=policy.ordered,
        aging=None if policy.aging is None else wire_duration(policy.aging),
    )


def _wire_rate(rate: Rate | None) -> pb.StartRate | None:
    return None if rate is None else pb.StartRate(starts=rate.starts, period=wire_duration(rate.period))


def wire_differing(owners: LimitOwners) -> list[pb.DeclaredLimits]:
    return [_wire_declaration(declaration) for declaration in owners.differing]


def _wire_declaration(declaration: LimitDeclaration) -> pb.DeclaredLimits:
    return pb.DeclaredLimits(
        policy=wire_limit_policy(declaration.policy),
        workers=declaration.workers,
        worker_id=declaration.worker_id,
        declared_at=timestamp(declaration.declared_at),
    )


def wire_limits(entry: TopicLimits) -> pb.TopicLimits:
    known, owners = entry.limits, entry.owners
    override = wire_limit_policy(owners.override)
    return pb.TopicLimits(
        topic=known.topic,
        policy=wire_limit_policy(known.policy),
        running=known.running,
        held_until=timestamp(known.closed_until),
        next_start_at=timestamp(known.next_start_at),
        started=known.started,
        override=override,
        set_by=owners.set_by if override is not None else "",
        set_at=timestamp(owners.set_at) if override is not None else None,
        declared=wire_limit_policy(owners.declared),
        differing=wire_differing(owners),
        pending=entry.pending,
    )


def wire_lane(lane: LaneState) -> pb.LaneView:
    return pb.LaneView(
        lane=lane.lane,
        waiting=lane.waiting,
        running=lane.running,
        oldest=timestamp(lane.oldest),
        next_start_at=timestamp(lane.next_start_at),
        weight=lane.weight,
        limit=lane.limit,
    )
