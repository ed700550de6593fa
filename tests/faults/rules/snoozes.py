"""I11: a snooze costs no attempt, and the number of a snoozed attempt is not used again."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.changes import CLAIMS, SNOOZE
from tests.faults.evidence import Evidence
from tests.faults.violations import Violation

COSTS_NOTHING = "a snooze leaves as many attempts as there were before"
NUMBER_IS_SPENT = "the number of a snoozed attempt is not used again"


def check_snoozes(evidence: Evidence) -> Iterator[Violation]:
    for job_id, life in evidence.lives.items():
        spent = 0
        for verb, change in life:
            old, new = change.old, change.new
            if verb == SNOOZE and old is not None and new is not None:
                spent = old.attempts
                # The attempt itself was counted when it was claimed.
                if (new.attempts, new.max_attempts, new.snoozes) != (
                    old.attempts,
                    old.max_attempts + 1,
                    old.snoozes + 1,
                ):
                    what = (
                        f"A snooze took the job from attempt {old.attempts} of {old.max_attempts} to "
                        f"{new.attempts} of {new.max_attempts}, snoozes {old.snoozes} to {new.snoozes}."
                    )
                    yield Violation("I11", COSTS_NOTHING, what, job_id, at=change.at, seq=change.seq)
            elif verb in CLAIMS and new is not None and new.attempts <= spent:
                what = f"Attempt {new.attempts} was claimed after attempt {spent} was snoozed."
                yield Violation("I11", NUMBER_IS_SPENT, what, job_id, at=change.at, seq=change.seq)
