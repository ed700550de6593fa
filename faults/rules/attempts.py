"""I3: attempts are counted as they were made, stay within their limit, and none counts without a start.

A worker confirms an attempt with the server right before its handler starts. If the worker is killed, frozen
or cut off at that moment, the server has to count what may have been started. That is the only excuse: the
attempt was confirmed, its worker had a fault right after it, and one fault excuses no more attempts than the
worker runs handlers at once. While the row is locked or the database is away the worker cannot release the
job either, so the moment lasts until after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from faults.changes import (
    BEAT,
    CLAIMS,
    FAIL,
    ILLEGAL,
    REAP,
    REDRIVE,
    RELEASE,
    SNOOZE,
    JobChange,
)
from faults.disturbances import Span
from faults.evidence import Evidence
from faults.rules.crashes import MAX_CRASHES
from faults.violations import Violation

WITHIN_LIMIT = "attempts stay within max_attempts"
COUNTED = "an attempt is counted when it is claimed, and returned if it was not made or was snoozed"
LIMIT_STAYS = "max_attempts is raised by a redrive alone"
DIES_AT_THE_LIMIT = "a job is dead-lettered if, and only if, it is discarded or out of attempts or crashes"
COUNTS_IF_STARTED = "an attempt counts only if its handler was started"
DIES_STARTED = "a job whose handler never started is not dead-lettered"

# From the confirmation of an attempt to the start of its handler: another one may block the loop meanwhile.
_MOMENT_NS = 3 * 10**9


def check_attempts(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values():
        for verb, change in life:
            yield from _check_count(verb, change)
            if verb in (FAIL, REAP):
                yield from _check_death(verb, change)
    unstarted = list(_unstarted(evidence))
    excused = _excused(evidence, unstarted)
    for each in unstarted:
        if each.change.seq not in excused:
            yield from _check_start(evidence, each.change)


def count_excused(evidence: Evidence) -> int:
    """Count the attempts without a start whose workers had a fault right after the confirmation."""
    return len(_excused(evidence, list(_unstarted(evidence))))


def _check_count(verb: str, change: JobChange) -> Iterator[Violation]:
    old, new = change.old, change.new
    if new is None:
        return
    if not 0 <= new.attempts <= new.max_attempts:
        what = f"The job is at attempt {new.attempts} of {new.max_attempts}."
        yield _violation(WITHIN_LIMIT, what, change)
    before = 0 if old is None else old.attempts
    if verb != ILLEGAL and new.attempts != before + _added(verb, change):
        what = f"A {verb} took the count from {before} to {new.attempts}."
        yield _violation(COUNTED, what, change)
    if old is not None and old.max_attempts != new.max_attempts:
        if verb != REDRIVE or new.max_attempts < old.max_attempts:
            what = f"A {verb} took max_attempts from {old.max_attempts} to {new.max_attempts}."
            yield _violation(LIMIT_STAYS, what, change)
    elif verb == REDRIVE and new.attempts >= new.max_attempts:
        what = f"A redrive left the job at {new.attempts} of {new.max_attempts}, with no attempt left."
        yield _violation(WITHIN_LIMIT, what, change)


def _added(verb: str, change: JobChange) -> int:
    if verb in CLAIMS:
        return 1
    is_undelivered_reap = verb == REAP and change.old is not None and not change.old.delivered
    return -1 if verb in (RELEASE, SNOOZE) or is_undelivered_reap else 0


def _check_death(verb: str, change: JobChange) -> Iterator[Violation]:
    old, new = change.old, change.new
    assert old is not None
    assert new is not None
    is_out = old.attempts >= old.max_attempts and (verb == FAIL or old.delivered)
    is_out = is_out or (verb == REAP and old.delivered and old.crashes + 1 >= MAX_CRASHES)
    if (new.status == "DEAD_LETTERED") != (is_out or change.outcome == "discarded"):
        attempt = f"attempt {old.attempts} of {old.max_attempts}"
        what = f"A {verb} ({change.outcome}) of {attempt} left the job {new.status}."
        yield _violation(DIES_AT_THE_LIMIT, what, change)


class _Unstarted(NamedTuple):
    """A reap that took an attempt from a job whose handler had not started in it."""

    change: JobChange
    confirmed_at: int | None


def _unstarted(evidence: Evidence) -> Iterator[_Unstarted]:
    for job_id, life in evidence.lives.items():
        confirmed_at = None
        for verb, change in life:
            old, new = change.old, change.new
            if verb in CLAIMS:
                confirmed_at = None
            elif verb == BEAT and old and new and new.delivered and not old.delivered:
                confirmed_at = change.at
            elif (
                verb == REAP
                and old
                and new
                and new.attempts >= old.attempts
                and not any(run.is_of(old) for run in evidence.executions.get(job_id, ()))
            ):
                yield _Unstarted(change, confirmed_at)


def _excused(evidence: Evidence, unstarted: list[_Unstarted]) -> set[int]:
    """The seqs of those whose worker had a fault right after their confirmation.

    For each fault no more than the worker starts at once, in the order of the confirmations.
    """
    excused: set[int] = set()
    strokes: Counter[Span] = Counter()
    for change, confirmed_at in sorted(unstarted, key=lambda each: each.confirmed_at or 0):
        assert change.old is not None
        if confirmed_at is None or change.old.locked_by is None:
            continue
        worker, moment = change.old.locked_by, evidence.clock.about(confirmed_at)
        most = evidence.disturbances.concurrency(worker, moment)
        held_up = evidence.disturbances.of_database(moment, evidence.clock.about(change.at))
        until = max([moment, *(span.end for span in held_up)]) + _MOMENT_NS
        for span in evidence.disturbances.of_worker(worker, moment, until):
            if strokes[span] < most:
                strokes[span] += 1
                excused.add(change.seq)
                break
    return excused


def _check_start(evidence: Evidence, change: JobChange) -> Iterator[Violation]:
    assert change.old is not None
    assert change.new is not None
    what = f"Attempt {change.old.attempts} counted, but {change.old.locked_by} had not started it."
    is_dead = change.new.status == "DEAD_LETTERED" and not evidence.executions.get(change.job_id)
    yield _violation(DIES_STARTED if is_dead else COUNTS_IF_STARTED, what, change)


def _violation(rule: str, what: str, change: JobChange) -> Violation:
    return Violation("I3", rule, what, change.job_id, at=change.at, seq=change.seq)
