"""Policies of topics as tables and sentences."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulse_cli.text.times import ago
from pulse_cli.views.output import View
from pulse_cli.views.shapes_policies import policy_shape
from pulse_cli.views.tables import QUIET, Cell, Column, Row
from pulse_text import printable
from pulse_text.durations import format_exact
from pulse_text.moments import now

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
_FIELDS = ("topic", "keep_completed", "keep_canceled", "keep_dead_lettered", "set_at", "set_by")


def policy_view(server: pulse.TopicPolicy) -> View[pulse.TopicPolicy]:
    """Return the view of a list of policies. What the server's settings decide is dim."""
    present = now()

    def row(policy: pulse.TopicPolicy) -> Row:
        return [
            Cell(printable.one_line(policy.topic) if policy.topic else "(all others)"),
            _cell(policy.keep_completed, server.keep_completed),
            _cell(policy.keep_canceled, server.keep_canceled),
            _cell(policy.keep_dead_lettered, server.keep_dead_lettered),
            Cell(ago(policy.set_at, present) if policy.set_at else "", QUIET),
            Cell(printable.one_line(policy.set_by)),
        ]

    return View(_COLUMNS, row, policy_shape, _FIELDS)


def policy_words(policy: pulse.TopicPolicy, server: pulse.TopicPolicy) -> str:
    """Return the policy in a sentence."""
    parts = [
        f"{status} {_words(kept, setting)}"
        for status, kept, setting in (
            ("COMPLETED", policy.keep_completed, server.keep_completed),
            ("CANCELED", policy.keep_canceled, server.keep_canceled),
            ("DEAD_LETTERED", policy.keep_dead_lettered, server.keep_dead_lettered),
        )
    ]
    return f"Jobs on {policy.topic} are kept: {', '.join(parts)}."


def _cell(kept: timedelta | str, setting: timedelta | str) -> Cell:
    return Cell(_text(setting), QUIET) if kept == "default" else Cell(_text(kept))


def _words(kept: timedelta | str, setting: timedelta | str) -> str:
    return f"{_text(setting)} (the server's setting)" if kept == "default" else _text(kept)


def _text(kept: timedelta | str) -> str:
    return kept if isinstance(kept, str) else format_exact(kept)
