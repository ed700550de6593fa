"""The state of limits: running jobs, waiting jobs, the next start. Holds topics, weighs lanes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument, PermissionDenied
from pulse_server.base.ids import Page, decode_name, encode_name, fitting
from pulse_server.base.sharing import Samples
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.limits import LaneState, Limits
from pulse_server.postgres.limits import PostgresLimitRepo
from pulse_server.service.topic_settings import SettingsOfTopics

# The approximate size of a topic in an answer, without its texts.
_LIMITS_BYTES = 600
DEFAULT_LANES = 50
# Cached lists, each of a topic and an order. One has up to 1,000 lanes of some 500 bytes.
LANE_LISTS_REMEMBERED = 16


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The limits in force of a topic, and its state."""

    limits: Limits
    pending: str = ""
    """The clause of what accepted limits wait for; empty: they are in force."""


class LimitsOfTopics:
    def __init__(self, limits: PostgresLimitRepo, settings: SettingsOfTopics, publisher: Publisher) -> None:
        self._limits = limits
        self._settings = settings
        self._publisher = publisher
        self._lanes = Samples(self._list_lanes, LANE_LISTS_REMEMBERED)

    async def list(self, *, limit: int, token: str, topics: Collection[str]) -> Page[TopicLimits]:
        """One page of the limited topics, by name. With `topics` only these.

        Topics whose first limit is pending are among them, without limits in force.
        """
        most = limit or bounds.MAX_PAGE_SIZE
        after = decode_name(token) if token else ""
        found = await self._limits.list_limits(limit=most + 1, after=after, topics=topics or None)
        pending = self._settings.pending
        awaited = {topic for topic in pending if topic > after and (not topics or topic in topics)}
        awaited -= {each.topic for each in found}
        if awaited:
            found = sorted([*found, *(Limits(topic, {}, 0) for topic in awaited)], key=_topic)
        entries = [TopicLimits(each, pending.get(each.topic, "")) for each in found[:most]]
        count = fitting(map(_weight, entries)) if entries else 0
        next_token = encode_name(found[count - 1].topic) if count < len(found) else ""
        return Page(entries[:count], next_token)

    async def lanes(self, topic: str, *, limit: int, by_share: bool) -> Sequence[LaneState]:
        """The lanes that have waited the longest, or the lanes with the most running jobs.

        Cached: listing 100,000 lanes takes a third of a second, and pages refresh the list.
        """
        return await self._lanes.get((topic, limit or DEFAULT_LANES, by_share))

    async def _list_lanes(self, asked: tuple[str, int, bool]) -> Sequence[LaneState]:
        topic, limit, by_share = asked
        return await self._limits.list_lanes(topic, limit=limit, by_share=by_share)

    async def hold(self, topic: str, span: timedelta, *, by_operator: bool) -> None:
        """Start no job of the topic for `span`; zero ends the hold.

        Raises InvalidArgument if the topic has no limits, and PermissionDenied if a worker would
        end the hold of an operator.
        """
        held = await self._limits.hold(topic, span, by_operator=by_operator)
        if held is None:
            raise InvalidArgument(
                "topic",
                f"{topic!r} has no limits, so it cannot be held: set a limit or a rate first, or pause it.",
            )
        if not span:
            self._publisher.limits_changed([topic])
            if held.until is not None:
                raise PermissionDenied(
                    f"An operator holds {topic!r} until {held.until:%Y-%m-%d %H:%M:%S} UTC. A worker cannot "
                    "end that: let an operator do it."
                )

    async def set_lane(self, topic: str, lane: str, weight: int, limit: int | None) -> None:
        """Set a lane's weight and limit. Raises InvalidArgument if the limits of the topic forbid it."""
        if limit is not None:
            (known, *_) = [*await self._limits.list_limits(limit=1, topics=[topic]), None]
            if known is not None and known.is_laned:
                if "per_lane" not in known.in_force:
                    raise InvalidArgument(
                        "limit", f"needs a limit of each lane of {topic!r}: set per_lane first."
                    )
                if known.in_force.get("ordered") and limit > 1:
                    raise InvalidArgument(
                        "limit", f"is {limit}, but jobs of {topic!r} run in order, one of a lane at a time."
                    )
        if not await self._limits.set_lane(topic, lane, weight, limit):
            raise InvalidArgument(
                "topic", f"{topic!r} has no lanes: set per_lane, lane_rate or turns of the topic first."
            )
        self._lanes = Samples(self._list_lanes, LANE_LISTS_REMEMBERED)  # the caller may look at once
        self._publisher.limits_changed([topic])


def _topic(limits: Limits) -> str:
    return limits.topic


def _weight(entry: TopicLimits) -> int:
    texts = entry.pending + entry.limits.topic + entry.limits.in_force.get("pool", "")
    return len(texts.encode()) + _LIMITS_BYTES
