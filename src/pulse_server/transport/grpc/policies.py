"""The RPCs of the policies of topics."""

from __future__ import annotations

from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import Role
from pulse_server.domain import bounds
from pulse_server.domain.limit_owners import LimitOwners
from pulse_server.domain.policies import TopicPolicy
from pulse_server.service.own_topics import OwnTopics
from pulse_server.service.policies import Policies
from pulse_server.transport.grpc import convert_policies
from pulse_server.transport.grpc.callers import Callers
from pulse_server.transport.grpc.worker_ids import binds_worker_id, is_own
from pulse_server.turns import each_in_turns


class PolicyRpcs:
    def __init__(self, policies: Policies, callers: Callers, own_topics: OwnTopics) -> None:
        self._policies = policies
        self._callers = callers
        self._own_topics = own_topics

    async def set_topic_policy(
        self, request: pb.SetTopicPolicyRequest, context: Any
    ) -> pb.SetTopicPolicyResponse:
        topic = bounds.check_topic(request.topic)
        change = convert_policies.policy_change(request)
        policy = await self._policies.set(topic, change, self._callers.of(context).user)
        owners = await self._policies.limit_owners([topic])
        return pb.SetTopicPolicyResponse(policy=self._wire(policy, owners.get(topic)))

    @binds_worker_id
    async def declare_topic_policies(
        self, request: pb.DeclareTopicPoliciesRequest, context: Any
    ) -> pb.DeclareTopicPoliciesResponse:
        worker_id = bounds.check_worker_id(request.worker_id)
        runs, limits = convert_policies.declared_policies(request)
        if self._callers.of(context).role is Role.WORKER:
            await self._own_topics.require(runs.keys(), is_own)
        replaced = await self._policies.declare(runs, worker_id, limits)
        return pb.DeclareTopicPoliciesResponse(
            replaced=await each_in_turns(convert_policies.replaced_policy, replaced)
        )

    async def list_topic_policies(
        self, request: pb.ListTopicPoliciesRequest, _context: Any
    ) -> pb.ListTopicPoliciesResponse:
        bounds.check_count("topics", len(request.topics), bounds.MAX_PAGE_SIZE)
        page = await self._policies.list(
            limit=bounds.check_page_size(request.page_size, 0, "page_size"),
            token=request.page_token,
            topics={bounds.check_topic(topic, "topics") for topic in request.topics},
        )
        owners = await self._policies.limit_owners([policy.topic for policy in page.entries])
        return pb.ListTopicPoliciesResponse(
            policies=await each_in_turns(
                lambda policy: self._wire(policy, owners.get(policy.topic)), page.entries
            ),
            next_page_token=page.next_token,
            server=convert_policies.wire_retention(self._policies.server),
            server_run=convert_policies.wire_run_policy(self._policies.server_run),
        )

    def _wire(self, policy: TopicPolicy, owners: LimitOwners | None) -> pb.TopicPolicy:
        pending = self._policies.limits_pending(policy.topic)
        return convert_policies.wire_policy(policy, self._policies.effective(policy), owners, pending)
