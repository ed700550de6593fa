"""Topics: the settings that hold for their jobs, who set them, and what is in use of their limits.

Their verbs: settings, lanes, holds, and the pauses of dispatch and of single workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack

from pulse.errors import InvalidArgument
from pulse.jobs.caller import Caller, blocks_in_handler_threads
from pulse.jobs.selections import names_of
from pulse.messages import Items, Reader, check_aware, check_timedelta, message
from pulse.topic_settings import (
    DEFAULT,
    ENTRIES,
    Backoff,
    Backoffs,
    Entries,
    Keeping,
    Rate,
    RateKind,
    Span,
    TopicEntries,
    check,
    known,
)
from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class DeclaredEntries:
    """Limits that one or several connected workers declare."""

    entries: Mapping[str, Any]
    workers: int
    worker_id: str
    """The worker that declared them last."""
    declared_at: datetime | None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic, by owner. Each has values by the names that `Pulse.set_topic` takes.

    An entry of an operator wins over an entry that workers declare in code, which wins over the settings
    of the servers.
    """

    topic: str
    in_force: Mapping[str, Any]
    """The values that hold. An entry that is not in it holds nowhere."""
    decided_by: Mapping[str, str]
    """Who set each of them: operator, code, server, or pool."""
    operator: Mapping[str, Any] = field(default_factory=dict)
    set_by: str = ""
    """The user of the last change by an operator; empty if the server requires none."""
    set_at: datetime | None = None
    """None: no operator has set anything."""
    declared: Mapping[str, Any] = field(default_factory=dict)
    """What counts of the declarations of workers."""
    declared_by: str = ""
    """The worker that declared something last."""
    declared_at: datetime | None = None
    differing: tuple[DeclaredEntries, ...] = ()
    """The limits that connected workers declare, if they differ. The strictest holds."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """Durations that were shortened. They count until `shorter_from`."""
    shorter_from: datetime | None = None
    """When shortened durations begin to delete. None: none is waiting."""
    pending: str = ""
    """Accepted limits are not in force yet: the transactions that have to end first, in a clause."""

    @property
    def has_own(self) -> bool:
        """Whether an operator or the code of a worker decides something, or a shortened duration counts."""
        return bool(self.operator or self.declared or self.before)


@dataclass(frozen=True, slots=True)
class AllTopicSettings(Items[TopicSettings]):
    """The topics that have settings of their own, by name."""

    settings: tuple[TopicSettings, ...]
    server: Mapping[str, Any]
    """The settings of the server that answered. They hold for all others."""

    def of(self, topic: str) -> TopicSettings:
        """Return the settings of the topic; those of the server if it has none of its own."""
        own = next((each for each in self.settings if each.topic == topic), None)
        return own or TopicSettings(topic, self.server, dict.fromkeys(self.server, "server"))


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """A topic with limits in force, and how much of them is in use."""

    topic: str
    in_force: Mapping[str, Any]
    """The limits. In a pool, these are the numbers of the pool."""
    running: int
    """The jobs that are counted; in a pool, of all its topics."""
    held_until: datetime | None
    """No job starts before then: see `Pulse.hold`."""
    next_start_at: datetime | None
    """The rate is spent until then."""
    started: int = 0
    """The starts that the rate counts now; in a pool, of all its topics."""
    pending: str = ""
    """Accepted limits are not in force yet: the transactions that have to end first, in a clause."""


@dataclass(frozen=True, slots=True)
class LaneInfo:
    """A lane of a topic, and where it stands."""

    lane: str
    """Empty: the jobs without a lane."""
    waiting: int
    """Counted to a thousand."""
    running: int
    oldest: datetime | None
    """When the next job of the lane was submitted. None: no job waits."""
    next_start_at: datetime | None
    """Its rate is spent, or a retry holds it, until then."""
    weight: int
    limit: int | None
    """Its own, instead of `per_lane`."""


def entries_message(entries: Entries) -> pb.TopicEntries:
    """Return the message of checked entries."""
    message = pb.TopicEntries()
    for name, value in entries.items():
        match ENTRIES[name].kind:
            case Span():
                getattr(message, name).FromTimedelta(value)
            case Keeping() if value == "forever":
                getattr(message, name).forever = True
            case Keeping():
                getattr(message, name).duration.FromTimedelta(value)
            case RateKind():
                rate = getattr(message, name)
                rate.starts = value.starts
                rate.period.FromTimedelta(value.per)
            case Backoffs():
                delays = getattr(message, name)
                delays.factor, delays.jitter = value.factor, value.jitter
                delays.first.FromTimedelta(value.first)
                delays.longest.FromTimedelta(value.longest)
            case _:
                setattr(message, name, value)
    return message


def entries_of(message: pb.TopicEntries) -> dict[str, Any]:
    """Return the entries of a message. Raises a ValueError that names an entry that is no value."""
    found = {}
    for descriptor, value in message.ListFields():
        name = descriptor.name
        try:
            match ENTRIES[name].kind:
                case Span():
                    value = value.ToTimedelta()
                case Keeping():
                    value = _kept(value)
                case RateKind():
                    value = Rate(value.starts, value.period.ToTimedelta())
                case Backoffs():
                    value = Backoff(
                        first=value.first.ToTimedelta(),
                        factor=value.factor,
                        longest=value.longest.ToTimedelta(),
                        jitter=value.jitter,
                    )
        except InvalidArgument as problem:
            raise ValueError(f"{name} {problem.message.partition(' ')[2]}") from None
        except (OverflowError, ValueError):
            raise ValueError(f"{name} is not a valid duration: it must be at most 3650 days.") from None
        found[name] = value
    return {name: found[name] for name in ENTRIES if name in found}


def _kept(keep: pb.Keep) -> Any:
    if keep.WhichOneof("length") == "duration":
        return keep.duration.ToTimedelta()
    if not keep.forever:
        raise InvalidArgument("Keep(…) has neither a duration nor forever: set one of them.")
    return "forever"


def _entries(name: str) -> Any:
    return lambda message: entries_of(getattr(message, name))


Reader(DeclaredEntries, entries=_entries("entries"))
topic_settings = Reader(
    TopicSettings, **{name: _entries(name) for name in ("in_force", "operator", "declared", "before")}
)
"""Returns the settings in a message."""
topic_limits = Reader(TopicLimits, in_force=_entries("in_force"))
"""Returns the limits in a message."""
lane_info = Reader(LaneInfo)
"""Returns the lane in a `LaneView`."""


# ---------------------------------------------------------------- verbs

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


# ---------------------------------------------------------------- dispatch


@dataclass(frozen=True, slots=True)
class TopicPause:
    """A pause of one topic."""

    reason: str
    paused_at: datetime | None
    paused_by: str = ""
    """The user; empty if the server requires none."""


@dataclass(frozen=True, slots=True)
class DispatchStatus:
    """The pauses of dispatch and of topics. Times are aware and in UTC."""

    paused: bool
    """True while dispatch as a whole is paused."""
    reason: str
    """The reason given for the pause of dispatch as a whole; otherwise empty."""
    paused_at: datetime | None
    topics: Mapping[str, TopicPause]
    """The topics that are paused by name."""
    paused_by: str = ""
    """The user who paused dispatch as a whole; empty if the server requires none."""
    topics_left_out: int = 0
    """The number of paused topics that did not fit the response."""

    def is_paused(self, topic: str) -> bool:
        """True while this topic is paused, by name or with all others.

        It may be False for a paused topic while there are `topics_left_out`.
        """
        return self.paused or topic in self.topics


_topic_pause = Reader(TopicPause)
dispatch_status = Reader(
    DispatchStatus,
    topics=lambda response: {paused.topic: _topic_pause(paused) for paused in response.topics},
)
"""Returns the state in a `GetDispatchStatusResponse`."""


class DispatchVerbs:
    """The verbs of a `Pulse` for dispatch."""

    _caller: Caller

    async def pause(
        self, *, reason: str = "", topic: str | None = None, timeout: timedelta | None = None
    ) -> None:
        """Pause dispatch, of one topic or of all, until `resume`.

        Running jobs finish. Jobs can still be enqueued and schedules still fire; these jobs wait. The pause
        takes effect on every replica of pulsed within about a second, and survives restarts.
        """
        request = message(pb.PauseDispatchRequest, reason=reason, topic=_topic(topic))
        await self._caller.call(lambda stub: stub.PauseDispatch, request, timeout)

    async def resume(
        self, topic: str | None = None, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Resume one topic, or dispatch as a whole. Topics that were paused by name stay paused."""
        request = message(pb.ResumeDispatchRequest, topic=_topic(topic), reason=reason)
        await self._caller.call(lambda stub: stub.ResumeDispatch, request, timeout)

    async def dispatch_status(self, *, timeout: timedelta | None = None) -> DispatchStatus:
        """Return all pauses, with their times and reasons."""
        request = pb.GetDispatchStatusRequest()
        return dispatch_status(await self._caller.call(lambda stub: stub.GetDispatchStatus, request, timeout))

    async def quiet_worker(
        self, worker_id: str, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Let a connected worker take no further jobs, until `resume_worker` or the end of its process.

        It finishes the jobs that it has started, releases the others without costing an attempt, and
        stays connected. Takes effect within about a second, at whichever server it is connected.
        Raises NotFound if it is not connected.
        """
        await self._set_worker_state(worker_id, "quiet", reason, timeout)

    async def resume_worker(
        self, worker_id: str, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Let a quiet worker take jobs again. Raises NotFound if it is not connected, and was not quiet."""
        await self._set_worker_state(worker_id, "running", reason, timeout)

    async def stop_worker(
        self, worker_id: str, *, reason: str = "", timeout: timedelta | None = None
    ) -> str | None:
        """End a connected worker as SIGTERM would: it drains, and `run()` returns.

        A supervisor may start it again. Returns None, or a sentence if its client is too old to be
        stopped: then it is quiet. Raises NotFound if it is not connected.
        """
        return await self._set_worker_state(worker_id, "stopping", reason, timeout) or None

    async def _set_worker_state(
        self, worker_id: str, state: str, reason: str, timeout: timedelta | None
    ) -> str:
        request = message(pb.SetWorkerStateRequest, worker_id=worker_id, state=state, reason=reason)
        return (await self._caller.call(lambda stub: stub.SetWorkerState, request, timeout)).note


def _topic(topic: str | None) -> str:
    # On the wire an empty topic means every topic. A caller that computed an empty one did not mean that.
    if topic == "":
        raise InvalidArgument("topic is empty: name one, or leave it out to mean every topic.")
    return topic or ""
