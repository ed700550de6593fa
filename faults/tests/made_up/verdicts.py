"""What the checker finds in a made-up run."""

from __future__ import annotations

from faults.checker import check
from faults.tests.made_up.runs import MadeUpRun


def broken(run: MadeUpRun) -> set[tuple[str, str]]:
    """Return the invariants that the run violates, each with the rule that found it."""
    return {(violation.invariant, violation.rule) for violation in check(run.evidence()).violations}
