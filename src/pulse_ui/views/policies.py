"""How long finished jobs are kept, as the page shows it: by default, and by topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import pulse
from pulse_text import printable
from pulse_text.durations import format_exact, parse_duration

Keep: TypeAlias = timedelta | Literal["forever", "default"]


@dataclass(frozen=True, slots=True)
class KeepView:
    """How long jobs of one status are kept."""

    text: str
    """What is in force."""
    is_own: bool
    """Set for this topic, not by the server's settings."""
    entered: str
    """What a form shows to be edited; empty for the server's setting."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    topic: str
    completed: KeepView
    canceled: KeepView
    dead_lettered: KeepView
    set_by: str
    set_at: datetime | None


def policy_rows(policies: Iterable[pulse.TopicPolicy], server: pulse.TopicPolicy) -> tuple[PolicyRow, ...]:
    """Return the rows of the topics that have a policy."""
    return tuple(policy_row(policy, server) for policy in policies)


def policy_row(policy: pulse.TopicPolicy, server: pulse.TopicPolicy) -> PolicyRow:
    """Return the row of one topic; the server's own if both are the same."""
    return PolicyRow(
        policy.topic,
        _view(policy.keep_completed, server.keep_completed),
        _view(policy.keep_canceled, server.keep_canceled),
        _view(policy.keep_dead_lettered, server.keep_dead_lettered),
        printable.one_line(policy.set_by),
        policy.set_at,
    )


def read_keep(text: str) -> Keep:
    """Return what was entered: a duration, forever, or the server's setting if it is empty."""
    match text.strip().lower():
        case "" | "default":
            return "default"
        case "forever":
            return "forever"
    try:
        return parse_duration(text)
    except ValueError as error:
        raise pulse.InvalidArgument(f"{str(error).removesuffix('.')}, or forever.") from None


def _view(keep: Keep, setting: Keep) -> KeepView:
    is_own = keep != "default"
    return KeepView(_text(keep if is_own else setting), is_own, _text(keep) if is_own else "")


def _text(keep: Keep) -> str:
    return keep if isinstance(keep, str) else format_exact(keep)
