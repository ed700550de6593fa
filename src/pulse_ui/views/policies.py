"""Policies of topics as pages show them: how long finished jobs are kept, and how jobs run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import pulse
from pulse_text import printable
from pulse_text.backoffs import describe_backoff, format_backoff, parse_backoff
from pulse_text.times import format_exact, parse_duration

Keep: TypeAlias = timedelta | Literal["forever", "default"]


@dataclass(frozen=True, slots=True)
class KeepView:
    """How long jobs of one status are kept."""

    text: str
    """The value in force."""
    is_own: bool
    """Set for this topic, not by the server's settings."""
    entered: str
    """The text to edit in a form; empty for the server's setting."""
    before: str = ""
    """The longer value that counts until the shorter one takes effect."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    topic: str
    completed: KeepView
    canceled: KeepView
    dead_lettered: KeepView
    set_by: str
    set_at: datetime | None
    shorter_from: datetime | None = None
    """When a shortened value takes effect."""

    @property
    def is_own(self) -> bool:
        kept = (self.completed, self.canceled, self.dead_lettered)
        return any(keep.is_own or keep.before for keep in kept)


def policy_rows(policies: Iterable[pulse.TopicPolicy], server: pulse.TopicPolicy) -> tuple[PolicyRow, ...]:
    """Return the rows of the topics that have a policy."""
    return tuple(policy_row(policy, server) for policy in policies)


def policy_row(policy: pulse.TopicPolicy, server: pulse.TopicPolicy) -> PolicyRow:
    """Return the row of one topic; the server's own if both are the same."""
    return PolicyRow(
        policy.topic,
        _view(policy.keep_completed, server.keep_completed, policy.keep_before.get("COMPLETED")),
        _view(policy.keep_canceled, server.keep_canceled, policy.keep_before.get("CANCELED")),
        _view(policy.keep_dead_lettered, server.keep_dead_lettered, policy.keep_before.get("DEAD_LETTERED")),
        printable.one_line(policy.set_by),
        policy.set_at,
        policy.shorter_from,
    )


def read_keep(text: str) -> Keep:
    """Parse a form field: a duration, forever, or the server's setting if it is empty."""
    match text.strip().lower():
        case "" | "default":
            return "default"
        case "forever":
            return "forever"
    try:
        return parse_duration(text)
    except ValueError as error:
        raise pulse.InvalidArgument(f"{str(error).removesuffix('.')}, or forever.") from None


def _view(keep: Keep, setting: Keep, before: Keep | None) -> KeepView:
    is_own = keep != "default"
    return KeepView(
        _text(keep if is_own else setting),
        is_own,
        _text(keep) if is_own else "",
        "" if before is None else _text(before),
    )


def _text(keep: Keep) -> str:
    return keep if isinstance(keep, str) else format_exact(keep)


Entry: TypeAlias = int | timedelta | pulse.Backoff | None
ENTRIES = (
    ("max_attempts", "Attempts"),
    ("backoff", "Backoff"),
    ("timeout", "Time limit"),
    ("max_crashes", "Crashes"),
)
"""The names of the entries and the titles of their columns."""
_UNSET = {"timeout": "none"}
"""What holds if an entry is set nowhere."""


@dataclass(frozen=True, slots=True)
class EntryView:
    """One entry of the policy of a topic."""

    text: str
    """The value in force."""
    source: str
    """The source of the value: operator, code or server."""
    entered: str
    """The text to edit in a form; empty unless an operator has set it."""
    otherwise: str
    """The value once an operator removes the setting."""
    explanation: str
    """The values of the three sources, in one line."""


@dataclass(frozen=True, slots=True)
class RunPolicyRow:
    topic: str
    entries: dict[str, EntryView]
    has_operator: bool
    set_by: str
    set_at: datetime | None
    is_declared: bool
    declared_by: str
    declared_at: datetime | None


def run_policy_rows(
    policies: Iterable[pulse.TopicPolicy], server: pulse.TopicPolicy
) -> tuple[RunPolicyRow, ...]:
    """Return the rows of the topics that have a run policy, set by an operator or declared."""
    return tuple(run_policy_row(policy, server) for policy in policies if policy.run or policy.declared)


def run_policy_row(policy: pulse.TopicPolicy, server: pulse.TopicPolicy) -> RunPolicyRow:
    """Return the row of one topic; the server's own if both are the same."""
    return RunPolicyRow(
        policy.topic,
        {name: _entry(name, policy, server) for name, _ in ENTRIES},
        bool(policy.run),
        printable.one_line(policy.set_by),
        policy.set_at,
        bool(policy.declared),
        printable.one_line(policy.declared_by),
        policy.declared_at,
    )


def read_count(name: str, text: str) -> int | Literal["default"]:
    """Return the number that was entered; nothing hands the entry back."""
    if _is_default(text):
        return "default"
    if not text.strip().isdecimal():
        raise pulse.InvalidArgument(f"{name}: {text[:40]!r} is not a whole number, such as 8.")
    return int(text)


def read_limit(text: str) -> timedelta | Literal["default"]:
    """Return the time limit that was entered; nothing hands the entry back."""
    if _is_default(text):
        return "default"
    try:
        return parse_duration(text)
    except ValueError as error:
        raise pulse.InvalidArgument(f"Time limit: {error}") from None


def read_backoff(text: str) -> pulse.Backoff | Literal["default"]:
    """Return the delays that were entered; nothing hands the entry back."""
    if _is_default(text):
        return "default"
    try:
        return pulse.Backoff(**parse_backoff(text))
    except ValueError as error:
        raise pulse.InvalidArgument(f"Backoff: {error}") from None


def _is_default(text: str) -> bool:
    return text.strip().lower() in ("", "default")


def _entry(name: str, policy: pulse.TopicPolicy, server: pulse.TopicPolicy) -> EntryView:
    by_operator: Entry = getattr(policy.run, name)
    declared: Entry = getattr(policy.declared, name)
    setting = _entry_text(name, getattr(server.effective, name))
    source = "operator" if by_operator is not None else "code" if declared is not None else "server"
    said = [f"the server’s setting: {setting}"]
    if declared is not None:
        said.insert(0, f"declared by the code: {_entry_text(name, declared)}")
    otherwise = said[0]
    if by_operator is not None:
        said.insert(0, f"set by an operator: {_entry_text(name, by_operator)}")
    return EntryView(
        _entry_text(name, getattr(policy.effective, name)),
        source,
        "" if by_operator is None else _entered(by_operator),
        otherwise,
        "; ".join(said),
    )


def _entry_text(name: str, value: Entry) -> str:
    if value is None:
        return _UNSET.get(name, "–")
    return describe_backoff(value) if isinstance(value, pulse.Backoff) else _entered(value)


def _entered(value: int | timedelta | pulse.Backoff) -> str:
    if isinstance(value, pulse.Backoff):
        return format_backoff(value)
    return format_exact(value) if isinstance(value, timedelta) else str(value)
