"""I7: only legal and requested transitions happen, and RUNNING implies a holder and a lease."""

from __future__ import annotations

from collections.abc import Iterator

from faults.changes import (
    CANCEL,
    CLAIM,
    DELETE,
    HAND_OVER,
    ILLEGAL,
    INSERT,
    REDRIVE,
    JobChange,
    JobState,
)
from faults.evidence import Evidence, Step
from faults.rules.workflows import is_of_its_workflow
from faults.violations import Violation

LEGAL_ARROW = "a job changes along a legal arrow"
UNBROKEN = "each change begins where the one before it ended"
RUNNING_HAS_LEASE = "RUNNING jobs, and no others, have a holder and a lease"
READY_WAITS = "ready means waiting"
CLAIMED_WAS_READY = "what is claimed was ready"
FINISHED_IS_DELETED = "what is deleted was finished"
ASKED_FOR = "a job is canceled and redriven only on request, or as its workflow demands"

_TERMINAL = frozenset({"COMPLETED", "DEAD_LETTERED", "CANCELED"})


def check_transitions(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values():
        state: JobState | None = None
        for step in life:
            verb, change = step
            if change.old != state:
                what = f"It was {_state(state)}, and the next change found it {_state(change.old)}."
                yield _violation(UNBROKEN, what, change)
            state = change.new
            yield from _check_step(step)
            if state is not None:
                yield from _check_state(state, change)
            is_asked = verb not in (CANCEL, REDRIVE) or evidence.is_asked_for(verb, change)
            if not is_asked and not is_of_its_workflow(evidence, step):
                yield _violation(ASKED_FOR, f"A {verb} happened without a request.", change)


def _check_step(step: Step) -> Iterator[Violation]:
    verb, change = step
    old = change.old
    if verb == ILLEGAL:
        what = f"It went from {_state(old)} to {_state(change.new)}."
        yield _violation(LEGAL_ARROW, what, change)
    elif verb == CLAIM and old is not None and not old.ready:
        yield _violation(CLAIMED_WAS_READY, f"It was claimed while {_state(old)}.", change)
    elif verb == DELETE and old is not None and old.status not in _TERMINAL:
        yield _violation(FINISHED_IS_DELETED, f"It was deleted while {_state(old)}.", change)
    elif verb in (INSERT, HAND_OVER) and old is not None:
        yield _violation(UNBROKEN, f"It was inserted while {_state(old)}.", change)


def _check_state(state: JobState, change: JobChange) -> Iterator[Violation]:
    is_running = state.status == "RUNNING"
    if is_running != (state.locked_by is not None) or is_running != (state.lease_until is not None):
        yield _violation(RUNNING_HAS_LEASE, f"It became {_state(state)}, lease {state.lease_until}.", change)
    if state.ready and state.status not in ("PENDING", "RETRYING"):
        yield _violation(READY_WAITS, f"It became {_state(state)}.", change)


def _state(state: JobState | None) -> str:
    if state is None:
        return "not there"
    holder = f", held by {state.locked_by}" if state.locked_by else ""
    ready = ", ready" if state.ready else ""
    return (
        f"{state.status}{ready} at attempt {state.attempts} of {state.max_attempts}, run {state.run}{holder}"
    )


def _violation(rule: str, what: str, change: JobChange) -> Violation:
    return Violation("I7", rule, what, change.job_id, at=change.at, seq=change.seq)
