"""I16: at every commit no more jobs of a topic, a pool or a lane run than its limit permits.

A limit that is lowered ends no run: it is broken by a start only. The events are in the order of their
commits. A claim counts the ends of runs that were committed before it, and no others: at its own commit at
least as many have ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from faults.changes import LimitEvent
from faults.evidence import Evidence
from faults.limit_state import START, LimitState, replay
from faults.violations import Violation

WITHIN_LIMIT = "no job starts beyond the limit of its topic or pool"
WITHIN_LANE = "no job starts beyond the limit of its lane"
COUNTED_IN_POOL = "a job of a topic with limits is counted where they are"


def check_limits(evidence: Evidence) -> Iterator[Violation]:
    for state, event in replay(evidence.audit.limits):
        if event.what == START and event.name in state.policies:
            yield from _check_start(state, event)


def count_starts(evidence: Evidence) -> dict[str, int]:
    """How many jobs started under limits, and how many of them took the last place of one."""
    limited = filled = 0
    for state, event in replay(evidence.audit.limits):
        if event.what == START and (policy := state.policies.get(event.name)):
            limited += 1
            lane = (event.name, event.lane or "")
            filled += state.running_at(policy.pool) + 1 == state.pools[policy.pool].limit or state.running_in[
                lane
            ] + 1 == state.limit_of(lane)
    return {"limited": limited, "filled": filled}


def _check_start(state: LimitState, event: LimitEvent) -> Iterator[Violation]:
    policy = state.policies[event.name]
    counted_in = event.facts and event.facts["pool"]
    if counted_in != policy.pool:
        what = f"A {event.name} job was counted in {counted_in}, and not in {policy.pool}."
        yield _violation(COUNTED_IN_POOL, what, event)
    limit = state.pools[policy.pool].limit
    running = state.running_at(policy.pool) + 1
    if limit is not None and running > limit:
        what = f"{running} jobs of {policy.pool} ran with a limit of {limit}."
        yield _violation(WITHIN_LIMIT, what, event)
    lane = (event.name, event.lane or "")
    of_lane = state.limit_of(lane)
    if of_lane is not None and (running := state.running_in[lane] + 1) > of_lane:
        what = f"{running} jobs of lane {event.lane} of {event.name} ran with a limit of {of_lane}."
        yield _violation(WITHIN_LANE, what, event)


def _violation(rule: str, what: str, event: LimitEvent) -> Violation:
    return Violation("I16", rule, what, event.job_id, at=event.at)
