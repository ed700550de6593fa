"""A release that the server has not answered: the job neither starts nor stays behind."""

from __future__ import annotations

import asyncio

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed


async def test_job_that_is_claimed_again_while_its_release_is_unanswered_runs(
    fake: FakePulsed, running: Running
) -> None:
    """The release was stored, and its answer lost. A repeat of it names the first claim."""
    begun: list[str] = []
    go = asyncio.Event()
    async with pulse.Pulse(fake.address, concurrency=1) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            begun.append(f"{ctx.job_id} {ctx.run}")
            await go.wait()

        async with running(p):
            fake.deliver("begun", "waits")
            await eventually(lambda: begun == ["begun 1"])
            fake.says_its_database_is_away = True
            fake.send(pb.StreamJobsResponse(recall=pb.Recall()))
            await fake.until_async(lambda: fake.releases_refused)
            fake.deliver("waits", run=2)
            fake.deliver("next")
            go.set()
            await eventually(lambda: "next 1" in begun)
            fake.says_its_database_is_away = False
            await fake.until_async(lambda: "waits" in fake.results)
    assert begun == ["begun 1", "waits 2", "next 1"]


async def test_worker_that_stops_releases_what_it_could_not_release_before(
    fake: FakePulsed, running: Running
) -> None:
    started, go = asyncio.Event(), asyncio.Event()
    async with pulse.Pulse(fake.address, concurrency=1) as p:

        @p.job("work")
        async def handle() -> None:
            started.set()
            await go.wait()

        async with running(p):
            fake.deliver("begun", "waits")
            await started.wait()
            fake.says_its_database_is_away = True
            fake.send(pb.StreamJobsResponse(recall=pb.Recall()))
            await fake.until_async(lambda: fake.releases_refused)
            fake.says_its_database_is_away = False
            go.set()
    assert "waits" in fake.released


async def test_worker_that_stops_releases_a_job_whose_row_was_locked_at_first(
    fake: FakePulsed, running: Running
) -> None:
    started = asyncio.Event()
    fake.locked_releases["waits"] = 3
    async with pulse.Pulse(fake.address, concurrency=1) as p:

        @p.job("work")
        async def handle() -> None:
            started.set()
            await fake.until_async(lambda: fake.locked_releases["waits"] < 3)

        async with running(p):
            fake.deliver("begun", "waits")
            await started.wait()
    assert fake.released == ["waits"]
