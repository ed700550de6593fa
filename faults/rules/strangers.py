"""I25: a user who serves no topic stops none. What such a user declares and holds has numbers of its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from faults.changes import LimitEvent
from faults.evidence import Evidence
from faults.spans import SECOND
from faults.violations import Violation

NO_LIMITS_TO_SET = "a user without a worker of a topic neither limits nor holds it"

# No other user declares these, and no other hold is as long.
LIMIT, STARTS, HELD_FOR = 17, 13, timedelta(days=364)
_DAY = 24 * 3600 * SECOND


def check_strangers(evidence: Evidence) -> Iterator[Violation]:
    for event in evidence.audit.limits:
        facts = event.facts or {}
        is_limited = event.what == "pool" and (facts.get("limit") == LIMIT or facts.get("starts") == STARTS)
        days = ((_held_until(event) or event.at) - event.at) // _DAY
        if is_limited:
            what = f"{event.name} has the limit that a user who does not serve it declared."
        elif days >= 1:
            what = f"{event.name} is held for {days} days by a user who does not serve it."
        else:
            continue
        yield Violation("I25", NO_LIMITS_TO_SET, what, at=event.at)


def _held_until(event: LimitEvent) -> int | None:
    """A hold is kept with the pool, and with the topic for its next one."""
    if event.what == "pool":
        return event.moment
    text = (event.facts or {}).get("closed_until") if event.what == "policy" else None
    return None if text is None else int(datetime.fromisoformat(text).timestamp() * SECOND)
