"""What limits a topic and is in use, its lanes, its settings and who decided them, and its pauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pulse
from pulse.topic_settings import ENTRIES, Declares, Entry
from pulse_text import printable
from pulse_ui import words


@dataclass(frozen=True, slots=True)
class Meter:
    """How much of a limit is used."""

    text: str
    percent: float


@dataclass(frozen=True, slots=True)
class LimitsView:
    topic: str
    is_limited: bool
    state: str
    """open, full, spent or held."""
    state_name: str
    running: int
    meters: Mapping[str, Meter]
    """The use of the limit of running jobs, and of the rate, by the name of the entry."""
    others: str
    """The entries of lanes and the pool, in one line."""
    pool: str
    has_lanes: bool
    held_until: datetime | None
    next_start_at: datetime | None
    pending: str
    """What the last change waits for; empty if it is in force."""


def no_limits(topic: str) -> LimitsView:
    """Return the view of a topic without limits."""
    return limits_view(pulse.TopicLimits(topic, {}, 0, None, None))


def limits_view(known: pulse.TopicLimits) -> LimitsView:
    limits = known.in_force
    state, state_name = _state(known)
    meters = {}
    if "running" in limits:
        meters["running"] = _meter(known.running, limits["running"], words.count(limits["running"]))
    if "rate" in limits:
        meters["rate"] = _meter(known.started, limits["rate"].starts, str(limits["rate"]))
    return LimitsView(
        printable.one_line(known.topic),
        bool(limits),
        state,
        state_name,
        known.running,
        meters,
        _others(limits),
        printable.one_line(limits.get("pool", "")),
        bool({"turns", "ordered", "per_lane", "lane_rate", "aging"} & limits.keys()),
        known.held_until,
        known.next_start_at,
        printable.one_line(known.pending),
    )


def _state(known: pulse.TopicLimits) -> tuple[str, str]:
    if known.held_until is not None:
        return "held", "Held"
    if known.next_start_at is not None:
        return "spent", "Rate spent"
    if "running" in known.in_force and known.running >= known.in_force["running"]:
        return "full", "Full"
    return "open", "Open"


def _meter(used: int, most: int, most_text: str) -> Meter:
    return Meter(f"{words.count(used)} of {most_text}", min(100.0, round(100 * used / most, 1)))


def _others(limits: Mapping[str, Any]) -> str:
    text = {name: ENTRIES[name].words(value) for name, value in limits.items()}
    said = []
    if "per_lane" in limits and not limits.get("ordered"):
        said.append(f"{text['per_lane']} of a lane")
    if "lane_rate" in limits:
        said.append(f"{text['lane_rate']} of a lane")
    if limits.get("ordered"):
        said.append("in order")
    elif limits.get("turns") and not said:
        said.append("turns")
    said += [f"{name} {text[name]}" for name in ("aging", "pool") if name in limits]
    return ", ".join(said)


WAIT, SHARE = "wait", "share"
COUNTED_TO = 1_000
"""pulsed counts the waiting jobs of a lane up to this number."""


@dataclass(frozen=True, slots=True)
class LaneRow:
    key: str
    """The lane of its jobs; empty for jobs without a lane."""
    name: str
    waiting: str
    running: int
    share: float | None
    """The share of the running jobs of all shown lanes."""
    oldest: datetime | None
    next_start_at: datetime | None
    weight: int
    limit: str
    own_limit: int | None


def lane_rows(lanes: Sequence[pulse.LaneInfo], limits: Mapping[str, Any]) -> list[LaneRow]:
    running = sum(lane.running for lane in lanes)
    return [_row(lane, limits.get("per_lane"), running) for lane in lanes]


def _row(lane: pulse.LaneInfo, per_lane: int | None, running: int) -> LaneRow:
    # The limit per lane does not apply to jobs without a lane.
    limit = lane.limit or (per_lane if lane.lane else None)
    return LaneRow(
        lane.lane,
        printable.one_line(lane.lane) if lane.lane else "(no lane)",
        f"{words.count(COUNTED_TO)}+" if lane.waiting >= COUNTED_TO else words.count(lane.waiting),
        lane.running,
        lane.running / running if running else None,
        lane.oldest,
        lane.next_start_at,
        lane.weight,
        words.NOTHING if limit is None else words.count(limit),
        lane.limit,
    )


# ---------------------------------------------------------------- settings


@dataclass(frozen=True, slots=True)
class EntryView:
    """One entry of the settings of a topic."""

    entry: Entry
    text: str
    """The value in force."""
    source: str
    """Who decided it: operator, code, pool or server; empty if it is not set."""
    entered: str
    """The text to edit in a form; empty unless an operator has set it."""
    otherwise: str
    """What decides without an operator, with the value."""
    explanation: str
    """The values of all owners, in one line."""
    before: str
    """The longer duration that counts until a shortened one takes effect."""

    @property
    def is_own(self) -> bool:
        """Whether the topic differs from the settings of the server."""
        return self.source not in ("", "server") or bool(self.before)


@dataclass(frozen=True, slots=True)
class Group:
    """The entries of one subject: limits, runs, retention."""

    name: str
    title: str
    entries: tuple[EntryView, ...]

    @property
    def own(self) -> tuple[EntryView, ...]:
        return tuple(view for view in self.entries if view.is_own)


@dataclass(frozen=True, slots=True)
class Differing:
    """What one or several workers declare, where workers differ."""

    worker: str
    others: int
    text: str
    declared_at: datetime | None


@dataclass(frozen=True, slots=True)
class SettingsView:
    topic: str
    entries: Mapping[str, EntryView]
    has_operator: bool
    set_by: str
    set_at: datetime | None
    is_declared: bool
    declared_by: str
    declared_at: datetime | None
    differing: tuple[Differing, ...]
    shorter_from: datetime | None
    """When shortened durations take effect."""
    pending: str
    """What the last change of limits waits for; empty if it is in force."""

    @property
    def groups(self) -> tuple[Group, ...]:
        names = dict.fromkeys(view.entry.group for view in self.entries.values())
        return tuple(
            Group(
                name, name.title(), tuple(view for view in self.entries.values() if view.entry.group == name)
            )
            for name in names
        )


def settings_view(settings: pulse.TopicSettings, server: Mapping[str, Any]) -> SettingsView:
    """Return the view of a topic. `server` has the settings of the server."""
    return SettingsView(
        printable.one_line(settings.topic),
        {name: _entry(entry, settings, server) for name, entry in ENTRIES.items()},
        bool(settings.operator),
        printable.one_line(settings.set_by),
        settings.set_at,
        bool(settings.declared),
        printable.one_line(settings.declared_by),
        settings.declared_at,
        tuple(
            Differing(
                printable.one_line(each.worker_id), each.workers - 1, _said(each.entries), each.declared_at
            )
            for each in settings.differing
        ),
        settings.shorter_from,
        printable.one_line(settings.pending),
    )


def server_view(server: Mapping[str, Any]) -> SettingsView:
    """Return the view of the settings of the server, which hold for all other topics."""
    return settings_view(pulse.TopicSettings("", server, dict.fromkeys(server, "server")), server)


def _entry(entry: Entry, settings: pulse.TopicSettings, server: Mapping[str, Any]) -> EntryView:
    name = entry.name
    said = []
    if name in settings.operator:
        said.append(f"set by an operator: {entry.words(settings.operator[name])}")
    if name in settings.declared:
        said.append(f"declared by the code: {entry.words(settings.declared[name])}")
    # Servers have no limits.
    if entry.declares is not Declares.CONNECTED:
        said.append(f"the server’s setting: {entry.words(server.get(name))}")
    otherwise = said[1:] if name in settings.operator else said
    source = settings.decided_by.get(name, "")
    if source == "pool":
        said.insert(0, f"in force, of its pool: {entry.words(settings.in_force.get(name))}")
    return EntryView(
        entry,
        entry.words(settings.in_force.get(name)),
        source,
        entry.text(settings.operator.get(name)),
        otherwise[0] if otherwise else "not set",
        "; ".join(said) or "not set",
        entry.words(settings.before[name]) if name in settings.before else "",
    )


def _said(entries: Mapping[str, Any]) -> str:
    said = [
        f"{entry.title.lower()} {entry.words(entries[name])}"
        for name, entry in ENTRIES.items()
        if name in entries
    ]
    return ", ".join(said) or "nothing"


# ---------------------------------------------------------------- pauses


@dataclass(frozen=True, slots=True)
class TopicState:
    """Whether jobs of a topic start, in a word."""

    name: str
    style: str
    """The class of its mark. A color has one meaning: amber for paused, red for no worker."""
    mark: str


_PAUSED = TopicState("Paused", "paused", "❚❚")
_ALL_PAUSED = TopicState("Paused (everything)", "paused", "❚❚")
_RUNNING = TopicState("Running", "completed", "▶")
_UNSERVED = TopicState("No worker", "dead_lettered", "✕")
_IDLE = TopicState("No worker", "idle", "○")
_LIMITED = {
    "held": TopicState("Held", "paused", "❚❚"),
    "spent": TopicState("Rate spent", "running", "◷"),
    "full": TopicState("Full", "running", "●"),
}


def topic_state(
    topic: pulse.TopicInfo | None, status: pulse.DispatchStatus | None, name: str, limits_state: str = ""
) -> TopicState:
    """Return the first obstacle to the jobs of a topic: a pause, a hold, no worker, a full limit."""
    if status is not None and name in status.topics:
        return _PAUSED
    if status is not None and status.paused:
        return _ALL_PAUSED
    if limits_state == "held":
        return _LIMITED[limits_state]
    if topic is None or not topic.workers:
        return _UNSERVED if topic is not None and topic.ready else _IDLE
    return _LIMITED.get(limits_state, _RUNNING)


@dataclass(frozen=True, slots=True)
class TopicDispatch:
    """One topic."""

    topic: str
    state: TopicState
    is_paused: bool
    """By its own name; it may also be paused with everything."""
    paused_at: datetime | None
    paused_by: str
    """The user who paused it; empty if the server has no users."""
    reason: str
    ready: int
    """Its ready jobs."""
    oldest_ready_at: datetime | None
    workers: int


@dataclass(frozen=True, slots=True)
class DispatchView:
    """All topics, paused ones first."""

    topics: tuple[TopicDispatch, ...]
    paused_by: str
    """The user who paused everything."""
    reason: str
    """Why everything is paused."""
    ready: int
    held_back: int
    """The ready jobs that wait for a resume."""


def dispatch_view(
    status: pulse.DispatchStatus, topics: Sequence[pulse.TopicInfo], total: pulse.TopicInfo | None = None
) -> DispatchView:
    """Return the state of the topics given, and of all paused topics.

    `total` is the sum of all topics. It is given if `topics` is not complete.
    """
    known = {topic.topic: topic for topic in topics}
    rows = [_topic(name, status, known.get(name)) for name in {*known, *status.topics}]
    rows.sort(key=lambda row: (not row.is_paused, row.topic))
    ready = sum(row.ready for row in rows) if total is None else total.ready
    return DispatchView(
        topics=tuple(rows),
        paused_by=printable.one_line(status.paused_by),
        reason=printable.one_line(status.reason),
        ready=ready,
        held_back=ready if status.paused else sum(row.ready for row in rows if row.is_paused),
    )


def _topic(name: str, status: pulse.DispatchStatus, topic: pulse.TopicInfo | None) -> TopicDispatch:
    pause = status.topics.get(name)
    return TopicDispatch(
        topic=name,
        state=topic_state(topic, status, name),
        is_paused=pause is not None,
        paused_at=pause.paused_at if pause else None,
        paused_by=printable.one_line(pause.paused_by) if pause else "",
        reason=printable.one_line(pause.reason) if pause else "",
        ready=topic.ready if topic else 0,
        oldest_ready_at=topic.oldest_ready_at if topic else None,
        workers=topic.workers if topic else 0,
    )
