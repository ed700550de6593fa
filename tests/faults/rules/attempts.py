"""I3: attempts are counted as they were made, stay within their limit, and no job dies undelivered."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.changes import BEAT, CLAIMS, FAIL, ILLEGAL, REAP, REDRIVE, RELEASE, JobChange
from tests.faults.evidence import Evidence
from tests.faults.violations import Violation

WITHIN_LIMIT = "attempts stay within max_attempts"
COUNTED = "an attempt is counted when it is claimed, and given back when it never was made"
LIMIT_STAYS = "max_attempts is raised by a redrive alone"
DIES_AT_THE_LIMIT = "a job is dead-lettered when it is discarded or out of attempts, and then always"
DIES_DELIVERED = "a job is dead-lettered only after its last attempt was delivered"


def check_attempts(evidence: Evidence) -> Iterator[Violation]:
    for job_id, life in evidence.lives.items():
        was_beaten = False
        for verb, change in life:
            if verb in CLAIMS:
                was_beaten = False
            elif verb == BEAT:
                was_beaten = True
            yield from _check_count(verb, change)
            if verb in (FAIL, REAP):
                yield from _check_death(verb, change)
            if verb == REAP and change.new and change.new.status == "DEAD_LETTERED":
                yield from _check_delivery(evidence, job_id, change, was_beaten)


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
        what = f"A redrive left the job at {new.attempts} of {new.max_attempts}, with no attempt to make."
        yield _violation(WITHIN_LIMIT, what, change)


def _added(verb: str, change: JobChange) -> int:
    if verb in CLAIMS:
        return 1
    is_undelivered_reap = verb == REAP and change.old is not None and not change.old.delivered
    return -1 if verb == RELEASE or is_undelivered_reap else 0


def _check_death(verb: str, change: JobChange) -> Iterator[Violation]:
    old, new = change.old, change.new
    assert old is not None
    assert new is not None
    is_out = old.attempts >= old.max_attempts and (verb == FAIL or old.delivered)
    if (new.status == "DEAD_LETTERED") != (is_out or change.outcome == "discarded"):
        attempt = f"attempt {old.attempts} of {old.max_attempts}"
        what = f"A {verb} ({change.outcome}) of {attempt} left the job {new.status}."
        yield _violation(DIES_AT_THE_LIMIT, what, change)


def _check_delivery(
    evidence: Evidence, job_id: str, change: JobChange, was_beaten: bool
) -> Iterator[Violation]:
    """The mark in the row alone does not count: the worker has to have beaten the job, or started it."""
    old = change.old
    assert old is not None
    started = any(
        (execution.worker, execution.attempt) == (old.locked_by, old.attempts)
        for execution in evidence.executions.get(job_id, ())
    )
    if not old.delivered or not (was_beaten or started):
        what = f"The job died of attempt {old.attempts}, which {old.locked_by} neither beat nor started."
        yield _violation(DIES_DELIVERED, what, change)


def _violation(rule: str, what: str, change: JobChange) -> Violation:
    return Violation("I3", rule, what, change.job_id, at=change.at, seq=change.seq)
