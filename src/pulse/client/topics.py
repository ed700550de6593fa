"""The verbs for topics: their settings, what is in use of their limits, lanes, and holds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack

from pulse.client.caller import Caller
from pulse.client.filters import names_of
from pulse.client.handler_threads import blocks_in_handler_threads
from pulse.errors import InvalidArgument
from pulse.messages import check_aware, check_timedelta, message
from pulse.models.topics import (
    AllTopicSettings,
    LaneInfo,
    TopicLimits,
    TopicSettings,
    entries_message,
    entries_of,
    lane_info,
    topic_limits,
    topic_settings,
)
from pulse.topic_settings import DEFAULT, ENTRIES, TopicEntries, check, known
from pulse.v1 import pulse_pb2 as pb

_MOST_WEIGHT = 1000
_LONGEST_HOLD = timedelta(days=365)


class TopicVerbs:
    """The verbs of a `Pulse` for topics."""

    _caller: Caller

    async def set_topic(
        self,
        topic: str,
        *,
        reason: str = "",
        timeout: timedelta | None = None,
        **entries: Unpack[TopicEntries],
    ) -> TopicSettings:
        """Set entries of the settings of a topic. Returns its settings as they are then.

        Limits: `running`, `rate`, `pool`, `per_lane`, `lane_rate`, `turns`, `ordered`, `aging`. They are in
        force when this returns. Only if another transaction has running jobs of the topic locked, as after
        ctx.complete, they come into force once it has ended: `pending` of the result names it.

        Runs: `max_attempts`, for jobs that are submitted without their own, `backoff`, `attempt_timeout` and
        `max_crashes`, the attempts that may end in a lost lease.

        Retention: `keep_completed`, `keep_canceled`, `keep_dead_lettered`, a timedelta from a minute to 3,650
        days, or "forever". A shorter one deletes after a grace time, an hour by default: `shorter_from`.
        Setting the longer one again before that loses nothing.

        An entry set here wins over the entry that workers declare in code, and over the settings of the
        servers, until it is reset: by `reset_topic`, or by "default" as its value. Entries that are not given
        do not change. The topic need not have jobs.
        """
        if not entries:
            raise InvalidArgument("Give a setting, such as running=5 or max_attempts=8.")
        values: dict[str, Any] = {**entries}
        reset = [name for name, value in values.items() if value == DEFAULT]
        return await self._set(
            topic, {name: values[name] for name in values if name not in reset}, reset, reason, timeout
        )

    async def reset_topic(
        self, topic: str, *names: str, reason: str = "", timeout: timedelta | None = None
    ) -> TopicSettings:
        """Hand entries back: what workers declare in code decides, or else the settings of the servers.

        Without names, all entries. Returns the settings as they are then.
        """
        return await self._set(topic, {}, list(names) or list(ENTRIES), reason, timeout)

    async def _set(
        self, topic: str, entries: dict[str, Any], reset: list[str], reason: str, timeout: timedelta | None
    ) -> TopicSettings:
        try:
            check(entries)
            for name in reset:
                known(name)
        except ValueError as problem:
            raise InvalidArgument(str(problem)) from None
        request = message(
            pb.SetTopicRequest, topic=topic, entries=entries_message(entries), reset=reset, reason=reason
        )
        response = await self._caller.call(lambda stub: stub.SetTopic, request, timeout)
        return topic_settings(response.settings)

    async def topic_settings(self, topic: str, *, timeout: timedelta | None = None) -> TopicSettings:
        """Return the settings of a topic: the values in force, who set each, and the values of each owner."""
        return (await self.all_topic_settings(names=[topic], timeout=timeout)).of(topic)

    async def all_topic_settings(
        self, *, names: Iterable[str] = (), timeout: timedelta | None = None
    ) -> AllTopicSettings:
        """Return the topics that have settings of their own, by name, and the settings of the server.

        `names` selects topics; at most 1,000. `timeout` bounds each of the calls that this takes.
        """
        found: list[TopicSettings] = []
        topics, token = names_of("names", names), ""
        while True:
            request = message(pb.ListTopicSettingsRequest, topics=topics, page_token=token)
            response = await self._caller.call(lambda stub: stub.ListTopicSettings, request, timeout)
            found += map(topic_settings, response.settings)
            if not (token := response.next_page_token):
                return AllTopicSettings(tuple(found), entries_of(response.server))

    async def limits(
        self, *, names: Iterable[str] = (), timeout: timedelta | None = None
    ) -> list[TopicLimits]:
        """Return the limited topics, by name: limits in force, and how much of them is in use.

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
        limit: int | None = None,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> None:
        """Set how many jobs one lane starts in a turn, and how many of its jobs run at once.

        A parameter that is not given is reset to the default of all lanes. The topic needs lanes,
        and for a limit `per_lane`.
        """
        if limit is not None:
            try:
                ENTRIES["per_lane"].kind.check(limit)
            except ValueError as problem:
                raise InvalidArgument(f"limit {problem}") from None
        if weight is not None and not (type(weight) is int and 1 <= weight <= _MOST_WEIGHT):
            raise InvalidArgument(
                f"weight has to be a whole number from 1 to {_MOST_WEIGHT:,}, but {weight!r} was given."
            )
        request = message(
            pb.SetLaneRequest, topic=topic, lane=lane, weight=weight, limit=limit, reason=reason
        )
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
