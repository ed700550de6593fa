"""Confirmations of claims: how long they are good for depends on how fast the server answers."""

from __future__ import annotations

from typing import Any

import pytest

from pulse import tuning
from pulse.handlers.registry import Registry
from pulse.v1 import pulse_pb2 as pb
from pulse.worker import leases as confirmer_module
from pulse.worker.held_jobs import ClaimedJob, LeaseTerms, Shared, Window
from pulse.worker.leases import Confirmer

LEASE_SECONDS = 30.0


class SlowServer:
    """Answers each heartbeat after some seconds of a clock that only it moves."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 1000.0
        self.within: list[float] = []
        self.stub = self
        self.Heartbeats = "Heartbeats"

    async def try_once(
        self, _method: str, request: pb.HeartbeatsRequest, _timeout: float
    ) -> pb.HeartbeatsResponse:
        self.within.append(request.start_within.ToTimedelta().total_seconds())
        self.now += self.seconds
        is_late = self.seconds > self.within[-1]
        return pb.HeartbeatsResponse(unknown=request.claims if is_late else [])


async def confirmed(server: SlowServer, monkeypatch: pytest.MonkeyPatch, times: int) -> ClaimedJob:
    """A job that was confirmed so often."""
    monkeypatch.setattr(confirmer_module, "lease_clock", lambda: server.now)
    registry = Registry()
    registry.register("work", lambda: None, {})
    handler = registry.get("work")
    assert handler is not None
    job = ClaimedJob("j1", pb.JobAssignment(job_id="j1", topic="work", attempt=2), handler, 0.0, 0.0, 0.0)
    connection: Any = server
    shared = Shared(connection, "w1", Window(1), LeaseTerms(LEASE_SECONDS))
    shared.held.unstarted.add(job)
    confirmer = Confirmer(
        shared,
        stop=lambda jobs, reason: None,
        recall=lambda topics: None,
        answered=lambda jobs: None,
        later=lambda jobs: None,
    )
    for _ in range(times):
        job.confirm = True
        await confirmer._confirm([job])
    return job


@pytest.mark.parametrize("seconds", [0.6, 1.2, 3.0, 6.0])
async def test_job_starts_once_it_is_known_how_slow_the_database_is(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SlowServer(seconds)
    job = await confirmed(server, monkeypatch, times=2)
    assert not job.confirm
    assert job.start_by > server.now


async def test_confirmation_of_a_fast_database_is_good_for_half_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = SlowServer(0.005)
    await confirmed(server, monkeypatch, times=3)
    assert max(server.within) == pytest.approx(tuning.CONFIRMED_START_SECONDS, abs=0.05)


async def test_no_confirmation_is_good_for_longer_than_a_quarter_of_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then a job that was canceled meanwhile is not given to another worker."""
    server = SlowServer(20.0)
    job = await confirmed(server, monkeypatch, times=3)
    assert max(server.within) == LEASE_SECONDS / 4
    assert job.confirm


async def test_job_is_not_released_while_its_confirmation_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = SlowServer(3.0)
    job = await confirmed(server, monkeypatch, times=2)
    assert job.release_by >= server.now
