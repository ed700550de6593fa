"""The conditions of workflows, as the documentation states them: how a job stands, given its parents.

Written without a look at the settler, which keeps counts. The rules of chaos and the checker of the
statements compare both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from faults.workflows.shapes import ALWAYS, SUCCEEDED

# How a job of a workflow stands.
WAITING, READY, DROPPED, SKIPPED = "waiting", "ready", "dropped", "skipped"
# How it ended, as its children count it. SKIPPED is an outcome, too.
DONE, DEAD, CANCELED = "succeeded", "failed", "canceled"
# Parents that did not succeed.
BAD = frozenset({DEAD, CANCELED})
_OF_STATUS = {"COMPLETED": DONE, "DEAD_LETTERED": DEAD, "CANCELED": CANCELED}


class Counts(NamedTuple):
    """What a job knows of its parents."""

    unended: int
    failed: int
    skipped: int


def count(outcomes: Iterable[str | None]) -> Counts:
    """The counts of a job whose parents ended like this. None: that parent has not ended."""
    seen = list(outcomes)
    return Counts(
        sum(outcome is None for outcome in seen),
        sum(outcome in BAD for outcome in seen),
        seen.count(SKIPPED),
    )


def verdict(condition: str, outcomes: Collection[str | None]) -> str:
    """How a job stands that no operator has touched. One that became ready stays ready."""
    if condition == SUCCEEDED:
        if not BAD.isdisjoint(outcomes):
            return DROPPED
        if SKIPPED in outcomes:
            return SKIPPED
        return WAITING if None in outcomes else READY
    if None in outcomes:
        return WAITING
    return READY if condition == ALWAYS or not outcomes or not BAD.isdisjoint(outcomes) else SKIPPED


def outcome_of(status: str, state: str) -> str | None:
    """The outcome of a job with this status."""
    return SKIPPED if status == "CANCELED" and state == SKIPPED else _OF_STATUS.get(status)
