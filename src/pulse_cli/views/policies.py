"""Policies of topics as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pulse_cli.text import ago, full, now
from pulse_cli.views.descriptions import blank
from pulse_cli.views.output import View
from pulse_cli.views.shapes import policy_shape, run_policy_shape
from pulse_cli.views.tables import QUIET, Cell, Column, Line, Row, lay_out, table_width
from pulse_text import printable
from pulse_text.backoffs import describe_backoff
from pulse_text.times import format_exact

if TYPE_CHECKING:
    import pulse

_COLUMNS = (
    Column("TOPIC", shortest=20),
    Column("COMPLETED", right=True),
    Column("CANCELED", right=True),
    Column("DEAD_LETTERED", right=True),
    Column("SET", drop=1),
    Column("BY", drop=2),
)
_STATUSES = ("COMPLETED", "CANCELED", "DEAD_LETTERED")
_FIELDS = ("topic", "keep_completed", "keep_canceled", "keep_dead_lettered", "set_at", "set_by")


def policy_view(server: pulse.TopicPolicy) -> View[pulse.TopicPolicy]:
    """Return the view of a list of policies. Values from the server's settings are dim."""
    present = now()

    def row(policy: pulse.TopicPolicy) -> Row:
        return [
            Cell(printable.one_line(policy.topic) if policy.topic else "(all others)"),
            *(_cell(policy, status, server) for status in _STATUSES),
            Cell(ago(policy.set_at, present) if policy.set_at else "", QUIET),
            Cell(printable.one_line(policy.set_by)),
        ]

    return View(_COLUMNS, row, policy_shape, _FIELDS)


def policy_words(policy: pulse.TopicPolicy, server: pulse.TopicPolicy) -> str:
    """Return the policy in a sentence."""
    parts = [f"{status} {_words(_kept(policy, status), _kept(server, status))}" for status in _STATUSES]
    sentence = f"Jobs on {policy.topic} are kept: {', '.join(parts)}."
    if policy.shorter_from is None:
        return sentence
    longer = " and ".join(
        f"{status} {_text(policy.keep_before[status])}"
        for status in _STATUSES
        if status in policy.keep_before
    )
    return (
        f"{sentence} What is shorter takes effect {full(policy.shorter_from, now())}; until then: {longer}. "
        "Set the longer value again to lose nothing."
    )


def _cell(policy: pulse.TopicPolicy, status: str, server: pulse.TopicPolicy) -> Cell:
    kept = _kept(policy, status)
    text = _text(_kept(server, status) if kept == "default" else kept)
    if status in policy.keep_before:
        return Cell(f"{_text(policy.keep_before[status])}, soon {text}", _OPERATORS)
    return Cell(text, QUIET if kept == "default" else "")


def _kept(policy: pulse.TopicPolicy, status: str) -> timedelta | str:
    kept: timedelta | str = getattr(policy, f"keep_{status.lower()}")
    return kept


def _words(kept: timedelta | str, setting: timedelta | str) -> str:
    return f"{_text(setting)} (the server's setting)" if kept == "default" else _text(kept)


def _text(kept: timedelta | str) -> str:
    return kept if isinstance(kept, str) else format_exact(kept)


_ENTRIES = (
    ("max_attempts", "Attempts"),
    ("backoff", "Backoff"),
    ("timeout", "Time limit"),
    ("max_crashes", "Crashes"),
)
_OPERATORS = "yellow"
"""The style of values that an operator has set."""
_RUN_LIST = (
    Column("TOPIC", shortest=16),
    Column("ATTEMPTS", right=True),
    Column("BACKOFF", shortest=18),
    Column("TIME LIMIT", right=True),
    Column("CRASHES", right=True),
    Column("SET BY", drop=1),
    Column("DECLARED BY", shortest=12, drop=2),
)
_RUN_FIELDS = (
    "topic",
    "effective.max_attempts",
    "effective.backoff",
    "effective.timeout",
    "effective.max_crashes",
    "set_at",
    "set_by",
    "declared_at",
    "declared_by",
)


def run_policy_view() -> View[pulse.TopicPolicy]:
    """Return the view of a list of policies. Values from the server's settings are dim."""
    present = now()

    def row(policy: pulse.TopicPolicy) -> Row:
        operator = [*_who(policy.set_by, policy.set_at, present)] if policy.run else []
        worker = [*_who(policy.declared_by, policy.declared_at, present)] if policy.declared else []
        return [
            Cell(printable.one_line(policy.topic) if policy.topic else "(all others)"),
            *(Cell(_entry(policy.effective, name), _style(policy, name)) for name, _ in _ENTRIES),
            Cell(", ".join(operator), _OPERATORS),
            Cell(", ".join(worker)),
        ]

    return View(_RUN_LIST, row, run_policy_shape, _RUN_FIELDS)


def describe_run_policy(policy: pulse.TopicPolicy, server: pulse.TopicPolicy) -> Iterator[Line]:
    """Yield the policy of a topic: each entry, its value in force, and its three sources."""
    present = now()
    yield [Cell(printable.one_line(policy.topic), "bold")]
    columns = (
        Column("  ENTRY"),
        Column("IN FORCE", shortest=12),
        Column("OPERATOR", shortest=8),
        Column("CODE", shortest=8),
        Column("SERVER", shortest=8, drop=1),
    )
    rows = [
        [
            Cell(f"  {title}"),
            Cell(_entry(policy.effective, name), _style(policy, name)),
            Cell(_entry(policy.run, name, "–"), _OPERATORS if _is_set(policy.run, name) else QUIET),
            Cell(_entry(policy.declared, name, "–"), "" if _is_set(policy.declared, name) else QUIET),
            Cell(_entry(server.effective, name), QUIET),
        ]
        for name, title in _ENTRIES
    ]
    yield from lay_out(columns, rows, table_width())
    yield blank()
    if policy.run:
        yield [Cell("  Operator  ", QUIET), Cell(_sentence("set", policy.set_by, policy.set_at, present))]
    if policy.declared:
        yield [
            Cell("  Code      ", QUIET),
            Cell(_sentence("declared", policy.declared_by, policy.declared_at, present)),
        ]
    if policy.run:
        back = f"pulse topics policy {printable.one_line(policy.topic)} --default"
        yield [Cell(f"  What an operator sets wins until it is handed back: {back}", QUIET)]
    elif not policy.declared:
        yield [Cell("  No operator has set and no worker has declared anything for this topic.", QUIET)]


def _sentence(verb: str, who: str, when: datetime | None, present: datetime) -> str:
    by = f" by {printable.one_line(who)}" if who else ""
    return f"{verb}{by}{'' if when is None else f', {full(when, present)}'}"


def _who(who: str, when: datetime | None, present: datetime) -> Iterator[str]:
    if who:
        yield printable.one_line(who)
    if when is not None:
        yield ago(when, present)


def _style(policy: pulse.TopicPolicy, name: str) -> str:
    if _is_set(policy.run, name):
        return _OPERATORS
    return "" if _is_set(policy.declared, name) else QUIET


def _is_set(run: pulse.RunPolicy, name: str) -> bool:
    return getattr(run, name) is not None


def _entry(run: pulse.RunPolicy, name: str, unset: str | None = None) -> str:
    """Return an entry in words; `unset` if it is not set, or else what holds then."""
    if not _is_set(run, name) and unset is not None:
        return unset
    match name:
        case "backoff":
            return "–" if run.backoff is None else describe_backoff(run.backoff)
        case "timeout":
            return "none" if run.timeout is None else format_exact(run.timeout)
    number = getattr(run, name)
    return "–" if number is None else str(number)
