"""I1, the second half: every job ends in its expected state, and its row stays."""

from __future__ import annotations

from collections.abc import Iterator

from faults.changes import CANCEL, DELETE, EXPIRE, REDRIVE, JobChange
from faults.evidence import Evidence, Step
from faults.history import EXPECTATIONS
from faults.rules.crashes import MAX_CRASHES
from faults.violations import Violation

JOBS_END = "a job ends in a terminal state"
ENDS_AS_EXPECTED = "a job ends as its handler decides"
ROWS_STAY = "a row stays unless a client deletes it"
TABLE_IS_AUDITED = "a row is as its last change left it"
DONE_IS_DONE = "an acknowledged request was carried out"

_TERMINAL = frozenset({"COMPLETED", "DEAD_LETTERED", "CANCELED"})
_VERBS = {"cancel": {CANCEL, EXPIRE}, "redrive": {REDRIVE}, "delete": {DELETE}}


def check_ends(evidence: Evidence) -> Iterator[Violation]:
    statuses = evidence.audit.statuses
    for job_id, life in evidence.lives.items():
        last = life[-1].change
        yield from _check_deletes(evidence, life)
        status = statuses.get(job_id)
        if status is None:
            if last.new is not None:
                what = f"Job {job_id} is gone. It was {last.new.status}, and no delete is recorded."
                yield _violation(ROWS_STAY, what, last)
        elif last.new is None or last.new.status != status:
            what = f"Job {job_id} is {status}, but its last change left it {last.new and last.new.status}."
            yield _violation(TABLE_IS_AUDITED, what, last)
        elif status not in _TERMINAL:
            yield _violation(JOBS_END, f"Job {job_id} is still {status}.", last)
        else:
            yield from _check_expectation(evidence, job_id, life)
    for job_id in sorted(statuses.keys() - evidence.lives.keys()):
        what = f"Job {job_id} exists, and no insert is recorded."
        yield Violation("I1", TABLE_IS_AUDITED, what, job_id)
    yield from _check_requests(evidence)


def _check_deletes(evidence: Evidence, life: list[Step]) -> Iterator[Violation]:
    for verb, change in life:
        if verb == DELETE and not evidence.is_asked_for("delete", change):
            yield _violation(ROWS_STAY, f"Job {change.job_id} was deleted without a request.", change)


def _check_expectation(evidence: Evidence, job_id: str, life: list[Step]) -> Iterator[Violation]:
    """Out of attempts every job is dead-lettered. A canceled job is judged by another rule."""
    last = next(step.change for step in reversed(life) if step.change.new and _ends(step.change))
    assert last.new is not None
    for expect in {submit.facts["expect"] for submit in evidence.submits_of[job_id]}:
        wanted = EXPECTATIONS[expect]
        is_out = last.new.attempts >= last.new.max_attempts or last.new.crashes >= MAX_CRASHES
        if last.new.status == "CANCELED" or wanted in ("", last.new.status):
            continue
        if last.new.status == "DEAD_LETTERED" and is_out:
            continue
        what = f"Job {job_id} (expect {expect}) ended {last.new.status}, not {wanted}."
        yield _violation(ENDS_AS_EXPECTED, what, last)


def _ends(change: JobChange) -> bool:
    """Whether the change gave the job its final status."""
    return change.new is not None and (change.old is None or change.old.status != change.new.status)


def _check_requests(evidence: Evidence) -> Iterator[Violation]:
    for name, verbs in _VERBS.items():
        for request in evidence.requests[name]:
            job_id = request.facts["job_id"]
            if request.how == "done" and not any(s.verb in verbs for s in evidence.lives.get(job_id, ())):
                what = f"The {name} of job {job_id} was acknowledged, but never carried out."
                yield Violation("I1", DONE_IS_DONE, what, job_id)


def _violation(rule: str, what: str, change: JobChange) -> Violation:
    return Violation("I1", rule, what, change.job_id, at=change.at, seq=change.seq)
