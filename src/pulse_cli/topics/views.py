"""Topics as tables and as JSON: their counts and rates, settings, limits, lanes and pauses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pulse.topic_settings import ENTRIES, group_of
from pulse_cli.output import Shape, View, blank, facts, fields_shape, time_shape
from pulse_cli.terminal import (
    QUIET,
    WARNING,
    Cell,
    Column,
    Line,
    Row,
    age,
    ago,
    compact,
    full,
    lay_out,
    now,
    table_width,
    without_empty,
)
from pulse_text import printable

if TYPE_CHECKING:
    import pulse

_OPERATORS = "yellow"
"""The style of values that an operator has set."""
_GROUPS = (("LIMITS", "limits"), ("RUNS", "runs"), ("KEPT", "retention"))
_LIST = (
    Column("TOPIC", shortest=16),
    *(Column(title, shortest=16) for title, _ in _GROUPS),
    Column("SET BY", drop=1),
    Column("DECLARED BY", shortest=12, drop=2),
)
_FIELDS = (
    "topic",
    *(f"in_force.{name}" for name in ENTRIES),
    "set_at",
    "set_by",
    "declared_at",
    "declared_by",
)
_ENTRIES = (
    Column("  ENTRY"),
    Column("IN FORCE", shortest=12),
    Column("BY"),
    Column("OPERATOR", shortest=8),
    Column("CODE", shortest=8),
    Column("SERVER", shortest=8, drop=1),
)
_LIMITS = (
    Column("TOPIC", shortest=16),
    Column("RUNNING", right=True),
    Column("RATE", right=True),
    Column("PER LANE", right=True),
    Column("LANE RATE", right=True, drop=3),
    Column("ALSO", shortest=8, drop=2),
    Column("NEXT START"),
)
_LIMIT_FIELDS = (
    "topic",
    "running",
    *(f"in_force.{name}" for name in ("running", "rate", "per_lane", "lane_rate")),
    "next_start_at",
    "held_until",
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


# ---------------------------------------------------------------- settings


def settings_of_server(found: pulse.AllTopicSettings) -> pulse.TopicSettings:
    """Return the settings of the server as those of a topic without a name."""
    from pulse import TopicSettings

    return TopicSettings("", found.server, dict.fromkeys(found.server, "server"))


def settings_view() -> View[pulse.TopicSettings]:
    """Return the view of topics with settings of their own. What an operator has set is yellow."""
    present = now()

    def row(settings: pulse.TopicSettings) -> Row:
        return [
            Cell(printable.one_line(settings.topic) if settings.topic else "(all others)"),
            *(_group_cell(settings, group) for _, group in _GROUPS),
            Cell(_who(settings.set_by, settings.set_at, present) if settings.operator else "", _OPERATORS),
            Cell(_who(settings.declared_by, settings.declared_at, present) if settings.declared else ""),
        ]

    return View(_LIST, row, settings_shape, _FIELDS)


def _group_cell(settings: pulse.TopicSettings, group: str) -> Cell:
    """The entries of a group that the topic does not have from the servers."""
    names = [entry.name for entry in group_of(group)]
    own = [
        name
        for name in names
        if name in settings.before or settings.decided_by.get(name, "server") != "server"
    ]
    shown = own if settings.topic else [name for name in names if name in settings.in_force]
    parts = [f"{dashed(name)} {_in_force(settings, name)}" for name in shown]
    is_set = any(name in settings.operator for name in names)
    return Cell(", ".join(parts), _OPERATORS if is_set else QUIET if not settings.topic else "")


def describe_settings(settings: pulse.TopicSettings, server: Mapping[str, Any]) -> Iterator[Line]:
    """Yield the settings of a topic: each entry, its value in force, who decided it, and all owners."""
    present = now()
    yield [Cell(printable.one_line(settings.topic), "bold")]
    rows = [
        [
            Cell(f"  {dashed(name)}"),
            _value_cell(_in_force(settings, name), _style(settings, name)),
            Cell(settings.decided_by.get(name, ""), _style(settings, name)),
            _value_cell(_words(settings.operator, name), _OPERATORS),
            _value_cell(_words(settings.declared, name)),
            _value_cell(_words(server, name), QUIET),
        ]
        for name in ENTRIES
    ]
    yield from lay_out(_ENTRIES, rows, table_width())
    yield blank()
    if settings.operator:
        yield _owner("Operator", "set", settings.set_by, settings.set_at, present)
    if settings.declared:
        yield _owner("Code", "declared", settings.declared_by, settings.declared_at, present)
    if not settings.has_own:
        yield [Cell("  No operator has set and no worker has declared anything for this topic.", QUIET)]
    if settings.pending:
        yield [Cell(f"  The last change is accepted, {printable.one_line(settings.pending)}.", _OPERATORS)]
    if settings.shorter_from is not None:
        longer = ", ".join(f"{dashed(name)} {_words(settings.before, name)}" for name in settings.before)
        yield [
            Cell(
                f"  What is shorter takes effect {full(settings.shorter_from, present)}; until then: "
                f"{longer}. Set the longer value again to lose nothing.",
                _OPERATORS,
            )
        ]
    if settings.differing:
        yield [Cell("  Workers declare different limits. The strictest holds:", _OPERATORS)]
        for each in settings.differing:
            others = f" and {each.workers - 1} more" if each.workers > 1 else ""
            declared = ", ".join(f"{dashed(name)} {_words(each.entries, name)}" for name in each.entries)
            yield [Cell(f"    {printable.one_line(each.worker_id)}{others}: {declared or 'nothing'}")]
    if settings.operator:
        back = f"pulse topics reset {printable.one_line(settings.topic)}"
        yield [Cell(f"  What an operator sets wins until it is handed back: {back}", QUIET)]


def settings_shape(settings: pulse.TopicSettings) -> Shape:
    """The settings of a topic, in JSON. Values are numbers, true, false, or as the options take them."""
    return {
        "topic": settings.topic or None,
        "in_force": entries_shape(settings.in_force),
        "decided_by": dict(settings.decided_by),
        "operator": entries_shape(settings.operator),
        "set_by": settings.set_by or None,
        "set_at": time_shape(settings.set_at),
        "declared": entries_shape(settings.declared),
        "declared_by": settings.declared_by or None,
        "declared_at": time_shape(settings.declared_at),
        "differing": [
            {
                "worker_id": each.worker_id,
                "workers": each.workers,
                "declared": entries_shape(each.entries),
                "declared_at": time_shape(each.declared_at),
            }
            for each in settings.differing
        ],
        "before": {name: _value_shape(settings.before, name) for name in settings.before},
        "shorter_from": time_shape(settings.shorter_from),
        "pending": settings.pending or None,
    }


def entries_shape(entries: Mapping[str, Any], *groups: str) -> Shape:
    """All entries, or those of the groups, in JSON; null: not set."""
    named = [entry.name for entry in group_of(*groups)] if groups else ENTRIES
    return {name: _value_shape(entries, name) for name in named}


def _value_shape(entries: Mapping[str, Any], name: str) -> Any:
    value = entries.get(name)
    return value if value is None or isinstance(value, int) else ENTRIES[name].text(value)


def _words(entries: Mapping[str, Any], name: str) -> str:
    return ENTRIES[name].kind.words(entries[name]) if name in entries else ""


def _in_force(settings: pulse.TopicSettings, name: str) -> str:
    value = ENTRIES[name].words(settings.in_force.get(name))
    return f"{_words(settings.before, name)}, soon {value}" if name in settings.before else value


def _value_cell(text: str, style: str = "") -> Cell:
    return Cell(text, style) if text else Cell("–", QUIET)


def _style(settings: pulse.TopicSettings, name: str) -> str:
    decided = settings.decided_by.get(name, "")
    return {"operator": _OPERATORS, "server": QUIET, "": QUIET}.get(decided, "")


def _who(who: str, when: datetime | None, present: datetime) -> str:
    return ", ".join(part for part in (printable.one_line(who), ago(when, present) if when else "") if part)


def _owner(label: str, verb: str, who: str, when: datetime | None, present: datetime) -> Line:
    by = f" by {printable.one_line(who)}" if who else ""
    at = "" if when is None else f", {full(when, present)}"
    return [Cell(f"  {label:<8}  ", QUIET), Cell(f"{verb}{by}{at}")]


# ---------------------------------------------------------------- limits


def limits_view() -> View[pulse.TopicLimits]:
    """Return the view of topics that have limits."""
    present = now()

    def row(known: pulse.TopicLimits) -> Row:
        flags = [name for name in ("turns", "ordered") if known.in_force.get(name)]
        rest = [
            f"{name} {_words(known.in_force, name)}" for name in ("aging", "pool") if name in known.in_force
        ]
        return [
            Cell(printable.one_line(known.topic)),
            Cell(_running_used(known)),
            Cell(_rate_used(known)),
            *(Cell(ENTRIES[name].words(known.in_force.get(name))) for name in ("per_lane", "lane_rate")),
            Cell(", ".join([*flags, *rest, *(["change pending"] if known.pending else [])])),
            Cell(_next_start(known, present)),
        ]

    return View(_LIMITS, row, limits_shape, _LIMIT_FIELDS)


def describe_limits(
    known: pulse.TopicLimits, sharing: Sequence[pulse.TopicLimits], lanes: Sequence[pulse.LaneInfo]
) -> Iterator[Line]:
    """Yield the limits of a topic and their use, the topics of its pool, and its lanes."""
    present = now()
    yield [Cell(printable.one_line(known.topic), "bold")]
    others = ", ".join(each.topic for each in sharing if each.topic != known.topic)
    pool = known.in_force.get("pool")
    rest = ("per_lane", "lane_rate", "turns", "ordered", "aging")
    yield from facts(
        ("running", _running_used(known)),
        ("rate", _rate_used(known) if "rate" in known.in_force else None),
        *((dashed(name), _words(known.in_force, name)) for name in rest),
        ("pool", f"{pool}, counted together with {others}" if others else pool),
        ("Held until", known.held_until),
        ("Next start", known.next_start_at),
        present=present,
    )
    if known.pending:
        yield [Cell(f"  The last change is accepted, {printable.one_line(known.pending)}.", _OPERATORS)]
    if lanes:
        yield blank()
        view = lane_view()
        yield from lay_out(view.columns, [view.row(lane) for lane in lanes], table_width())


def limits_shape(known: pulse.TopicLimits) -> Shape:
    """The limits in force and their use, in JSON."""
    return {
        "topic": known.topic,
        "in_force": entries_shape(known.in_force, "limits"),
        **fields_shape(known, "running started held_until next_start_at"),
        "pending": known.pending or None,
    }


def used_limits_shape(
    known: pulse.TopicLimits, sharing: Sequence[pulse.TopicLimits], lanes: Sequence[pulse.LaneInfo]
) -> Shape:
    """The limits of one topic, with the topics of its pool and its lanes."""
    return limits_shape(known) | {
        "pool_topics": [each.topic for each in sharing],
        "lanes": [lane_shape(lane) for lane in lanes],
    }


def _running_used(known: pulse.TopicLimits) -> str:
    most = known.in_force.get("running")
    return str(known.running) if most is None else f"{known.running} of {most}"


def _rate_used(known: pulse.TopicLimits) -> str:
    rate = ENTRIES["rate"].words(known.in_force.get("rate"))
    return f"{known.started} of {rate}" if "rate" in known.in_force else rate


def _next_start(known: pulse.TopicLimits, present: datetime) -> str:
    if known.held_until is not None:
        return f"held, {ago(known.held_until, present)}"
    return "" if known.next_start_at is None else ago(known.next_start_at, present)


# ---------------------------------------------------------------- lanes


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


def lane_shape(lane: pulse.LaneInfo) -> Shape:
    """A lane, in JSON."""
    return fields_shape(lane, "lane waiting running oldest next_start_at weight limit")


def dashed(name: str) -> str:
    """Return the name of an entry as people type it here."""
    return name.replace("_", "-")


# ---------------------------------------------------------------- counts

TOPIC_COLUMNS = (
    Column("TOPIC", shortest=20),
    Column("READY", right=True),
    Column("OLDEST", right=True, drop=2),
    Column("WAIT", right=True, drop=5),
    Column("FOR JOBS", right=True, drop=6, optional=True),
    Column("RUN", right=True),
    Column("DEAD", right=True),
    Column("CANCELED", right=True, drop=9),
    Column("IN/MIN", right=True, drop=8),
    Column("DONE/MIN", right=True, drop=1),
    Column("FAIL/MIN", right=True, drop=3),
    Column("IN/H", right=True, drop=10),
    Column("DONE/H", right=True, drop=11),
    Column("FAIL/H", right=True, drop=12),
    Column("WORKERS", right=True, drop=4),
    Column("", optional=True),
)
_RATES = ("submitted", "completed", "failed", "dead_lettered")
_TOPIC_FIELDS = (
    "topic",
    "ready",
    "waiting",
    "running",
    "dead_lettered",
    "canceled",
    "oldest_ready_at",
    "paused",
    "workers",
    *(f"last_minute.{rate}" for rate in _RATES),
    *(f"last_hour.{rate}" for rate in _RATES),
    "waiting_for_jobs",
)


def topic_view() -> View[pulse.TopicInfo]:
    """Return the view of a list of topics."""
    present = now()
    return View(TOPIC_COLUMNS, lambda topic: topic_row(topic, present), topic_shape, _TOPIC_FIELDS)


def topic_table(
    topics: Sequence[pulse.TopicInfo], width: int | None, total: pulse.TopicInfo | None = None
) -> list[Line]:
    """Return the table of topics, with a row of totals if there are several.

    `total` is the sum of all topics. It is given if `topics` is not complete.
    """
    present = now()
    rows = [topic_row(topic, present) for topic in topics]
    if len(topics) > 1:
        rows.append(total_row(topics if total is None else [total], present))
    return lay_out(*without_empty(TOPIC_COLUMNS, rows), width)


def topic_row(topic: pulse.TopicInfo, present: datetime) -> Row:
    """Return a topic's row: what needs attention is red, zeros are dim."""
    minute, hour = topic.last_minute, topic.last_hour
    return [
        Cell(printable.one_line(topic.topic)),
        _count(topic.ready),
        Cell(age(topic.oldest_ready_at, present), "" if topic.oldest_ready_at else QUIET),
        _count(topic.waiting),
        Cell(compact(topic.waiting_for_jobs) if topic.waiting_for_jobs else ""),
        _count(topic.running, "blue"),
        _count(topic.dead_lettered, "bold red"),
        _count(topic.canceled),
        _count(minute.submitted),
        _count(minute.completed, "green"),
        _count(minute.failed, "red"),
        _count(hour.submitted),
        _count(hour.completed),
        _count(hour.failed),
        Cell("none", "bold yellow") if topic.ready and not topic.workers else _count(topic.workers),
        Cell("paused" if topic.paused else "", WARNING),
    ]


def total_row(topics: Sequence[pulse.TopicInfo], present: datetime) -> Row:
    """Return the row of totals. Workers are not summed: one may serve several topics."""
    counts = [sum(column) for column in zip(*map(_counts, topics), strict=True)]
    oldest = min((t.oldest_ready_at for t in topics if t.oldest_ready_at), default=None)
    texts = ["total", compact(counts[0]), age(oldest, present), *map(compact, counts[1:]), "", ""]
    waiting_for_jobs = sum(topic.waiting_for_jobs for topic in topics)
    texts.insert(4, compact(waiting_for_jobs) if waiting_for_jobs else "")
    return [Cell(text, "bold") for text in texts]


def _counts(topic: pulse.TopicInfo) -> Sequence[int]:
    minute, hour = topic.last_minute, topic.last_hour
    return (
        topic.ready,
        topic.waiting,
        topic.running,
        topic.dead_lettered,
        topic.canceled,
        minute.submitted,
        minute.completed,
        minute.failed,
        hour.submitted,
        hour.completed,
        hour.failed,
    )


def _count(number: int, style: str = "") -> Cell:
    return Cell(compact(number), style if number else QUIET)


def dispatch_shape(
    status: pulse.DispatchStatus, topics: Iterable[pulse.TopicInfo], total: pulse.TopicInfo | None = None
) -> Shape:
    """The pauses, and how many ready jobs each holds. `total` is the sum of all topics."""
    ready = {topic.topic: topic.ready for topic in topics}
    ready_and_paused = sum(topic.ready for topic in topics if topic.paused)
    return {
        "paused": status.paused,
        "reason": status.reason or None,
        "paused_at": time_shape(status.paused_at),
        "paused_by": status.paused_by or None,
        "held_back": total.ready if status.paused and total else ready_and_paused,
        "topics": [
            {
                "topic": topic,
                "reason": pause.reason or None,
                "paused_at": time_shape(pause.paused_at),
                "paused_by": pause.paused_by or None,
                "held_back": ready.get(topic, 0),
            }
            for topic, pause in sorted(status.topics.items())
        ],
    }


def topic_shape(topic: pulse.TopicInfo) -> Shape:
    """The counts and rates of a topic."""
    return fields_shape(
        topic,
        "topic ready waiting running dead_lettered canceled oldest_ready_at paused workers last_minute "
        "last_hour wait run waiting_for_jobs",
    )
