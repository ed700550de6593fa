"""I17: in any period no more jobs start than the rate permits, and none while its topic is held.

A start is judged by the rates and holds that were in force at its commit, by the starts that its pool or
lane has counted, and by those that its topic has counted in any pool. When the length of the period
changes, or the topic moves to another pool, the starts of the last period of before count on. None is
judged for a period after the clock of the database was set.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from faults.changes import LimitEvent
from faults.evidence import Evidence
from faults.limit_state import START, Lane, LimitState, Policy, Pool, replay
from faults.violations import Violation

WITHIN_RATE = "in any period no more jobs of a topic or pool start than its rate permits"
WITHIN_LANE_RATE = "in any period no more jobs of a lane start than its rate permits"
NOT_WHILE_HELD = "no job starts while its topic is held"

_SECOND = 1_000_000
_LONGEST_PERIOD = 10 * _SECOND


def check_rates(evidence: Evidence) -> Iterator[Violation]:
    counts = _Counts()
    for state, event in replay(evidence.audit.limits):
        if event.what == "pool":
            counts.pool_changed(state, event)
        elif event.what == "policy":
            counts.policy_changed(state, event)
        elif event.what == START and event.name in state.policies:
            found = list(counts.check_start(state, event))
            if found and not evidence.clock.was_set(event.at, _LONGEST_PERIOD):
                yield from found


class _Counts:
    """The starts that count, and the holds that topics took along."""

    def __init__(self) -> None:
        self._pools: defaultdict[str, deque[int]] = defaultdict(deque)
        self._topics: defaultdict[str, deque[int]] = defaultdict(deque)
        self._lanes: defaultdict[Lane, deque[int]] = defaultdict(deque)
        self._held: dict[str, int] = {}

    def pool_changed(self, state: LimitState, event: LimitEvent) -> None:
        before = state.pools.get(event.name, Pool())
        if event.facts is None:
            self._pools.pop(event.name, None)
        elif event.facts["seconds"] != before.seconds:
            _forget(self._pools[event.name], event.at, before.seconds)
            for topic, policy in state.policies.items():
                if policy.pool == event.name:
                    _forget(self._topics[topic], event.at, before.seconds)

    def policy_changed(self, state: LimitState, event: LimitEvent) -> None:
        before, now = state.policies.get(event.name, Policy("")), event.facts or {}
        left = state.pools.get(before.pool, Pool())
        if not now:
            self._topics.pop(event.name, None)
            self._held.pop(event.name, None)
        elif before.pool != now["pool"]:
            _forget(self._topics[event.name], event.at, left.seconds)
            self._held[event.name] = max(self._held.get(event.name, 0), left.closed_until or 0)
        elif before.closed_until and not now["closed_until"]:  # an operator ended it
            self._held.pop(event.name, None)
        if before.lane_seconds != now.get("lane_seconds"):
            for lane, starts in self._lanes.items():
                if lane[0] == event.name:
                    _forget(starts, event.at, before.lane_seconds)

    def check_start(self, state: LimitState, event: LimitEvent) -> Iterator[Violation]:
        assert event.moment is not None
        policy = state.policies[event.name]
        pool = state.pools[policy.pool]
        held_until = max(pool.closed_until or 0, self._held.get(event.name, 0))
        if event.moment < held_until and not policy.retired:
            left = (held_until - event.moment) / _SECOND
            what = f"A {event.name} job started {left:.3f} s before the end of a hold."
            yield _violation(NOT_WHILE_HELD, what, event)
        if pool.starts is not None:
            for name, starts in (
                (policy.pool, self._pools[policy.pool]),
                (event.name, self._topics[event.name]),
            ):
                count = _count(starts, event.moment, pool.seconds)
                if count > pool.starts:
                    what = f"{count} jobs of {name} started within {pool.seconds:g} s, "
                    yield _violation(WITHIN_RATE, f"{what}with a rate of {pool.starts}.", event)
        if policy.lane_starts is not None and event.lane:
            count = _count(self._lanes[event.name, event.lane], event.moment, policy.lane_seconds)
            if count > policy.lane_starts:
                what = f"{count} jobs of lane {event.lane} of {event.name} started within "
                what += f"{policy.lane_seconds:g} s, with a rate of {policy.lane_starts}."
                yield _violation(WITHIN_LANE_RATE, what, event)


def _count(starts: deque[int], moment: int, seconds: float | None) -> int:
    """Add a start. Returns how many there were in the period that ends with it."""
    starts.append(moment)
    _forget(starts, moment, seconds)
    return len(starts)


def _forget(starts: deque[int], moment: int, seconds: float | None) -> None:
    """Forget the starts that are older than the period at this moment; all if there was no rate."""
    while starts and moment - starts[0] >= (seconds or 0) * _SECOND:
        starts.popleft()


def _violation(rule: str, what: str, event: LimitEvent) -> Violation:
    return Violation("I17", rule, what, event.job_id, at=event.at)
