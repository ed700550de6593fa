"""What is in use of the limits of a topic, and its lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pulse
from pulse.topic_settings import ENTRIES
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
