"""The RPCs of limits and lanes."""

from __future__ import annotations

from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import Role
from pulse_server.domain import bounds
from pulse_server.domain.limits import LONGEST_HOLD, LONGEST_HOLD_OF_WORKERS, check_weight
from pulse_server.service.limits import LimitsOfTopics
from pulse_server.service.own_topics import OwnTopics
from pulse_server.transport.grpc import convert_limits
from pulse_server.transport.grpc.callers import Callers
from pulse_server.transport.grpc.worker_ids import is_own
from pulse_server.turns import each_in_turns


class LimitRpcs:
    def __init__(self, limits_of_topics: LimitsOfTopics, callers: Callers, own_topics: OwnTopics) -> None:
        self._limits = limits_of_topics
        self._callers = callers
        self._own_topics = own_topics

    async def list_limits(self, request: pb.ListLimitsRequest, _context: Any) -> pb.ListLimitsResponse:
        bounds.check_count("topics", len(request.topics), bounds.MAX_PAGE_SIZE)
        page = await self._limits.list(
            limit=bounds.check_page_size(request.page_size, 0, "page_size"),
            token=request.page_token,
            topics={bounds.check_topic(topic, "topics") for topic in request.topics},
        )
        return pb.ListLimitsResponse(
            limits=await each_in_turns(convert_limits.wire_limits, page.entries),
            next_page_token=page.next_token,
        )

    async def list_lanes(self, request: pb.ListLanesRequest, _context: Any) -> pb.ListLanesResponse:
        lanes = await self._limits.lanes(
            bounds.check_topic(request.topic),
            limit=bounds.check_page_size(request.limit, 0, "limit"),
            by_share=request.by_share,
        )
        return pb.ListLanesResponse(lanes=await each_in_turns(convert_limits.wire_lane, lanes))

    async def hold_topic(self, request: pb.HoldTopicRequest, context: Any) -> pb.HoldTopicResponse:
        topic = bounds.check_topic(request.topic)
        is_worker = self._callers.of(context).role is Role.WORKER
        span = convert_limits.hold_length(request, LONGEST_HOLD_OF_WORKERS if is_worker else LONGEST_HOLD)
        if is_worker:
            await self._own_topics.require([topic], is_own)
        await self._limits.hold(topic, span, by_operator=not is_worker)
        return pb.HoldTopicResponse()

    async def set_lane(self, request: pb.SetLaneRequest, _context: Any) -> pb.SetLaneResponse:
        await self._limits.set_lane(
            bounds.check_topic(request.topic),
            convert_limits.lane_name(request.lane),
            check_weight(request.weight) if request.HasField("weight") else 1,
            convert_limits.lane_limit(request.limit) if request.HasField("limit") else None,
        )
        return pb.SetLaneResponse()
