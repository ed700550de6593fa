"""I11: a snooze or a suspension costs no attempt, and no run number is used again."""

from __future__ import annotations

from collections.abc import Iterator

from faults.changes import CLAIMS, SNOOZE, JobChange
from faults.evidence import Evidence
from faults.violations import Violation

COSTS_NOTHING = "a snooze or a suspension leaves as many attempts as there were before the claim"
RUN_GROWS = "a claim has a higher run number than every claim of the job before"
RUN_STAYS = "only a claim changes the run number"


def check_snoozes(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values():
        last = 0  # the highest run number of the row
        for verb, change in life:
            old, new = change.old, change.new
            if new is None:
                last = 0
                continue
            if verb == SNOOZE:
                yield from _check_snooze(change)
            if verb in CLAIMS:
                if new.run <= last:
                    what = f"Run {new.run} was claimed after run {last}."
                    yield _violation(RUN_GROWS, what, change)
            elif new.run != (before := 0 if old is None else old.run):
                yield _violation(RUN_STAYS, f"A {verb} took the run from {before} to {new.run}.", change)
            last = max(last, new.run)


def _check_snooze(change: JobChange) -> Iterator[Violation]:
    old, new = change.old, change.new
    assert old is not None
    assert new is not None
    snoozes = old.snoozes + (change.outcome == "snoozed")
    # The attempt was counted when it was claimed.
    if (new.attempts, new.max_attempts, new.snoozes) != (old.attempts - 1, old.max_attempts, snoozes):
        what = (
            f"A job that was {change.outcome} went from attempt {old.attempts} of {old.max_attempts} to "
            f"{new.attempts} of {new.max_attempts}, snoozes {old.snoozes} to {new.snoozes}."
        )
        yield _violation(COSTS_NOTHING, what, change)


def _violation(rule: str, what: str, change: JobChange) -> Violation:
    return Violation("I11", rule, what, change.job_id, at=change.at, seq=change.seq)
