"""I18: jobs of an ordered lane start in their order, and one that is tried again holds its lane."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from faults.changes import LimitEvent
from faults.evidence import Evidence
from faults.limit_state import DROP, END, START, Lane, LimitState, replay
from faults.violations import Violation

IN_ORDER = "no job of an ordered lane passes one that comes before it"
RETRY_HOLDS = "no job of an ordered lane passes one that is tried again"

# Two jobs that are stored at the same moment may stand in either order.
_SAME_MOMENT = 5_000


def check_lane_order(evidence: Evidence) -> Iterator[Violation]:
    # The jobs that hold their lane. There are several where some ran at once before order was kept.
    tried: defaultdict[Lane, set[str]] = defaultdict(set)
    # Those that did before order was given up. They may be the first again once it is kept, and need not.
    may_pass: set[str] = set()
    for state, event in replay(evidence.audit.limits):
        lane = (event.name, event.lane or "")
        policy = state.policies.get(event.name)
        if event.what == "policy" and not (event.facts and event.facts["ordered"]):
            for held in [held for held in tried if held[0] == event.name]:
                may_pass |= tried.pop(held)
        elif event.what == DROP:
            tried[lane].discard(event.job_id or "")
        elif policy is not None and policy.ordered and event.lane and event.job_id:
            if event.what == END and event.facts and event.facts["again"]:
                tried[lane].add(event.job_id)
            elif event.what == START and event.job_id in tried[lane] | may_pass:
                tried[lane].discard(event.job_id)
                may_pass.discard(event.job_id)
            elif event.what == START and tried[lane]:
                holders = ", ".join(sorted(tried.pop(lane)))
                what = f"It started in lane {event.lane} before job {holders}, which is tried again."
                yield _violation(RETRY_HOLDS, what, event)
            elif event.what == START and not policy.ages:
                yield from _check_order(state, lane, event)


def _check_order(state: LimitState, lane: Lane, event: LimitEvent) -> Iterator[Violation]:
    own = state.waiting[lane].get(event.job_id or "")
    if own is None:
        return
    for other, job in state.waiting[lane].items():
        is_before = job.priority > own.priority or (
            job.priority == own.priority and job.submitted_at + _SAME_MOMENT < own.submitted_at
        )
        if is_before and job.since < event.statement_at:
            late = (event.statement_at - job.since) / 1e6
            what = f"It started in lane {event.lane} before job {other}, which waited there for {late:.3f} s."
            yield _violation(IN_ORDER, what, event)


def _violation(rule: str, what: str, event: LimitEvent) -> Violation:
    return Violation("I18", rule, what, event.job_id, at=event.at)
