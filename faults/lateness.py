"""How late jobs started: from when they could be claimed to the start of their handlers, by kind."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faults.spans import SECOND

if TYPE_CHECKING:
    from faults.evidence import Evidence
    from faults.waits import Wait

LIMITED = "limited"


@dataclass(frozen=True)
class Lateness:
    """Of all jobs of one kind that were started, in seconds."""

    kind: str
    count: int
    p99: float
    longest: float


def lateness(evidence: Evidence) -> list[Lateness]:
    """Jobs that were canceled before a start do not count, nor do starts that were not recorded."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for wait in evidence.waits:
        started_at = _started_at(evidence, wait)
        if started_at is not None:
            times[_kind(evidence, wait)].append(max(0, started_at - wait.begin) / SECOND)
    return [_of(kind, sorted(seconds)) for kind, seconds in sorted(times.items())]


def _of(kind: str, seconds: list[float]) -> Lateness:
    return Lateness(kind, len(seconds), seconds[(len(seconds) - 1) * 99 // 100], seconds[-1])


def _started_at(evidence: Evidence, wait: Wait) -> int | None:
    claim = wait.claim
    if claim is None or claim.new is None:
        return None
    runs = evidence.executions.get(wait.job_id, ())
    return next((evidence.clock.latest(run.t) for run in runs if run.is_of(claim.new)), None)


def _kind(evidence: Evidence, wait: Wait) -> str:
    spans = evidence.availability.not_plain(wait.topic)
    return LIMITED if spans.clear_since(wait.begin) > wait.begin else wait.kind
