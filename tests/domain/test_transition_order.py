"""Transitions that several servers published, put in the order of each job's life."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pulse_server.jobs.rules import LEGAL_TRANSITIONS, JobStatus
from pulse_server.wakeups.watchers import Transition, in_order

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
Step = tuple[JobStatus, int]


def transitions_of(*steps: Step, job_id: str = "a") -> list[Transition]:
    return [Transition(job_id, "mail", status, attempt, None, "", NOON) for status, attempt in steps]


@st.composite
def lives(draw: st.DrawFn) -> list[Step]:
    """What may happen to a job that is neither canceled nor retried by an operator."""
    life: list[Step] = [(JobStatus.PENDING, 0)]
    for attempt in range(1, draw(st.integers(1, 4)) + 1):
        life.append((JobStatus.RUNNING, attempt))
        life.append((JobStatus.RETRYING, attempt))
    life[-1] = (
        draw(st.sampled_from([JobStatus.COMPLETED, JobStatus.DEAD_LETTERED, JobStatus.CANCELED])),
        life[-1][1],
    )
    return life


@given(st.data(), lives())
def test_any_shuffle_of_a_life_is_put_in_order(data: st.DataObject, life: list[Step]) -> None:
    shuffled = data.draw(st.permutations(transitions_of(*life)))

    assert in_order(shuffled) == transitions_of(*life)


def test_order_of_arrival_stays_where_it_is_possible() -> None:
    released = transitions_of((JobStatus.RUNNING, 1), (JobStatus.RETRYING, 1), (JobStatus.RUNNING, 1))
    redriven = transitions_of((JobStatus.CANCELED, 0), (JobStatus.PENDING, 0), (JobStatus.CANCELED, 0))

    assert in_order(released) == released
    assert in_order(redriven) == redriven


def test_redrive_comes_after_the_attempt_that_it_follows() -> None:
    life = transitions_of((JobStatus.RUNNING, 2), (JobStatus.DEAD_LETTERED, 2), (JobStatus.PENDING, 2))

    assert in_order([life[2], life[0], life[1]]) == life


@given(st.permutations(range(6)))
def test_jobs_keep_their_places_among_each_other(order: list[int]) -> None:
    life = [(JobStatus.PENDING, 0), (JobStatus.RUNNING, 1), (JobStatus.COMPLETED, 1)]
    mixed = [*transitions_of(*life, job_id="a"), *transitions_of(*life, job_id="b")]
    arrived = [mixed[place] for place in order]

    ordered = in_order(arrived)

    assert [change.job_id for change in ordered] == [change.job_id for change in arrived]
    for job_id in "ab":
        own = [change.status for change in ordered if change.job_id == job_id]
        assert all(later in LEGAL_TRANSITIONS[earlier] for earlier, later in pairwise(own))


def test_cancel_of_a_job_whose_attempt_was_given_back_comes_last() -> None:
    life = transitions_of(
        (JobStatus.PENDING, 0), (JobStatus.RUNNING, 1), (JobStatus.RETRYING, 1), (JobStatus.CANCELED, 0)
    )
    assert in_order(life) == life
