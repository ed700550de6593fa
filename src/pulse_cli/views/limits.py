"""Limits and lanes, as tables, as a description, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pulse_cli.text import age, ago, full, now
from pulse_cli.views.descriptions import blank, facts
from pulse_cli.views.output import View
from pulse_cli.views.shapes import Shape, fields_shape, time_shape
from pulse_cli.views.tables import QUIET, Cell, Column, Line, Row, lay_out, table_width
from pulse_text import printable
from pulse_text.rates import format_rate
from pulse_text.times import format_exact

if TYPE_CHECKING:
    import pulse

ENTRIES = (
    ("limit", "running"),
    ("rate", "rate"),
    ("pool", "pool"),
    ("per_lane", "per-lane"),
    ("lane_rate", "lane-rate"),
    ("turns", "turns"),
    ("ordered", "ordered"),
    ("aging", "aging"),
)
"""The entries of a policy, and their names on the command line."""
_OPERATORS = "yellow"
"""The style of values that an operator has set."""
_LIST = (
    Column("TOPIC", shortest=16),
    Column("RUNNING", right=True),
    Column("RATE", right=True),
    Column("PER LANE", right=True),
    Column("LANE RATE", right=True, drop=3),
    Column("ALSO", shortest=8, drop=2),
    Column("NEXT START"),
    Column("SET BY", drop=1),
)
_FIELDS = (
    "topic",
    "running",
    "in_force.running",
    "in_force.rate",
    "in_force.per_lane",
    "in_force.lane_rate",
    "next_start_at",
    "held_until",
    "set_by",
    "started",
    "pending",
)
_LANES = (
    Column("LANE", shortest=16),
    Column("WAITING", right=True),
    Column("RUNNING", right=True),
    Column("OLDEST", right=True),
    Column("NEXT START"),
    Column("WEIGHT", right=True, drop=1),
    Column("LIMIT", right=True, drop=2),
)
_LANE_FIELDS = ("lane", "waiting", "running", "oldest", "next_start_at", "weight", "limit")
_COUNTED_TO = 1000


def limits_view() -> View[pulse.TopicLimits]:
    """Return the view of topics that have limits. Values set by an operator are yellow."""
    present = now()

    def row(known: pulse.TopicLimits) -> Row:
        policy = known.policy
        running = f"{known.running} of {policy.limit.limit}" if policy.limit else str(known.running)
        rest = [title for name, title in ENTRIES if name in ("turns", "ordered") and getattr(policy, name)]
        rest += [f"aging {_text(policy, 'aging')}"] if policy.aging else []
        rest += [f"pool {printable.one_line(policy.pool)}"] if policy.pool else []
        rest += ["change pending"] if known.pending else []
        return [
            Cell(printable.one_line(known.topic)),
            Cell(running, _style(known, "limit")),
            Cell(_rate_used(known), _style(known, "rate")),
            *(Cell(_text(policy, name), _style(known, name)) for name in ("per_lane", "lane_rate")),
            Cell(", ".join(rest)),
            Cell(_next_start(known, present)),
            Cell(printable.one_line(known.set_by), _OPERATORS),
        ]

    return View(_LIST, row, limits_shape, _FIELDS)


def describe_limits(known: pulse.TopicLimits) -> Iterator[Line]:
    """Yield the limits of a topic: each entry, its value in force, and who set it."""
    present = now()
    yield [Cell(printable.one_line(known.topic), "bold")]
    columns = (Column("  ENTRY"), Column("IN FORCE"), Column("OPERATOR"), Column("CODE"))
    rows = [
        [
            Cell(f"  {title}"),
            Cell(_text(known.policy, name), _style(known, name)),
            Cell(_text(known.override, name), _OPERATORS if _is_set(known.override, name) else QUIET),
            Cell(_text(known.declared, name), "" if _is_set(known.declared, name) else QUIET),
        ]
        for name, title in ENTRIES
        if any(_is_set(policy, name) for policy in (known.policy, known.override, known.declared))
    ]
    yield from lay_out(columns, rows, table_width())
    yield blank()
    by = f" by {known.set_by}" if known.set_by else ""
    when = "" if known.set_at is None else f", {full(known.set_at, present)}"
    yield from facts(
        ("Running", str(known.running)),
        ("Started", _rate_used(known) if known.policy.rate else None),
        ("Held until", known.held_until),
        ("Next start", known.next_start_at),
        ("Operator", f"set{by}{when}" if known.override else None),
        present=present,
    )
    if known.pending:
        yield [Cell(f"  The last change is accepted, {printable.one_line(known.pending)}.", _OPERATORS)]
    if known.differing:
        yield [Cell("  Workers declare different limits. The strictest holds:", _OPERATORS)]
        for each in known.differing:
            others = f" and {each.workers - 1} more" if each.workers > 1 else ""
            said = ", ".join(
                f"{title} {_text(each.policy, name)}" for name, title in ENTRIES if _is_set(each.policy, name)
            )
            yield [Cell(f"    {printable.one_line(each.worker_id)}{others}: {said or 'nothing'}")]
    if known.override:
        back = f"pulse limits reset {printable.one_line(known.topic)}"
        yield [Cell(f"  What an operator sets wins until it is handed back: {back}", QUIET)]


def lane_view() -> View[pulse.LaneInfo]:
    """Return the view of lanes."""
    present = now()

    def row(lane: pulse.LaneInfo) -> Row:
        waiting = f"{_COUNTED_TO}+" if lane.waiting >= _COUNTED_TO else str(lane.waiting)
        return [
            Cell(printable.one_line(lane.lane) if lane.lane else "(no lane)"),
            Cell(waiting),
            Cell(str(lane.running)),
            Cell(age(lane.oldest, present)),
            Cell("" if lane.next_start_at is None else ago(lane.next_start_at, present)),
            Cell(str(lane.weight)),
            Cell("–" if lane.limit is None else str(lane.limit)),
        ]

    return View(_LANES, row, lane_shape, _LANE_FIELDS)


def limits_shape(known: pulse.TopicLimits) -> Shape:
    """What limits a topic, in JSON."""
    return {
        "topic": known.topic,
        "in_force": _entries(known.policy),
        "running": known.running,
        "started": known.started,
        "held_until": time_shape(known.held_until),
        "next_start_at": time_shape(known.next_start_at),
        "pending": known.pending or None,
        "operator": _entries(known.override),
        "set_by": known.set_by or None,
        "set_at": time_shape(known.set_at),
        "declared": _entries(known.declared),
        "differing": [
            {
                "worker_id": each.worker_id,
                "workers": each.workers,
                "declared": _entries(each.policy),
                "declared_at": time_shape(each.declared_at),
            }
            for each in known.differing
        ],
    }


def lane_shape(lane: pulse.LaneInfo) -> Shape:
    """A lane, in JSON."""
    return fields_shape(lane, "lane waiting running oldest next_start_at weight limit")


def _entries(policy: pulse.LimitPolicy) -> Shape:
    return {title.replace("-", "_"): _value(policy, name) for name, title in ENTRIES}


def _value(policy: pulse.LimitPolicy, name: str) -> Any:
    match name:
        case "limit" | "per_lane" if _is_set(policy, name):
            return getattr(policy, name).limit
        case "rate" | "lane_rate" | "aging" if _is_set(policy, name):
            return _text(policy, name)
    return getattr(policy, name)


def _text(policy: pulse.LimitPolicy, name: str) -> str:
    if not _is_set(policy, name):
        return "–"
    value = getattr(policy, name)
    match name:
        case "limit" | "per_lane":
            return str(value.limit)
        case "rate" | "lane_rate":
            return format_rate(value.starts, value.per)
        case "aging":
            return format_exact(value)
        case "pool":
            return printable.one_line(value)
    return "yes" if value else "no"


def _is_set(policy: pulse.LimitPolicy, name: str) -> bool:
    return getattr(policy, name) is not None


def _style(known: pulse.TopicLimits, name: str) -> str:
    return _OPERATORS if _is_set(known.override, name) else ""


def _next_start(known: pulse.TopicLimits, present: datetime) -> str:
    if known.held_until is not None:
        return f"held, {ago(known.held_until, present)}"
    return "" if known.next_start_at is None else ago(known.next_start_at, present)


def _rate_used(known: pulse.TopicLimits) -> str:
    rate = _text(known.policy, "rate")
    return f"{known.started} of {rate}" if known.policy.rate else rate
