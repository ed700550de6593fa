"""The verbs for limits: set them, see where they stand, and hold a topic."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from pulse.checks import check_aware, check_timedelta, message
from pulse.client.caller import Caller
from pulse.client.filters import names_of
from pulse.client.handler_threads import blocks_in_handler_threads
from pulse.errors import InvalidArgument
from pulse.handlers.options import check_limit_entries
from pulse.models.limits import (
    Concurrency,
    LaneInfo,
    LimitPolicy,
    Rate,
    TopicLimits,
    lane_info,
    limit_message,
    topic_limits,
)
from pulse.models.policies import TopicPolicy, topic_policy
from pulse.v1 import pulse_pb2 as pb

Default: TypeAlias = Literal["default"]
_MOST_WEIGHT = 1000
_LONGEST_HOLD = timedelta(days=365)


class LimitVerbs:
    """The verbs of a `Pulse` for limits."""

    _caller: Caller

    async def set_limits(
        self,
        topic: str,
        *,
        limit: Concurrency | Default | None = None,
        rate: Rate | Default | None = None,
        pool: str | Default | None = None,
        per_lane: Concurrency | Default | None = None,
        lane_rate: Rate | Default | None = None,
        turns: bool | Default | None = None,
        ordered: bool | Default | None = None,
        aging: timedelta | Default | None = None,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> TopicPolicy:
        """Set limits of a topic. They are in force when this returns, and override limits in code.

        Only if another transaction has running jobs of the topic locked, as after ctx.complete, they
        come into force once it has ended: `limits_pending` of the result names it.

        "default" returns an entry to the value that the connected workers declare in code. Entries
        that are not given do not change. The topic need not have jobs.
        """
        given: dict[str, Any] = {
            "limit": limit,
            "rate": rate,
            "pool": pool,
            "per_lane": per_lane,
            "lane_rate": lane_rate,
            "turns": turns,
            "ordered": ordered,
            "aging": aging,
        }
        returned = [name for name, value in given.items() if value == "default"]
        entries = {name: value for name, value in given.items() if value is not None and name not in returned}
        if not (entries or returned):
            raise InvalidArgument("Give a limit to set, such as limit=pulse.Concurrency(5).")
        check_limit_entries(entries)
        request = message(
            pb.SetTopicPolicyRequest,
            topic=topic,
            limits=limit_message(LimitPolicy(**entries)) if entries else None,
            returned=returned,
            reason=reason,
        )
        response = await self._caller.call(lambda stub: stub.SetTopicPolicy, request, timeout)
        return topic_policy(response.policy)

    async def limits(
        self, *, names: Iterable[str] = (), timeout: timedelta | None = None
    ) -> list[TopicLimits]:
        """Return the limited topics, by name: limits in force, who set them, and the running jobs.

        `names` selects topics; at most 1,000. `timeout` bounds each call to the server.
        """
        found: list[TopicLimits] = []
        topics, token = names_of("names", names), ""
        while True:
            request = message(pb.ListLimitsRequest, topics=topics, page_token=token)
            response = await self._caller.call(lambda stub: stub.ListLimits, request, timeout)
            found += map(topic_limits, response.limits)
            if not (token := response.next_page_token):
                return found

    async def lanes(
        self,
        topic: str,
        *,
        by: Literal["wait", "share"] = "wait",
        limit: int = 50,
        timeout: timedelta | None = None,
    ) -> list[LaneInfo]:
        """Return the lanes with the longest wait, or by "share" with the most running jobs."""
        if by not in ("wait", "share"):
            raise InvalidArgument(f'by has to be "wait" or "share", but {by!r} was given.')
        request = message(pb.ListLanesRequest, topic=topic, limit=limit, by_share=by == "share")
        response = await self._caller.call(lambda stub: stub.ListLanes, request, timeout)
        return list(map(lane_info, response.lanes))

    async def set_lane(
        self,
        topic: str,
        lane: str,
        *,
        weight: int | None = None,
        limit: Concurrency | None = None,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> None:
        """Set how many jobs one lane starts in a turn, and how many of its jobs run at once.

        A parameter that is not given is reset to the default of all lanes. The topic needs lanes,
        and for a limit `per_lane`.
        """
        if limit is not None and not isinstance(limit, Concurrency):
            raise InvalidArgument(f"limit has to be such as pulse.Concurrency(5), but {limit!r} was given.")
        if weight is not None and not (type(weight) is int and 1 <= weight <= _MOST_WEIGHT):
            raise InvalidArgument(
                f"weight has to be a whole number from 1 to {_MOST_WEIGHT:,}, but {weight!r} was given."
            )
        own = limit.limit if limit is not None else None
        request = message(pb.SetLaneRequest, topic=topic, lane=lane, weight=weight, limit=own, reason=reason)
        await self._caller.call(lambda stub: stub.SetLane, request, timeout)

    @blocks_in_handler_threads
    async def hold(
        self,
        topic: str,
        until: timedelta | datetime,
        *,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> None:
        """Start no job of the topic and its pool for a duration, or until a time, at any server.

        Running jobs continue. The longest of several holds counts; `timedelta(0)` ends it. The
        topic needs limits. In a `def` handler this blocks.
        """
        if isinstance(until, datetime):
            check_aware(f"until={until!r}", until)
            request = message(pb.HoldTopicRequest, topic=topic, until=until, reason=reason)
        else:
            if isinstance(until, timedelta) and not timedelta(0) <= until <= _LONGEST_HOLD:
                raise InvalidArgument(
                    f"A hold may last {_LONGEST_HOLD.days} days at the most, but {until} was given: pause "
                    "the topic instead."
                    if until > _LONGEST_HOLD
                    else f"A hold cannot last {until}: give how long to hold the topic."
                )
            check_timedelta("until", until)
            request = message(pb.HoldTopicRequest, topic=topic, duration=until, reason=reason)
        await self._caller.call(lambda stub: stub.HoldTopic, request, timeout)
