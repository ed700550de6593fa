"""The failpoints around the methods of stores and services, as the composition root places them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pulse import failpoints
from pulse_server.app import App
from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Database
from pulse_server.failpoints import TABLE, with_failpoints
from pulse_server.jobs.store import PostgresJobRepo
from tests.fakes.store import a_job
from tests.transport.pulse_server_under_test import settings_of_test

NOWHERE = "postgres://pulse@127.0.0.1:1/nothing"


def test_object_without_armed_points_is_untouched() -> None:
    repo = PostgresJobRepo(Database(NOWHERE))
    before = dict(vars(repo))

    assert vars(with_failpoints(repo)) == before


async def test_armed_point_is_placed_around_its_methods(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failpoints, "_armed", failpoints.read("jobs.inserting=error@2"))
    database = Database(database_dsn)
    repo = PostgresJobRepo(database)
    before = set(vars(repo))

    assert vars(with_failpoints(repo)).keys() - before == {"insert_jobs", "insert_rich_jobs"}
    jobs = [a_job() for _ in range(3)]
    assert len(await repo.insert_jobs(jobs[:1])) == 1
    with pytest.raises(Unavailable, match=re.escape("jobs.inserting")):
        await repo.insert_jobs(jobs[1:2])
    assert len(await repo.insert_jobs(jobs[2:])) == 1
    assert [await repo.get_job(job.id) is not None for job in jobs] == [True, False, True]
    await database.close()


async def test_server_places_every_point_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[Any] = []

    def place(owner: Any) -> Any:
        placed.append(type(owner))
        return owner

    monkeypatch.setattr("pulse_server.app.with_failpoints", place)
    App(settings_of_test(), NOWHERE)

    methods = [method for points in TABLE for method in points.methods]
    owners = [
        [owner for owner in placed if getattr(owner, method.__name__, None) is method] for method in methods
    ]
    assert [len(found) for found in owners] == [1] * len(methods)
    assert {owner for found in owners for owner in found} == set(placed)
