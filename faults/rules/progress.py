"""I20: progress is written by the holder of the job alone, never goes back, and reaches the next run.

The cursor of the handlers of a run names its writer: the worker, the run, and a number that grows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from faults.changes import CLAIMS, JobChange
from faults.evidence import Evidence
from faults.violations import Violation

OF_THE_HOLDER = "progress is written by the worker that holds the job"
GOES_ON = "progress does not go back within a run, and is not lost"
REACHES_THE_NEXT = "a run starts with the progress that was stored when it was claimed"


def check_progress(evidence: Evidence) -> Iterator[Violation]:
    for job_id, life in evidence.lives.items():
        at_claim: dict[tuple[str | None, int], str | None] = {}
        number = 0  # of the last progress of this claim
        for verb, change in life:
            if verb in CLAIMS and change.new is not None:
                at_claim[change.new.locked_by, change.new.run] = change.new.progress
                number = 0
            if (problem := _problem(change, number)) is not None:
                rule, what = problem
                yield Violation("I20", rule, what, job_id, at=change.at, seq=change.seq)
            elif _is_written(change):
                number = json.loads(str(change.new and change.new.progress))[2]
        for run in evidence.executions.get(job_id, ()):
            stored = at_claim.get((run.worker, run.run), run.progress)
            if run.reads_progress and run.progress != stored:
                what = (
                    f"Run {run.run} started in {run.worker} with {run.progress}, and the row had {stored} "
                    "when it was claimed."
                )
                yield Violation("I20", REACHES_THE_NEXT, what, job_id)


def _problem(change: JobChange, before: int) -> tuple[str, str] | None:
    """Return the rule that the change breaks, and how. `before` is the number of the last progress."""
    old, new = change.old, change.new
    if old is None or new is None or old.progress == new.progress or new.status == "COMPLETED":
        return None
    if new.progress is None:
        return GOES_ON, f"The progress {old.progress} was lost."
    worker, run, number = json.loads(new.progress)
    if (worker, run) != (old.locked_by, old.run):
        return OF_THE_HOLDER, (
            f"{worker} wrote the progress of run {run}, and {old.locked_by} held the job at run {old.run}."
        )
    if number <= before:
        return GOES_ON, f"The progress went from {before} to {number} within run {run}."
    return None


def _is_written(change: JobChange) -> bool:
    old, new = change.old, change.new
    return old is not None and new is not None and new.progress not in (None, old.progress)
