"""I17: in any period no more jobs start than the rate permits, and none while its topic is held.

A start is judged by the rates that were in force at its commit, and by the starts since the length of the
period was last changed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from tests.faults.changes import FlowEvent
from tests.faults.evidence import Evidence
from tests.faults.flow_state import START, FlowState, Lane, Turnstile, replay
from tests.faults.violations import Violation

WITHIN_RATE = "in any period no more jobs of a topic or pool start than its rate permits"
WITHIN_LANE_RATE = "in any period no more jobs of a lane start than its rate permits"
NOT_WHILE_HELD = "no job starts while its topic is held"

_SECOND = 1_000_000


def check_rates(evidence: Evidence) -> Iterator[Violation]:
    starts: defaultdict[str, deque[int]] = defaultdict(deque)
    of_lanes: defaultdict[Lane, deque[int]] = defaultdict(deque)
    for state, event in replay(evidence.audit.flow):
        if event.what == "turnstile":
            now = (event.facts or {}).get("seconds")
            if now != state.turnstiles.get(event.name, Turnstile()).seconds:
                starts.pop(event.name, None)
        elif event.what == "policy":
            before, now = state.policies.get(event.name), (event.facts or {}).get("lane_seconds")
            if before is None or before.lane_seconds != now:
                for lane in [lane for lane in of_lanes if lane[0] == event.name]:
                    del of_lanes[lane]
        elif event.what == START and event.name in state.policies:
            yield from _check_start(state, event, starts, of_lanes)


def _check_start(
    state: FlowState,
    event: FlowEvent,
    starts: defaultdict[str, deque[int]],
    of_lanes: defaultdict[Lane, deque[int]],
) -> Iterator[Violation]:
    assert event.moment is not None
    policy = state.policies[event.name]
    turnstile = state.turnstiles[policy.turnstile]
    if turnstile.closed_until is not None and event.moment < turnstile.closed_until:
        left = (turnstile.closed_until - event.moment) / _SECOND
        what = f"A {event.name} job started {left:.3f} s before the end of a hold."
        yield _violation(NOT_WHILE_HELD, what, event)
    count = _count(starts[policy.turnstile], event.moment, turnstile.seconds)
    if turnstile.starts is not None and count > turnstile.starts:
        what = f"{count} jobs of {policy.turnstile} started within {turnstile.seconds:g} s, "
        yield _violation(WITHIN_RATE, f"{what}with a rate of {turnstile.starts}.", event)
    if policy.lane_starts is not None and event.lane:
        count = _count(of_lanes[event.name, event.lane], event.moment, policy.lane_seconds)
        if count > policy.lane_starts:
            what = f"{count} jobs of lane {event.lane} of {event.name} started within "
            what += f"{policy.lane_seconds:g} s, with a rate of {policy.lane_starts}."
            yield _violation(WITHIN_LANE_RATE, what, event)


def _count(starts: deque[int], moment: int, seconds: float | None) -> int:
    """Add a start. Returns how many there were in the period that ends with it."""
    if seconds is None:
        return 0
    starts.append(moment)
    while starts and moment - starts[0] >= seconds * _SECOND:
        starts.popleft()
    return len(starts)


def _violation(rule: str, what: str, event: FlowEvent) -> Violation:
    return Violation("I17", rule, what, event.job_id, at=event.at)
