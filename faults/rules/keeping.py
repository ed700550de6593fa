"""I9 and I10: a healthy worker keeps a job that it heartbeats, and a job that it finished does not run again.

A worker is healthy unless its process, its connections, its server or the connections of that server to the
database had a fault. Faults of the database affect all servers alike, and excuse none of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from faults.changes import BEAT, CLAIMS, REAP, JobChange
from faults.disturbances import Span
from faults.evidence import Evidence, Execution
from faults.history import CANCELLED, COMPLETED
from faults.violations import Violation

HEALTHY_KEEPS = "a healthy worker keeps a job that it heartbeats"
FINISHED_STAYS = "a job that a healthy worker finished does not run again"


def check_healthy_keep(evidence: Evidence) -> Iterator[Violation]:
    """I9. The last sign of the worker is a heartbeat, or the start of its handler."""
    for life in evidence.lives.values():
        beats: list[int] = []
        for verb, change in life:
            if verb in CLAIMS:
                beats = []
            elif verb == BEAT:
                beats.append(change.at)
            elif verb == REAP:
                runs = _runs(evidence, change)
                signs = [*beats, *(evidence.clock.earliest(run.t) for run in runs)]
                last = max(signs, default=0)
                if last and not _struck(evidence, change, last) and not _stopped(evidence, runs, signs):
                    assert change.old is not None
                    what = f"{change.old.locked_by} lost the job {(change.at - last) / 1e6:.3f} s after its "
                    what += "last sign, without a fault of it, its connections or its server."
                    yield _violation("I9", HEALTHY_KEEPS, what, change)


def _struck(evidence: Evidence, reap: JobChange, sign: int) -> list[Span]:
    assert reap.old is not None
    begin, end = evidence.clock.about(sign), evidence.clock.about(reap.at)
    return evidence.disturbances.of_worker(reap.old.locked_by or "", begin, end)


def _stopped(evidence: Evidence, runs: list[Execution], signs: list[int]) -> list[Span]:
    """The faults because of which the worker stopped the handler: no heartbeat got through for a lease.

    A heartbeat that is stored after that was sent before it, and is no sign. Here the database is an excuse:
    a worker that waits longer than its lease may run the job beside another one.
    """
    faults: list[Span] = []
    for run in runs:
        if run.ended is not None and run.outcome == CANCELLED:
            sign = max((sign for sign in signs if sign <= evidence.clock.latest(run.ended)), default=0)
            begin = evidence.clock.about(sign)
            faults += evidence.disturbances.of_worker(run.worker, begin, run.ended)
            faults += evidence.disturbances.of_database(begin, run.ended)
    return faults


def check_finished_stay(evidence: Evidence) -> Iterator[Violation]:
    """I10. The claim was valid when the handler ended, and a reap took it from a worker without a fault that
    was connected as soon as there was a server. That all servers were away is no excuse."""
    for job_id, life in evidence.lives.items():
        for verb, change in life:
            if verb == REAP:
                done = [run for run in _runs(evidence, change) if _is_done(evidence, run, change)]
                again = _started_after(evidence, job_id, change)
                if done and again is not None and not _lost(evidence, done[0], change):
                    what = f"{done[0].worker} had finished the job, but {again.worker} started it again."
                    yield _violation("I10", FINISHED_STAYS, what, change)


def _is_done(evidence: Evidence, run: Execution, reap: JobChange) -> bool:
    if run.ended is None or run.outcome != COMPLETED or reap.old is None:
        return False
    was_valid = evidence.clock.latest(run.ended) <= (reap.old.lease_until or 0)
    return was_valid and evidence.clock.latest(run.ended) < reap.statement_at


def _started_after(evidence: Evidence, job_id: str, reap: JobChange) -> Execution | None:
    return next(
        (run for run in evidence.executions.get(job_id, ()) if evidence.clock.earliest(run.t) > reap.at), None
    )


def _lost(evidence: Evidence, run: Execution, reap: JobChange) -> list[Span]:
    """The faults that kept the worker from reporting, except an absence of all servers."""
    assert run.ended is not None
    struck, begin, end = evidence.disturbances, run.ended, evidence.clock.about(reap.at)
    excuses = [*struck.of_process(run.worker, begin, end), *struck.of_link(run.worker, begin, end)]
    if not any(away.touches(begin, end) for away in struck.away):
        excuses += struck.of_servers(run.worker, begin, end)
    return excuses


def _runs(evidence: Evidence, reap: JobChange) -> list[Execution]:
    """The executions of the claim that is reaped."""
    assert reap.old is not None
    return [
        run
        for run in evidence.executions.get(reap.job_id, ())
        if run.is_of(reap.old) and evidence.clock.earliest(run.t) <= reap.at
    ]


def _violation(invariant: str, rule: str, what: str, change: JobChange) -> Violation:
    return Violation(invariant, rule, what, change.job_id, at=change.at, seq=change.seq)
