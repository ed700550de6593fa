"""Jobs in columns are a sequence of jobs."""

from __future__ import annotations

from uuid import UUID

import pytest

from pulse_server.jobs.new_jobs import AllInserted, NewJob, Submitted, UniformJobs, kinds, topics_of
from tests.rows import each_row

IDS = [f"0190f3a0-0000-7000-8000-{number:012x}" for number in range(4)]
JOBS = [NewJob(job_id, "mail", b"%d" % number, 3, 5) for number, job_id in enumerate(IDS)]
UNIFORM = UniformJobs(JOBS[0], b"".join(UUID(job_id).bytes for job_id in IDS), [job.payload for job in JOBS])


def test_uniform_jobs_are_the_jobs_one_by_one() -> None:
    assert list(UNIFORM) == JOBS
    assert len(UNIFORM) == 4
    assert [UNIFORM[place] for place in (0, 3, -1)] == [JOBS[0], JOBS[3], JOBS[3]]
    with pytest.raises(IndexError):
        UNIFORM[4]


@each_row("part", [slice(None), slice(1, 3), slice(2, None), slice(3, 1), slice(-2, 99)])
def test_slice_of_uniform_jobs_is_uniform(part: slice) -> None:
    sliced = UNIFORM[part]
    assert isinstance(sliced, UniformJobs)
    assert list(sliced) == JOBS[part]


def test_uniform_jobs_are_of_one_kind() -> None:
    assert [job.topic for job in kinds(UNIFORM)] == ["mail"]
    assert kinds(JOBS) is JOBS
    assert list(kinds(UNIFORM[:0])) == []
    assert topics_of(UNIFORM) == topics_of(JOBS) == ["mail"] * 4


@each_row("jobs", [JOBS, UNIFORM])
def test_all_inserted_is_an_answer_for_each_job(jobs: list[NewJob]) -> None:
    answers = AllInserted(jobs)
    assert answers == [Submitted(job_id, False) for job_id in IDS]
    assert answers != [Submitted(job_id, True) for job_id in IDS]
    assert (answers[1], list(answers[2:])) == (Submitted(IDS[1], False), list(answers)[2:])
