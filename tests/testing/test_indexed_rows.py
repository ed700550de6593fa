"""The indexes of the rows in memory have what a scan of all rows finds."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pulse_server.domain.jobs import Job
from pulse_server.domain.status import WAITING, JobStatus
from pulse_server.memory.indexed_rows import JobRows

START = datetime(2030, 1, 1, tzinfo=UTC)


def some_job(choose: random.Random, number: int) -> Job:
    def moment() -> datetime:
        return START + timedelta(seconds=choose.randrange(5))

    status = choose.choice(list(JobStatus))
    return Job(
        id=f"j{number:02}",
        topic=choose.choice("ab"),
        status=status,
        priority=choose.randrange(3),
        attempts=choose.randrange(2),
        max_attempts=3,
        submitted_at=moment(),
        next_run_at=moment(),
        payload=b"",
        ready=status in WAITING and choose.random() < 0.5,
        idempotency_key=choose.choice([None, "k"]),
        metadata={},
        start_by=choose.choice([None, moment()]),
        finished_at=None if status in WAITING else moment(),
        unique_key=choose.choice([None, "u"]),
        unique_scope="live",
    )


def test_indexes_are_those_of_a_scan() -> None:
    choose = random.Random(7)
    rows = JobRows()
    for _ in range(2000):
        job = some_job(choose, choose.randrange(40))
        if job.id in rows and choose.random() < 0.3:
            del rows[job.id]
        else:
            rows[job.id] = job
        changed = choose.choice(list(rows.values())) if rows else None
        if changed is not None:
            rows[changed.id] = replace(changed, ready=changed.status in WAITING, priority=9)
        assert_scanned(rows)


def assert_scanned(rows: JobRows) -> None:
    jobs = list(rows.values())
    for topic in "ab":
        ready = [job for job in jobs if job.ready and job.topic == topic]
        ready.sort(key=lambda job: (-job.priority, job.submitted_at, job.id))
        assert [job_id for _, job_id in rows.ready[topic]] == [job.id for job in ready]
        keyed = {job.id for job in jobs if job.topic == topic and job.idempotency_key == "k"}
        assert {job_id for _, job_id in rows.keyed[topic, "k"]} == keyed
        unique = {job.id for job in jobs if job.topic == topic and job.unique_key and not job.finished_at}
        assert {job_id for _, job_id in rows.unique[topic, "u", "live"]} == unique
    waiting = [job for job in jobs if job.status in WAITING and not job.ready]
    assert {job_id for _, job_id in rows.waiting[True]} == {job.id for job in waiting}
    assert [due for due, _ in rows.waiting[True]] == sorted(job.next_run_at for job in waiting)
    unstarted = {job.id for job in jobs if job.status in WAITING and job.start_by and not job.attempts}
    assert {job_id for _, job_id in rows.unstarted[True]} == unstarted
