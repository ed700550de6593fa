"""The view of topic limits: each entry, its value in force, who set it, and its use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pulse
from pulse_text import printable
from pulse_text.rates import format_rate
from pulse_text.times import format_exact
from pulse_ui.views import words

ENTRIES = (
    ("limit", "Running at once"),
    ("rate", "Rate"),
    ("per_lane", "Per lane"),
    ("lane_rate", "Lane rate"),
    ("turns", "Turns"),
    ("ordered", "In order"),
    ("aging", "Aging"),
    ("pool", "Pool"),
)
"""The names of the entries and their titles."""


@dataclass(frozen=True, slots=True)
class LimitEntry:
    """One entry of the limits of a topic."""

    name: str
    title: str
    text: str
    """The value in force."""
    source: str
    """The source of the value: operator, code or pool; empty if it is not set."""
    operator: str
    code: str
    entered: str
    """The text to edit in a form; empty unless an operator has set it."""


@dataclass(frozen=True, slots=True)
class Meter:
    """How much of a limit is used."""

    text: str
    percent: float


@dataclass(frozen=True, slots=True)
class Differing:
    """What one or several workers declare, where workers differ."""

    worker: str
    others: int
    text: str
    declared_at: datetime | None


@dataclass(frozen=True, slots=True)
class LimitsView:
    topic: str
    is_limited: bool
    entries: dict[str, LimitEntry]
    state: str
    """open, full, spent or held."""
    state_name: str
    running: int
    use: Meter | None
    """The use of the limit of running jobs."""
    rate_use: Meter | None
    others: str
    """The entries of lanes and the pool, in one line."""
    has_lanes: bool
    held_until: datetime | None
    next_start_at: datetime | None
    has_operator: bool
    set_by: str
    set_at: datetime | None
    differing: tuple[Differing, ...]
    pending: str
    """What the last change waits for; empty if it is in force."""


def no_limits(topic: str) -> LimitsView:
    """Return the view of a topic without limits."""
    return limits_view(pulse.TopicLimits(topic, pulse.LimitPolicy(), 0, None, None))


def limits_view(known: pulse.TopicLimits) -> LimitsView:
    policy = known.policy
    state, state_name = _state(known)
    limit, rate = policy.limit, policy.rate
    return LimitsView(
        printable.one_line(known.topic),
        bool(policy),
        {name: _entry(known, name, title) for name, title in ENTRIES},
        state,
        state_name,
        known.running,
        None if limit is None else _meter(known.running, limit.limit, words.count(limit.limit)),
        None if rate is None else _meter(known.started, rate.starts, _text(policy, "rate")),
        _others(policy),
        bool(policy.turns or policy.ordered or policy.per_lane or policy.lane_rate or policy.aging),
        known.held_until,
        known.next_start_at,
        bool(known.override),
        printable.one_line(known.set_by),
        known.set_at,
        tuple(
            Differing(
                printable.one_line(each.worker_id), each.workers - 1, _said(each.policy), each.declared_at
            )
            for each in known.differing
        ),
        printable.one_line(known.pending),
    )


def _entry(known: pulse.TopicLimits, name: str, title: str) -> LimitEntry:
    in_force = getattr(known.policy, name)
    operator, code = getattr(known.override, name), getattr(known.declared, name)
    if in_force is None:
        source = ""
    elif in_force == operator:
        source = "operator"
    elif in_force == code:
        source = "code"
    else:
        # In a pool the smallest number of its topics holds. Lanes and turns follow from other entries.
        source = "pool" if known.policy.pool and name in ("limit", "rate") else ""
    return LimitEntry(
        name,
        title,
        _text(known.policy, name),
        source,
        _text(known.override, name),
        _text(known.declared, name),
        "" if operator is None else _text(known.override, name),
    )


def _state(known: pulse.TopicLimits) -> tuple[str, str]:
    if known.held_until is not None:
        return "held", "Held"
    if known.next_start_at is not None:
        return "spent", "Rate spent"
    if known.policy.limit is not None and known.running >= known.policy.limit.limit:
        return "full", "Full"
    return "open", "Open"


def _meter(used: int, most: int, most_text: str) -> Meter:
    return Meter(f"{words.count(used)} of {most_text}", min(100.0, round(100 * used / most, 1)))


def _others(policy: pulse.LimitPolicy) -> str:
    said = []
    if policy.per_lane is not None and not policy.ordered:
        said.append(f"{_text(policy, 'per_lane')} of a lane")
    if policy.lane_rate is not None:
        said.append(f"{_text(policy, 'lane_rate')} of a lane")
    if policy.ordered:
        said.append("in order")
    elif policy.turns and not said:
        said.append("turns")
    if policy.aging is not None:
        said.append(f"aging {format_exact(policy.aging)}")
    if policy.pool is not None:
        said.append(f"pool {printable.one_line(policy.pool)}")
    return ", ".join(said)


def _said(policy: pulse.LimitPolicy) -> str:
    said = [
        f"{title.lower()} {_text(policy, name)}"
        for name, title in ENTRIES
        if getattr(policy, name) is not None
    ]
    return ", ".join(said) or "nothing"


def _text(policy: pulse.LimitPolicy, name: str) -> str:
    match getattr(policy, name):
        case None:
            return words.NOTHING
        case bool() as is_wanted:
            return "yes" if is_wanted else "no"
        case pulse.Concurrency(limit):
            return str(limit)
        case pulse.Rate(starts, period):
            return format_rate(starts, period)
        case timedelta() as span:
            return format_exact(span)
        case text:
            return printable.one_line(str(text))


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


def lane_rows(lanes: Sequence[pulse.LaneInfo], policy: pulse.LimitPolicy) -> list[LaneRow]:
    running = sum(lane.running for lane in lanes)
    return [_row(lane, policy, running) for lane in lanes]


def _row(lane: pulse.LaneInfo, policy: pulse.LimitPolicy, running: int) -> LaneRow:
    shared = policy.per_lane.limit if policy.per_lane is not None else None
    # The limit per lane does not apply to jobs without a lane.
    limit = lane.limit or (shared if lane.lane else None)
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
