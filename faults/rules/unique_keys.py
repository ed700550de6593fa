"""I14: at most one job of a unique key waits, lives, or is stored in a period.

And none that has started swallows a later submit. A second job can be stored once the change that frees the
key is committed: so that change was recorded before the insert was.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from faults.changes import CLAIMS, JobChange
from faults.evidence import Evidence, Request, Step
from faults.violations import Violation

ONE_AT_A_TIME = "at most one job of a unique key waits, or lives"
ONE_IN_A_PERIOD = "at most one job of a throttled key is stored in a period"
STARTED_SWALLOWS_NOTHING = "a job that has started is no duplicate of a later submit"

_FOR_EVER = 1 << 62


def check_unique_keys(evidence: Evidence) -> Iterator[Violation]:
    inserts: defaultdict[tuple[str, str], list[JobChange]] = defaultdict(list)
    for life in evidence.lives.values():
        first = life[0].change
        if first.old is None and first.unique_key is not None:
            inserts[first.topic, first.unique_key].append(first)
    for changes in inserts.values():
        changes.sort(key=lambda change: change.at)
        for one, other in itertools.pairwise(changes):
            scope, _, key = (one.unique_key or "").partition(" ")
            if _freed_at(evidence.lives[one.job_id], scope) > other.at:
                what = f"A second {one.topic} job of {key!r} was stored while the first was {scope}."
                yield _violation(ONE_AT_A_TIME, what, other, one.job_id)
    yield from _check_periods(evidence)
    for submit in evidence.requests["submit"]:
        yield from _check_duplicate(evidence, submit)


def _freed_at(life: list[Step], scope: str) -> int:
    for verb, change in life[1:]:
        is_finished = change.new is None or change.new.status in ("COMPLETED", "DEAD_LETTERED", "CANCELED")
        if is_finished or (scope == "waiting" and verb in CLAIMS):
            return change.at
    return _FOR_EVER


def _check_periods(evidence: Evidence) -> Iterator[Violation]:
    """A period begins within the statement that stores its job."""
    stored: defaultdict[tuple[str, str], list[tuple[JobChange, float]]] = defaultdict(list)
    for submit in evidence.requests["submit"]:
        unique, job_id = submit.facts.get("unique"), submit.answer.get("job_id")
        if not unique or unique["on_conflict"] != "throttle" or submit.answer.get("duplicate"):
            continue
        if job_id in evidence.lives:
            first = evidence.lives[job_id][0].change
            stored[submit.facts["topic"], unique["key"]].append((first, unique["period"]))
    for changes in stored.values():
        changes.sort(key=lambda each: each[0].at)
        for (one, period), (other, _) in itertools.pairwise(changes):
            if other.at - one.statement_at < period * 1e6:
                what = f"Two {one.topic} jobs were stored within {period:g} s."
                yield _violation(ONE_IN_A_PERIOD, what, other, one.job_id)


def _check_duplicate(evidence: Evidence, submit: Request) -> Iterator[Violation]:
    unique = submit.facts.get("unique")
    if not unique or submit.how != "done" or not submit.answer.get("duplicate"):
        return
    if unique["while_"] != "waiting" or unique["on_conflict"] == "throttle":
        return
    life = evidence.lives.get(submit.answer["job_id"], [])
    started = next((step.change for step in life if step.verb in CLAIMS), None)
    if started is not None and started.at < evidence.clock.earliest(submit.sent):
        late = (evidence.clock.earliest(submit.sent) - started.at) / 1e6
        what = f"It had been claimed {late:.3f} s before the submit that was answered with it."
        yield _violation(STARTED_SWALLOWS_NOTHING, what, started)


def _violation(rule: str, what: str, change: JobChange, *others: str) -> Violation:
    return Violation("I14", rule, what, change.job_id, at=change.at, seq=change.seq, others=others)
