"""I21 and I22: what steps and signals promise, from what handlers and senders wrote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from faults.evidence import Evidence
from faults.history import Event
from faults.violations import Violation

RUNS_ONCE = "no run that starts after a step was stored has it run again"
TAKEN_ONCE = "a signal is taken by one step"
STAYS_THE_SAME = "a step that took a signal has the same value in every run"
IS_DELIVERED = "a wait does not end without a signal that was acknowledged before"
IS_STORED = "a handler finds that a signal did not come only after that was stored"


def check_steps(evidence: Evidence) -> Iterator[Violation]:
    """I21. A run that began before may still run the step: its worker is cut off, and stores nothing."""
    stored: dict[tuple[str, str], Event] = {}
    for event in _events(evidence, "step_stored"):
        stored.setdefault((event.facts["job_id"], event.facts["step"]), event)
    starts = _starts(evidence)
    for event in _events(evidence, "step_ran"):
        facts = event.facts
        first = stored.get((facts["job_id"], facts["step"]))
        start = starts.get((facts["job_id"], facts["run"], facts["worker"]))
        if first is not None and start is not None and first.t < start:
            what = (
                f"Step {facts['step']} ran in run {facts['run']}, which started "
                f"{(start - first.t) / 1e9:.6f} s after run {first.facts['run']} had stored it."
            )
            yield Violation("I21", RUNS_ONCE, what, facts["job_id"])


def check_signals(evidence: Evidence) -> Iterator[Violation]:
    """I22."""
    values: defaultdict[tuple[str, str], set[str | None]] = defaultdict(set)
    for event in _events(evidence, "signal_taken"):
        values[event.facts["job_id"], event.facts["step"]].add(event.facts["value"])
    steps_of: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for (job_id, step), seen in values.items():
        if len(seen) > 1:
            yield Violation(
                "I22", STAYS_THE_SAME, f"Step {step} had the values {sorted(map(str, seen))}.", job_id
            )
        for value in seen - {None}:
            steps_of[job_id, str(value)].add(step)
    for (job_id, value), steps in steps_of.items():
        if len(steps) > 1:
            yield Violation("I22", TAKEN_ONCE, f"The signal {value} was taken by {sorted(steps)}.", job_id)
    yield from _not_delivered(evidence, set(steps_of))
    yield from _not_stored(evidence)


def _not_delivered(evidence: Evidence, taken: set[tuple[str, str]]) -> Iterator[Violation]:
    ends = {wait.job_id: wait for wait in reversed(evidence.audit.late_waits)}
    for request in evidence.requests["signal"]:
        job_id, value = request.facts["job_id"], request.facts["value"]
        wait = ends.get(job_id)
        if wait is None or request.how != "done" or request.ended is None or (job_id, value) in taken:
            continue
        before = wait.at - evidence.clock.latest(request.ended)
        if before > 0:
            what = (
                f"The signal {value} was acknowledged {before / 1e6:.6f} s before "
                f"attempt {wait.attempt} stored that it had not come in time."
            )
            yield Violation("I22", IS_DELIVERED, what, job_id, at=wait.at)


def _not_stored(evidence: Evidence) -> Iterator[Violation]:
    """A worker must not decide by its own clock: the next run might find the signal."""
    ends = {wait.job_id: wait.at for wait in reversed(evidence.audit.late_waits)}
    for event in _events(evidence, "signal_taken"):
        facts = event.facts
        if facts["value"] is None and evidence.clock.latest(event.t) < ends.get(
            facts["job_id"], float("inf")
        ):
            what = f"Run {facts['run']} found that the signal had not come before that was stored."
            yield Violation("I22", IS_STORED, what, facts["job_id"])


def _events(evidence: Evidence, what: str) -> list[Event]:
    return [event for event in evidence.events if event.what == what]


def _starts(evidence: Evidence) -> dict[tuple[str, int, str], int]:
    """When each run was started in each worker."""
    return {
        (job_id, execution.run, execution.worker): execution.t
        for job_id, executions in evidence.executions.items()
        for execution in executions
    }
