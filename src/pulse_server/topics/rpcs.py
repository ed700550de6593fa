"""The RPCs of topics: settings, limits in use, lanes and holds. Requests are checked here.

A user serves a topic if it has a worker for it, connected to any server. Answers to callers that enqueue,
schedule or wait for jobs have a note about topics that no worker takes. A worker of another server counts
once that server has recorded it, within seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from pulse.topic_settings import ENTRIES, check, check_together, known
from pulse.topics import entries_message, entries_of
from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import Role
from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument, PulseError, Unauthenticated, Unavailable
from pulse_server.base.loops import each_in_turns, lease_clock
from pulse_server.base.sharing import Sample
from pulse_server.dispatch.roster import Demand, Roster
from pulse_server.doors.boundary import SERVICE, duration, moment, timestamp
from pulse_server.doors.callers import Callers, binds_worker_id, is_own, may_call
from pulse_server.topics.rules import (
    LONGEST_HOLD,
    LONGEST_HOLD_OF_WORKERS,
    MAX_DECLARED,
    Declaration,
    LaneState,
    Replaced,
    TopicSettings,
    check_weight,
    refused,
    similar_topic,
    values_of,
)
from pulse_server.topics.service import LimitsOfTopics, SettingsOfTopics, TopicLimits


class OwnTopics:
    def __init__(
        self, roster: Roster, topics_of: Callable[[Callable[[str], bool]], Awaitable[set[str]]]
    ) -> None:
        """`topics_of` returns the topics of the workers with these ids, over all servers."""
        self._roster = roster
        self._topics_of = topics_of

    async def require(self, topics: Collection[str], is_own: Callable[[str], bool]) -> None:
        """Raise Unavailable if a topic has no worker of the caller. `is_own` tests worker ids.

        Workers of this server count at once. Workers of another server count once that server has
        recorded them. The error is temporary: a worker may be connecting, or moving.
        """
        unserved = set(topics)
        for group in self._roster.groups:
            if any(is_own(session.worker_id) for session in group.sessions):
                unserved -= group.topics
        if unserved:
            unserved -= await self._topics_of(is_own)
        if unserved:
            raise Unavailable(
                f"No worker of this user that takes {min(unserved)!r} is connected, and a user limits only "
                "topics that its workers serve. Connect the worker first, or let an operator do this."
            )


# Workers connect again within this time after the start of a server.
START_GRACE = timedelta(seconds=5)
# A caller waits this long for the workers of the other servers. Without them it gets no note.
LOOK_TIMEOUT = timedelta(milliseconds=200)
# How long a note is kept, and how many are.
NOTE_AGE = timedelta(seconds=1)
MOST_KEPT = 1000
# Notes in one answer. Names that are compared with the name of a topic: some 10 µs each.
MOST_NOTES = 3


class Note(NamedTuple):
    """No worker takes a topic."""

    sentence: str
    similar: str
    """A topic that workers take, if it has a similar name."""


class UnservedTopics:
    def __init__(
        self,
        demand: Demand,
        workers_by_topic: Callable[[], Awaitable[Mapping[str, int]]],
        *,
        clock: Callable[[], float] = lease_clock,
        start_grace: timedelta = START_GRACE,
    ) -> None:
        """`workers_by_topic` counts the workers of all servers."""
        self._demand = demand
        self._sample = Sample(workers_by_topic, clock, to_its_end=True)
        self._clock = clock
        # By topic, with the moment of its look: a note costs more than the rest of a submit.
        self._notes: dict[str, tuple[float, Note | None]] = {}
        self._quiet_until = clock() + start_grace.total_seconds()

    async def note(self, topic: str) -> Note | None:
        """Return a note if no worker takes the topic now."""
        return None if self._demand.is_wanted(topic) else await self._note(topic)

    async def notes_of_new(self, topics: Iterable[str]) -> dict[str, Note]:
        """Return a note for each topic that had no worker since this server started, a few at the most.

        During a deploy a topic may be without workers for a moment. That is not noted here.
        """
        was_wanted = self._demand.was_wanted
        unknown = list(islice((topic for topic in topics if topic not in was_wanted), MOST_NOTES))
        if not unknown or self._clock() < self._quiet_until:
            return {}
        return {topic: note for topic in unknown if (note := await self._note(topic))}

    async def _note(self, topic: str) -> Note | None:
        """Return the note, from the last second or new. Workers of this server are not looked at."""
        now = self._clock()
        noted_at, note = self._notes.get(topic, (-math.inf, None))
        if now - noted_at < NOTE_AGE.total_seconds():
            return note
        try:
            async with asyncio.timeout(LOOK_TIMEOUT.total_seconds()):
                served = await self._sample.get()
        except (PulseError, TimeoutError):
            served = {topic: 1}  # kept, too: behind a slow database every submit would wait for the look
        if len(self._notes) >= MOST_KEPT:
            self._notes.clear()
        note = None if topic in served else _note_of(topic, served)
        self._notes[topic] = self._clock(), note
        return note


def _note_of(topic: str, served: Iterable[str]) -> Note:
    sentence = f"No worker that takes {topic!r} is connected: its jobs wait until one is."
    return Note(sentence, similar_topic(topic, served))


class UnservedNotes:
    """The notes as the caller may read them: a role that may not list topics learns no other topic's name."""

    def __init__(self, unserved: UnservedTopics, callers: Callers) -> None:
        self._unserved = unserved
        self._callers = callers

    async def of_new(self, topics: Iterable[str], context: Any) -> list[pb.NoWorker]:
        """Return notes about topics that had no worker since the server started."""
        notes = await self._unserved.notes_of_new(topics)
        return [pb.NoWorker(topic=topic, note=self._text(note, context)) for topic, note in notes.items()]

    async def of(self, topic: str, context: Any) -> str:
        """Return a note if no worker takes the topic now, else nothing."""
        note = await self._unserved.note(topic)
        return "" if note is None else self._text(note, context)

    def _text(self, note: Note, context: Any) -> str:
        if not note.similar or not self._may_list_topics(context):
            return note.sentence
        return f"{note.sentence} Did you mean {note.similar!r}?"

    def _may_list_topics(self, context: Any) -> bool:
        try:
            return may_call(self._callers.of(context).role, f"/{SERVICE}/ListTopics")
        except Unauthenticated:
            return False  # the user was removed during the call, whose jobs are stored


class TopicRpcs:
    def __init__(
        self, settings: SettingsOfTopics, limits: LimitsOfTopics, callers: Callers, own_topics: OwnTopics
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._callers = callers
        self._own_topics = own_topics

    async def set_topic(self, request: pb.SetTopicRequest, context: Any) -> pb.SetTopicResponse:
        topic = bounds.check_topic(request.topic)
        entries, reset = refused(entries_of, request.entries), list(dict.fromkeys(request.reset))
        refused(check, entries)
        for name in reset:
            refused(known, name)
            if name in entries:
                raise InvalidArgument(
                    "reset", f"has {name!r}, which entries sets as well: leave one of them out."
                )
        settings = await self._settings.set(topic, entries, reset, self._callers.of(context).user)
        return pb.SetTopicResponse(settings=wire_settings(settings))

    @binds_worker_id
    async def declare_topics(
        self, request: pb.DeclareTopicsRequest, context: Any
    ) -> pb.DeclareTopicsResponse:
        worker_id = bounds.check_worker_id(request.worker_id)
        declared = declared_topics(request)
        if self._callers.of(context).role is Role.WORKER:
            await self._own_topics.require(declared.keys(), is_own)
        replaced = await self._settings.declare(declared, worker_id)
        return pb.DeclareTopicsResponse(replaced=await each_in_turns(wire_replaced, replaced))

    async def list_topic_settings(
        self, request: pb.ListTopicSettingsRequest, _context: Any
    ) -> pb.ListTopicSettingsResponse:
        bounds.check_count("topics", len(request.topics), bounds.MAX_PAGE_SIZE)
        page = await self._settings.list(
            limit=bounds.check_page_size(request.page_size, 0, "page_size"),
            token=request.page_token,
            topics={bounds.check_topic(topic, "topics") for topic in request.topics},
        )
        return pb.ListTopicSettingsResponse(
            settings=await each_in_turns(wire_settings, page.entries),
            next_page_token=page.next_token,
            server=entries_message(self._settings.server),
        )

    async def list_limits(self, request: pb.ListLimitsRequest, _context: Any) -> pb.ListLimitsResponse:
        bounds.check_count("topics", len(request.topics), bounds.MAX_PAGE_SIZE)
        page = await self._limits.list(
            limit=bounds.check_page_size(request.page_size, 0, "page_size"),
            token=request.page_token,
            topics={bounds.check_topic(topic, "topics") for topic in request.topics},
        )
        return pb.ListLimitsResponse(
            limits=await each_in_turns(wire_limits, page.entries), next_page_token=page.next_token
        )

    async def list_lanes(self, request: pb.ListLanesRequest, _context: Any) -> pb.ListLanesResponse:
        lanes = await self._limits.lanes(
            bounds.check_topic(request.topic),
            limit=bounds.check_page_size(request.limit, 0, "limit"),
            by_share=request.by_share,
        )
        return pb.ListLanesResponse(lanes=await each_in_turns(wire_lane, lanes))

    async def hold_topic(self, request: pb.HoldTopicRequest, context: Any) -> pb.HoldTopicResponse:
        topic = bounds.check_topic(request.topic)
        is_worker = self._callers.of(context).role is Role.WORKER
        span = _hold_length(request, LONGEST_HOLD_OF_WORKERS if is_worker else LONGEST_HOLD)
        if is_worker:
            await self._own_topics.require([topic], is_own)
        await self._limits.hold(topic, span, by_operator=not is_worker)
        return pb.HoldTopicResponse()

    async def set_lane(self, request: pb.SetLaneRequest, _context: Any) -> pb.SetLaneResponse:
        if not request.lane:
            raise InvalidArgument("lane", "is empty: name the lane, as it was given at submit.")
        bounds.check_lane(request.lane)
        await self._limits.set_lane(
            bounds.check_topic(request.topic),
            request.lane,
            check_weight(request.weight) if request.HasField("weight") else 1,
            _lane_limit(request.limit) if request.HasField("limit") else None,
        )
        return pb.SetLaneResponse()


# ---------------------------------------------------------------- requests


def declared_topics(request: pb.DeclareTopicsRequest) -> dict[str, dict[str, Any]]:
    """Return the declared entries by topic. Raises InvalidArgument, which names the entry."""
    bounds.check_count("topics", len(request.topics), MAX_DECLARED)
    declared: dict[str, dict[str, Any]] = {}
    for each in request.topics:
        topic = bounds.check_topic(each.topic, "topics.topic")
        if topic in declared:
            raise InvalidArgument("topics", f"has the topic {topic!r} twice: declare it once.")
        declared[topic] = refused(entries_of, each.entries)
        refused(check, declared[topic], code=True)
        refused(check_together, declared[topic])
    return declared


def _hold_length(request: pb.HoldTopicRequest, longest: timedelta) -> timedelta:
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


def _lane_limit(limit: int) -> int:
    try:
        ENTRIES["per_lane"].kind.check(limit)
    except ValueError as problem:
        raise InvalidArgument("limit", str(problem)) from None
    return limit


# ---------------------------------------------------------------- answers


def wire_settings(settings: TopicSettings) -> pb.TopicSettings:
    owners = settings.owners
    declared_at, declared_by = owners.declared_last
    has_set = bool(owners.operator or settings.shortened.before)
    return pb.TopicSettings(
        topic=settings.topic,
        operator=entries_message(owners.operator) if owners.operator else None,
        set_by=owners.set_by if has_set else "",
        set_at=timestamp(owners.set_at) if has_set else None,
        declared=entries_message(owners.declared) if owners.declared else None,
        declared_by=declared_by,
        declared_at=timestamp(declared_at),
        differing=map(_wire_declaration, owners.differing),
        in_force=entries_message(values_of(settings.decided)),
        decided_by={name: by for name, (_, by) in settings.decided.items()},
        before=entries_message(settings.shortened.before) if settings.shortened.before else None,
        shorter_from=timestamp(settings.shortened.shorter_from),
        pending=settings.pending,
    )


def _wire_declaration(declaration: Declaration) -> pb.DeclaredEntries:
    return pb.DeclaredEntries(
        entries=entries_message(declaration.entries),
        workers=declaration.workers,
        worker_id=declaration.worker_id,
        declared_at=timestamp(declaration.declared_at),
    )


def wire_replaced(replaced: Replaced) -> pb.ReplacedDeclaration:
    return pb.ReplacedDeclaration(
        topic=replaced.topic,
        entries=entries_message(replaced.entries),
        declared_by=replaced.by,
        declared_at=timestamp(replaced.at),
    )


def wire_limits(entry: TopicLimits) -> pb.TopicLimits:
    limits = entry.limits
    return pb.TopicLimits(
        topic=limits.topic,
        in_force=entries_message(limits.in_force),
        running=limits.running,
        held_until=timestamp(limits.closed_until),
        next_start_at=timestamp(limits.next_start_at),
        started=limits.started,
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
