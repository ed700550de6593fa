"""I25: what is locked, fails or is meant to harm stops itself, and nothing else.

Each row is a kind of faults and what has to go on beside it. It is judged where something else was due all
the time, and a server and the database had no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from faults.bystanders import CROWD_OF_SCHEDULES, CROWD_OF_TOPICS, CROWD_OF_WORKFLOWS, INTRUDER
from faults.changes import CLAIMS
from faults.disturbances import Span
from faults.evidence import Evidence
from faults.violations import Violation

# Since then the fault is in force, and what was under way before has ended.
_EDGE_NS, _SHORTEST_NS = 2 * 10**9, 3 * 10**9
_CHANGES = (
    "pause",
    "resume",
    "settings",
    "limits",
    "lane",
    "hold",
    "schedule_pause",
    "schedule_resume",
    "schedule_edit",
)
_ENOUGH = 3
_SHORTEST_INTERVAL_MS = 1_000


@dataclass(frozen=True)
class _Row:
    kind: str
    rule: str
    due: Callable[[Evidence, Span, int, int], int]
    """How much else was due in that time."""
    done: Callable[[Evidence, Span, int, int], bool]
    """Whether any of it was done."""


def check_bystanders(evidence: Evidence) -> Iterator[Violation]:
    for row in _ROWS:
        for fault in evidence.disturbances.of_kind(row.kind):
            begin, end = fault.begin + _EDGE_NS, fault.end
            is_calm = evidence.disturbances.is_calm(fault.begin, fault.end)
            if end - begin < _SHORTEST_NS or not is_calm or _is_paused(evidence, begin, end):
                continue
            due = row.due(evidence, fault, begin, end)
            if due >= _ENOUGH and not row.done(evidence, fault, begin, end):
                what = f"{due} others waited in vain for {(end - begin) / 1e9:.1f} s beside {row.kind}."
                yield Violation("I25", row.rule, what, at=evidence.clock.earliest(end))


def _is_paused(evidence: Evidence, begin: int, end: int) -> bool:
    """Whether dispatch of everything was paused at some time."""
    stretch = evidence.clock.earliest(begin), evidence.clock.latest(end)
    return list(evidence.availability.paused("").gaps(*stretch)) != [stretch]


# ---------------------------------------------------------------- the changes of operators


def _changes_sent(evidence: Evidence, fault: Span, begin: int, end: int) -> int:
    """Those that were sent early enough to be answered."""
    last = end - _SHORTEST_NS
    return sum(begin <= request.sent <= last for name in _CHANGES for request in evidence.requests[name])


def _changes_done(evidence: Evidence, fault: Span, begin: int, end: int) -> bool:
    """A refusal is an answer. Some call a server that has a fault of its own."""
    answered = sum(
        begin <= request.sent and request.how != "unknown" and (request.ended or end) < end
        for name in _CHANGES
        for request in evidence.requests[name]
    )
    return answered * 4 >= _changes_sent(evidence, fault, begin, end)


# ---------------------------------------------------------------- schedules


def _fires_due(evidence: Evidence, fault: Span, begin: int, end: int) -> int:
    """How many schedules, of those that were not held, were due within the first second."""
    since, until = evidence.clock.latest(begin), evidence.clock.earliest(begin) + 10**6
    cursors: dict[str, int] = {}
    for change in evidence.audit.schedules:
        if change.at <= since and change.schedule_id not in fault.facts["held"]:
            is_due = change.cursor is not None and not change.paused and change.overlap == "allow"
            cursors[change.schedule_id] = (change.cursor or 0) if is_due else 0
    return sum(0 < cursor <= until for cursor in cursors.values())


def _fired(evidence: Evidence, fault: Span, begin: int, end: int) -> bool:
    since, until = evidence.clock.earliest(begin), evidence.clock.latest(end)
    return any(
        since <= change.at <= until and not change.is_edit and change.schedule_id not in fault.facts["held"]
        for change in evidence.audit.schedules
    )


# ---------------------------------------------------------------- limited topics


def _limited_waiting(evidence: Evidence, fault: Span, begin: int, end: int) -> int:
    """How many other topics with limits had ready jobs all the time, while plain jobs were claimed."""
    since, until = evidence.clock.latest(begin), evidence.clock.earliest(end)
    others = _other_limited(evidence, fault)
    if not any(
        verb in CLAIMS and change.topic not in others and since <= change.at <= until
        for life in evidence.lives.values()
        for verb, change in life
    ):
        return 0
    waiting = {wait.topic for wait in evidence.waits if wait.begin <= since and wait.end >= until}
    return len(waiting & others)


def _limited_claimed(evidence: Evidence, fault: Span, begin: int, end: int) -> bool:
    since, until = evidence.clock.earliest(begin), evidence.clock.latest(end)
    topics = _other_limited(evidence, fault)
    return any(
        verb in CLAIMS and change.topic in topics and since <= change.at <= until
        for life in evidence.lives.values()
        for verb, change in life
    )


def _other_limited(evidence: Evidence, fault: Span) -> set[str]:
    limited = {event.name for event in evidence.audit.limits if event.what == "policy"}
    return limited - set(fault.facts["held"])


# ---------------------------------------------------------------- workflows


def _ends_uncounted(evidence: Evidence, fault: Span, begin: int, end: int) -> int:
    """How many jobs of other workflows ended early enough to be counted."""
    since, until = evidence.clock.latest(begin), evidence.clock.earliest(end - _SHORTEST_NS)
    tables = evidence.audit.workflows
    return sum(
        since <= change.at <= until and change.new is not None and change.new.status == "COMPLETED"
        for job_id, life in evidence.lives.items()
        if (workflow_id := tables.workflow_of(job_id)) and workflow_id not in fault.facts["held"]
        for _, change in life
    )


def _counted(evidence: Evidence, fault: Span, begin: int, end: int) -> bool:
    since, until = evidence.clock.earliest(begin), evidence.clock.latest(end)
    tables = evidence.audit.workflows
    return any(
        since <= counted.at <= until and tables.workflow_of(counted.job_id) not in fault.facts["held"]
        for counted in evidence.audit.outcomes
    )


OPERATORS_GO_ON = "a role that may only connect stops no operator"
SCHEDULES_GO_ON = "schedules that are locked stop no other schedule"
TOPICS_GO_ON = "limited topics whose claims fail stop no other one"
WORKFLOWS_GO_ON = "workflows that are locked stop no other one"
_ROWS = (
    _Row(INTRUDER, OPERATORS_GO_ON, _changes_sent, _changes_done),
    _Row(CROWD_OF_SCHEDULES, SCHEDULES_GO_ON, _fires_due, _fired),
    _Row(CROWD_OF_TOPICS, TOPICS_GO_ON, _limited_waiting, _limited_claimed),
    _Row(CROWD_OF_WORKFLOWS, WORKFLOWS_GO_ON, _ends_uncounted, _counted),
)
