"""The RPCs of the policies of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import limits
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.policies import Kept, PolicyChange, TopicPolicy
from pulse_server.domain.status import JobStatus
from pulse_server.service.policies import Policies
from pulse_server.transport.grpc import convert_times
from pulse_server.transport.grpc.callers import Callers
from pulse_server.turns import each_in_turns

_FIELDS = {
    "completed": JobStatus.COMPLETED,
    "canceled": JobStatus.CANCELED,
    "dead_lettered": JobStatus.DEAD_LETTERED,
}


class PolicyRpcs:
    def __init__(self, policies: Policies, callers: Callers) -> None:
        self._policies = policies
        self._callers = callers

    async def set_topic_policy(
        self, request: pb.SetTopicPolicyRequest, context: Any
    ) -> pb.SetTopicPolicyResponse:
        policy = await self._policies.set(
            limits.check_topic(request.topic), _change(request.retention), self._callers.of(context).user
        )
        return pb.SetTopicPolicyResponse(policy=_policy(policy))

    async def list_topic_policies(
        self, request: pb.ListTopicPoliciesRequest, _context: Any
    ) -> pb.ListTopicPoliciesResponse:
        limits.check_count("topics", len(request.topics), limits.MAX_PAGE_SIZE)
        page = await self._policies.list(
            limit=limits.check_page_size(request.page_size, 0, "page_size"),
            token=request.page_token,
            topics={limits.check_topic(topic, "topics") for topic in request.topics},
        )
        return pb.ListTopicPoliciesResponse(
            policies=await each_in_turns(_policy, page.entries),
            next_page_token=page.next_token,
            server=_retention(self._policies.server),
        )


def _change(retention: pb.Retention) -> PolicyChange:
    kept: dict[JobStatus, Kept] = {}
    returned = set()
    for field, status in _FIELDS.items():
        if not retention.HasField(field):  # type: ignore[arg-type]  # it has all of them
            continue
        keep: pb.Keep = getattr(retention, field)
        match keep.WhichOneof("length"):
            case "duration":
                name = f"retention.{field}.duration"
                kept[status] = limits.check_retention(convert_times.duration(keep.duration, name), name)
            case "forever" if keep.forever:
                kept[status] = None
            case "forever":
                raise InvalidArgument(f"retention.{field}.forever", "is false: set a duration instead.")
            case None:
                returned.add(status)
    return PolicyChange(kept, frozenset(returned))


def _policy(policy: TopicPolicy) -> pb.TopicPolicy:
    return pb.TopicPolicy(
        topic=policy.topic,
        retention=_retention(policy.kept),
        set_by=policy.set_by,
        set_at=convert_times.timestamp(policy.set_at),
    )


def _retention(kept: Mapping[JobStatus, Kept]) -> pb.Retention:
    return pb.Retention(**{field: _keep(kept[status]) for field, status in _FIELDS.items() if status in kept})


def _keep(kept: Kept) -> pb.Keep:
    return pb.Keep(forever=True) if kept is None else pb.Keep(duration=convert_times.wire_duration(kept))
