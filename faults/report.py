"""The report of a run, as text and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from statistics import median
from typing import Any

from faults.cast import APPLICATIONS, REPLICAS, SERVERS, WORKERS
from faults.chaos import Result
from faults.invariants import INVARIANTS
from faults.kinds import KINDS
from faults.lateness import lateness
from faults.recoveries import Recovery, orphan_seconds


def as_text(result: Result, directory: str) -> str:
    """The report. On a failure: what is wrong, with its stories, and how to reproduce it."""
    parts = (_head(result), _faults(result), _late(result), _verdict(result), _wrongs(result, directory))
    return "\n".join(line for part in parts for line in part)


def as_json(result: Result) -> dict[str, Any]:
    verdict = result.verdict
    return {
        "seed": result.run.seed,
        "seconds": result.run.seconds,
        "is_good": result.is_good,
        "counts": verdict.counts,
        "faults": [
            {
                "kind": recovery.kind,
                "target": recovery.target,
                "count": recovery.count,
                "median_seconds": recovery.median,
                "longest_seconds": recovery.longest,
            }
            for recovery in result.recoveries
        ],
        "orphans_seconds": _median_and_longest(orphan_seconds(verdict.evidence)),
        "late_seconds": {
            late.kind: {"jobs": late.count, "p99": late.p99, "longest": late.longest}
            for late in lateness(verdict.evidence)
        },
        "lost": len(verdict.lost),
        "doubled": len(verdict.doubled),
        "illegal": len(verdict.illegal),
        "invariants": {number: len(found) for number, found in verdict.by_invariant().items()},
        "failures": result.failures,
    }


def _head(result: Result) -> Iterator[str]:
    run, counts = result.run, result.verdict.counts
    yield ""
    yield (
        f"  seed {run.seed}, {run.seconds:g} s, {len(REPLICAS)} servers, {len(WORKERS)} workers, "
        f"{len(APPLICATIONS)} applications, up to {run.jobs_per_second:g} jobs/s"
    )
    yield ""
    answers = ", ".join(f"{counts[name]:,} {name}" for name in ("unknown", "refused"))
    yield f"  submits       {counts['acked']:>8,} acknowledged, {answers}"
    yield f"  jobs          {counts['jobs']:>8,} stored, of which schedules made {_scheduled(result):,}"
    lapsed = f"{counts['reaped']:,} leases expired"
    yield f"  executions    {counts['executions']:>8,} in {counts['claims']:,} claims; {lapsed}"
    if excused := counts["excused"]:
        struck = "their worker was hit right after the confirmation"
        yield f"                {excused:,} attempts counted without a start: {struck}"
    filled = f"{counts['filled']:,} of which took the last place"
    yield f"  results       {counts['awaited']:>8,} waiters got an answer"
    late = f"{counts['claims_lost']:,} refused to handlers that had lost their claim"
    added = f"{counts['additions']:,} additions acknowledged"
    jobs = f"{counts['in_workflows']:,} jobs, {counts['waited']:,} of which waited for others"
    yield f"  workflows     {counts['workflows']:>8,} of {jobs}; {added}"
    yield f"  transfers     {counts['transfers']:>8,} of {counts['wishes']:,} wishes; {late}"
    yield f"  limits        {counts['limits']:>8,} changes; {counts['limited']:,} starts under some, {filled}"
    yield f"  transitions   {counts['transitions']:>8,} audited, and {counts['beats']:,} heartbeats"


def _scheduled(result: Result) -> int:
    return sum(life[0].change.schedule_id is not None for life in result.verdict.evidence.lives.values())


def _faults(result: Result) -> Iterator[str]:
    total = sum(recovery.count for recovery in result.recoveries)
    yield ""
    yield f"  {total:,} faults, and how soon work resumed after each"
    yield ""
    yield f"    {'kind':<12} {'of':<24} {'times':>5}  {'median':>8}  {'longest':>8}"
    for recovery in result.recoveries:
        yield _line(recovery)
    if orphans := orphan_seconds(result.verdict.evidence):
        yield ""
        yield (
            f"  {len(orphans):,} handlers died with their worker; their jobs ran again after "
            f"{median(orphans):.2f} s (median), {max(orphans):.2f} s (longest)"
        )


def _line(recovery: Recovery) -> str:
    return (
        f"    {recovery.kind:<12} {recovery.target:<24} {recovery.count:>5}"
        f"  {_seconds(recovery.median):>8}  {_seconds(recovery.longest):>8}"
    )


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.2f} s"


def _late(result: Result) -> Iterator[str]:
    found = lateness(result.verdict.evidence)
    if not found:
        return
    yield ""
    yield "  from ready to started"
    yield ""
    yield f"    {'jobs':<12} {'number':>8}  {'p99':>8}  {'longest':>8}"
    for late in found:
        yield f"    {late.kind:<12} {late.count:>8,}  {_seconds(late.p99):>8}  {_seconds(late.longest):>8}"


def _verdict(result: Result) -> Iterator[str]:
    verdict = result.verdict
    found = verdict.by_invariant()
    yield ""
    for invariant in INVARIANTS:
        number = len(found[invariant.number])
        yield f"  {invariant.number:<3}  {'holds ' if not number else 'BROKEN'}  {invariant.promise}" + (
            f": {number:,} times" if number else ""
        )
    yield ""
    yield f"  lost {len(verdict.lost):,}, doubled {len(verdict.doubled):,}, illegal {len(verdict.illegal):,}"


def _wrongs(result: Result, directory: str) -> Iterator[str]:
    if result.is_good:
        return
    if result.failures:
        yield ""
        yield "  Failures besides the invariants:"
        yield from (f"    {failure}" for failure in result.failures)
    if not result.verdict.is_good:
        yield ""
        yield str(result.verdict)
    yield ""
    yield f"  The history and the logs are in {directory}"
    yield f"  To repeat these faults: {replay(result)}"


def replay(result: Result) -> str:
    run = result.run
    only = sorted({kind.name for kind in KINDS} - run.without) if run.without else []
    servers = f"{SERVERS}={len(REPLICAS)} " if SERVERS in os.environ else ""
    options = f"--seconds {run.seconds:g} --seed {run.seed} --rate {run.jobs_per_second:g}"
    command = f"{servers}python3 dev.py chaos {options}"
    control = ["--without-complete"] if run.is_control else []
    return " ".join([command, *control, *(f"--only '{kind}'" for kind in only)])


def _median_and_longest(seconds: list[float]) -> list[float] | None:
    return [median(seconds), max(seconds)] if seconds else None
