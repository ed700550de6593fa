"""What progress costs: heartbeats with it, counted over a minute by a clock of their own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import pulse
from pulse import tuning
from pulse.v1 import pulse_pb2 as pb
from pulse.worker import leases
from pulse.worker.held_jobs import ClaimedJob, LeaseTerms, Shared, Window
from pulse.worker.reporter import in_batches


class Clock:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Stub:
    """The server, which takes every heartbeat or none."""

    def __init__(self) -> None:
        self.requests: list[pb.HeartbeatsRequest] = []

    def Heartbeats(self, request: pb.HeartbeatsRequest, **_: Any) -> pb.HeartbeatsResponse:  # noqa: N802
        self.requests.append(request)
        return pb.HeartbeatsResponse()


@pytest.fixture
async def minute(
    p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[ClaimedJob], object]], list[pb.HeartbeatsRequest]]:
    """Runs the looks of a minute over one job, by a clock of its own. Returns the heartbeats."""

    @p.job("work")
    async def handle() -> None: ...

    clock, stub, terms = Clock(), Stub(), LeaseTerms()
    monkeypatch.setattr(leases, "lease_clock", clock)
    handler = p._registry.get("work")
    assert handler is not None
    assignment = pb.JobAssignment(job_id="j1", topic="work", attempt=1)
    lease_end = clock.now + terms.lease_seconds
    job = ClaimedJob("j1", assignment, handler, lease_end, lease_end, lease_end)
    job.has_begun, job.begun_at = True, clock.now
    connection: Any = SimpleNamespace(
        endpoint=SimpleNamespace(metadata=(), each=()), servers=SimpleNamespace(in_use=None)
    )
    shared = Shared(connection, "w1", Window(1), terms)
    shared.held.jobs["j1"] = job
    nothing: Any = None
    beats = leases.Heartbeats(shared, nothing, nothing, stuck=lambda: None)
    monkeypatch.setattr(beats, "_stub", lambda _: stub)

    def run(report: Callable[[ClaimedJob], object]) -> list[pb.HeartbeatsRequest]:
        beat_at = clock.now + terms.heartbeat_seconds
        for _ in range(240):  # four looks a second
            clock.now += 0.25
            report(job)
            is_due = clock.now >= beat_at
            assert beats._extend_due(is_due)
            if is_due:
                beat_at += terms.heartbeat_seconds
        return stub.requests

    return run


async def test_any_rate_of_calls_costs_one_write_a_second_with_the_heartbeat(minute: Any) -> None:
    def report(job: ClaimedJob) -> None:
        for number in range(100):
            job.context.progress(number / 100)

    requests = minute(report)
    # One soon after the start, which counts the attempt, and one for each further second.
    assert len(requests) == 60
    assert all(len(request.progress) == 1 for request in requests)


async def test_silent_job_costs_the_usual_heartbeats(minute: Any) -> None:
    requests = minute(lambda _: None)
    assert len(requests) == 7  # the first, and one for each interval of ten seconds
    assert not any(request.progress for request in requests)


async def test_progress_that_is_not_new_is_not_sent_again(minute: Any) -> None:
    def report(job: ClaimedJob) -> None:
        if job.sent_progress is None:
            job.context.progress(0.5)

    requests = minute(report)
    assert [len(request.progress) for request in requests] == [1, 0, 0, 0, 0, 0, 0]


async def test_heartbeats_and_releases_have_a_bounded_amount_of_progress(
    minute: Any, p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = p._registry.get("work")
    assert handler is not None
    assignments = [pb.JobAssignment(job_id=str(number), topic="work", attempt=1) for number in range(10)]
    jobs = [ClaimedJob(one.job_id, one, handler, 0.0, 0.0, 0.0) for one in assignments]
    for job in jobs[:6]:
        job.context.progress(0.5, cursor="x" * 3000)
    monkeypatch.setattr(tuning, "PROGRESS_BATCH_BYTES", 10_000)

    assert [len(batch) for batch in in_batches(jobs, 5)] == [3, 5, 2]
    assert [len(batch) for batch in in_batches(jobs[6:], 2)] == [2, 2]
    assert list(in_batches([], 5)) == []
