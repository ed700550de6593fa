"""The lanes of a topic, as its page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pulse
from pulse_text import printable
from pulse_ui.views import words

WAIT, SHARE = "wait", "share"
COUNTED_TO = 1_000
"""As far as pulsed counts the waiting jobs of a lane."""


@dataclass(frozen=True, slots=True)
class LaneRow:
    key: str
    """As jobs name it; empty for the jobs without a lane."""
    name: str
    waiting: str
    running: int
    share: float | None
    """Of the running jobs of the lanes that are shown."""
    oldest: datetime | None
    next_start_at: datetime | None
    weight: int
    limit: str
    own_limit: int | None

    @property
    def is_special(self) -> bool:
        """Whether an operator has given it a weight or a limit of its own."""
        return self.weight != 1 or self.own_limit is not None


def lane_rows(lanes: Sequence[pulse.LaneInfo], policy: pulse.FlowPolicy) -> list[LaneRow]:
    running = sum(lane.running for lane in lanes)
    return [_row(lane, policy, running) for lane in lanes]


def _row(lane: pulse.LaneInfo, policy: pulse.FlowPolicy, running: int) -> LaneRow:
    shared = policy.per_lane.limit if policy.per_lane is not None else None
    # Jobs without a lane share one that has no limit of its own.
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
