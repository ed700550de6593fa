"""The failpoints of the ports, as the composition root places them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from pulse import failpoints
from pulse_server import port_failpoints
from pulse_server.domain.errors import Unavailable
from pulse_server.domain.jobs import NewJob
from pulse_server.domain.reports import FailureReport
from pulse_server.port_failpoints import with_failpoints
from pulse_server.repos.jobs import JobRepo


class Repo:
    """Two methods of the port."""

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> str:
        return "stored"

    async def fail_jobs(self, reports: Sequence[FailureReport]) -> str:
        return "failed"


POINTS = {method: port_failpoints.JOBS[method] for method in (JobRepo.insert_jobs, JobRepo.fail_jobs)}


def test_port_without_armed_points_is_untouched() -> None:
    repo = with_failpoints(Repo(), POINTS)

    assert not vars(repo)


async def test_armed_point_is_placed_around_its_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_armed", failpoints.read("jobs.inserting=error@2"))
    repo = with_failpoints(Repo(), POINTS)

    assert vars(repo).keys() == {"insert_jobs"}
    assert await repo.insert_jobs([]) == "stored"
    with pytest.raises(Unavailable, match=re.escape("jobs.inserting")):
        await repo.insert_jobs([])
    assert await repo.insert_jobs([]) == "stored"
