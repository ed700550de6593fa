"""The states of a job and the arrows between them."""

from __future__ import annotations

from pulse_server.jobs.rules import LEGAL_TRANSITIONS, TERMINAL, WAITING, JobStatus
from tests.rows import each_row

# Written out a second time on purpose: a change of the machine has to be meant.
ARROWS = """
PENDING -> RUNNING
PENDING -> CANCELED
RETRYING -> RUNNING
RETRYING -> CANCELED
RUNNING -> COMPLETED
RUNNING -> RETRYING
RUNNING -> DEAD_LETTERED
RUNNING -> CANCELED
DEAD_LETTERED -> PENDING
CANCELED -> PENDING
PENDING -> DEAD_LETTERED
CANCELED -> RETRYING
"""


@each_row("source", list(JobStatus))
@each_row("target", list(JobStatus))
def test_arrow_is_legal_exactly_if_it_is_drawn(source: JobStatus, target: JobStatus) -> None:
    assert (target in LEGAL_TRANSITIONS[source]) == (f"\n{source} -> {target}\n" in ARROWS)


def test_statuses_are_the_six_of_the_wire_contract() -> None:
    assert [status.value for status in JobStatus] == [
        "PENDING",
        "RUNNING",
        "RETRYING",
        "COMPLETED",
        "DEAD_LETTERED",
        "CANCELED",
    ]


def test_each_status_waits_runs_or_is_terminal() -> None:
    assert WAITING | TERMINAL | {JobStatus.RUNNING} == set(JobStatus)
    assert not WAITING & TERMINAL


def test_completed_is_final() -> None:
    assert LEGAL_TRANSITIONS[JobStatus.COMPLETED] == frozenset()


def test_every_status_can_be_reached() -> None:
    reached, seen = {JobStatus.PENDING}, set[JobStatus]()
    while reached - seen:
        seen |= reached
        reached = {target for source in seen for target in LEGAL_TRANSITIONS[source]}
    assert seen == set(JobStatus)
