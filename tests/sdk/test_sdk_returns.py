"""A worker gives back what it has not started, and keeps what it has finished."""

from __future__ import annotations

import asyncio
import threading

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed, wait_for


async def test_jobs_that_wait_behind_slow_handlers_are_released(fake: FakePulsed, running: Running) -> None:
    begun: list[str] = []
    go = asyncio.Event()
    async with pulse.Pulse(fake.address, concurrency=2) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            begun.append(ctx.job_id)
            await go.wait()

        async with running(p):
            fake.deliver("j1", "j2", "j3", "j4")
            await fake.until_async(lambda: len(fake.released) == 2)
            assert fake.capacities[-1] == 2  # no more than its slots, from now on
            go.set()
            await fake.until_async(lambda: len(fake.results) == 2)
    assert begun == ["j1", "j2"]
    assert sorted(fake.released) == ["j3", "j4"]


async def test_jobs_behind_a_blocked_event_loop_are_released_and_no_more_are_asked_for_until_it_answers(
    fake: FakePulsed, running: Running
) -> None:
    blocked, go = threading.Event(), threading.Event()
    async with pulse.Pulse(fake.address, concurrency=4) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            blocked.set()
            wait_for(go)  # blocks the loop, on purpose

        def look() -> None:
            wait_for(blocked)
            fake.until(lambda: len(fake.released) == 2)
            assert fake.capacities[-1] == 1
            go.set()

        async with running(p):
            looking = asyncio.create_task(asyncio.to_thread(look))
            fake.deliver("j1", "j2", "j3")
            await fake.until_async(lambda: "j1" in fake.results)
            await looking
            await fake.until_async(lambda: fake.capacities[-1] == 4)
    assert sorted(fake.released) == ["j2", "j3"]


async def test_worker_with_a_blocked_event_loop_names_what_it_holds_beyond_what_it_releases(
    fake: FakePulsed, running: Running
) -> None:
    """The server learns from this what the worker was sent and has not read."""
    blocked, go = threading.Event(), threading.Event()
    async with pulse.Pulse(fake.address, concurrency=4) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            blocked.set()
            wait_for(go)  # blocks the loop, on purpose

        def look() -> None:
            wait_for(blocked)
            fake.deliver("unread")
            fake.until(lambda: fake.released == ["j2"] and fake.held_while_blocked == ["j1"])
            go.set()

        async with running(p):
            looking = asyncio.create_task(asyncio.to_thread(look))
            fake.deliver("j1", "j2")
            await looking


async def test_server_that_did_not_answer_a_release_learns_of_the_blocked_event_loop_from_the_next(
    fake: FakePulsed, running: Running
) -> None:
    """Else it would go on sending jobs to a worker that cannot read them."""
    blocked, go = threading.Event(), threading.Event()
    async with pulse.Pulse(fake.address, concurrency=4) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            blocked.set()
            wait_for(go)  # blocks the loop, on purpose

        def look() -> None:
            wait_for(blocked)
            fake.says_its_database_is_away = True
            fake.until(lambda: fake.releases_refused > 1)
            fake.says_its_database_is_away = False
            fake.until(lambda: fake.released == ["j2"] and fake.capacities[-1:] == [1])
            go.set()

        async with running(p):
            looking = asyncio.create_task(asyncio.to_thread(look))
            fake.deliver("j1", "j2")
            await looking


async def test_recall_releases_what_has_not_started_of_its_topics(fake: FakePulsed, running: Running) -> None:
    begun: list[str] = []
    go = asyncio.Event()
    async with pulse.Pulse(fake.address, concurrency=1) as p:

        async def handle(ctx: pulse.Context) -> None:
            begun.append(ctx.job_id)
            await go.wait()

        p.job("paused")(handle)
        p.job("work")(handle)
        async with running(p):
            fake.deliver("begun", "waits", topic="paused")
            fake.deliver("other", topic="work")
            await eventually(lambda: begun == ["begun"])
            fake.send(pb.StreamJobsResponse(recall=pb.Recall(topics=["paused"])))
            await fake.until_async(lambda: fake.released)
            assert fake.released == ["waits"]
            go.set()
            await fake.until_async(lambda: len(fake.results) == 2)
    assert begun == ["begun", "other"]


async def test_recall_of_everything_releases_all_that_has_not_started(
    fake: FakePulsed, running: Running
) -> None:
    started, go = asyncio.Event(), asyncio.Event()
    async with pulse.Pulse(fake.address, concurrency=1) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            started.set()
            await go.wait()

        async with running(p):
            fake.deliver("j1", "j2", "j3")
            await started.wait()
            fake.send(pb.StreamJobsResponse(recall=pb.Recall()))
            await fake.until_async(lambda: len(fake.released) == 2)
            go.set()


async def test_no_more_jobs_are_confirmed_than_can_start_at_once(fake: FakePulsed, running: Running) -> None:
    """From its confirmation on an attempt counts, whatever becomes of the worker."""
    begun: list[str] = []
    go = asyncio.Event()
    async with pulse.Pulse(fake.address, concurrency=2) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            begun.append(ctx.job_id)
            await go.wait()

        async with running(p):
            fake.deliver("j1", "j2", "j3", "j4", confirm=True)
            await fake.until_async(lambda: len(fake.released) == 2)
            assert sorted(set(fake.beats)) == [("j1", 1), ("j2", 1)]
            go.set()
            await fake.until_async(lambda: len(fake.results) == 2)
    assert begun == ["j1", "j2"]


async def test_many_jobs_to_confirm_all_run(fake: FakePulsed, running: Running) -> None:
    ids = [f"j{number}" for number in range(50)]
    async with pulse.Pulse(fake.address, concurrency=2) as p:

        @p.job("work")
        async def handle() -> None:
            return

        async with running(p):
            fake.deliver(*ids, confirm=True)
            await fake.until_async(lambda: len(fake.results) + len(fake.released) == len(ids))
    assert fake.results
    assert set(fake.results).isdisjoint(fake.released)


async def test_job_of_a_topic_that_is_paused_by_the_time_it_would_start_is_released(
    fake: FakePulsed, running: Running
) -> None:
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        async def handle() -> None:
            raise AssertionError("must not run")

        fake.paused = {"work"}
        async with running(p):
            fake.deliver("j1", confirm=True)
            await fake.until_async(lambda: fake.released == ["j1"])
    assert fake.results == {}


async def test_what_has_not_started_when_a_stream_breaks_is_confirmed_before_it_starts(
    fake: FakePulsed, running: Running
) -> None:
    begun: list[str] = []
    go = asyncio.Event()
    async with pulse.Pulse(fake.address, concurrency=1) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            begun.append(ctx.job_id)
            await go.wait()

        async with running(p):
            fake.deliver("j1", "gone", "ours")
            await eventually(lambda: begun)
            fake.disowned = {"gone"}
            fake.end_streams()
            await fake.until_async(lambda: len(fake.opened) == 2)
            go.set()
            await fake.until_async(lambda: len(fake.results) == 2)
    assert begun == ["j1", "ours"]
    assert {claim.job_id for claim in fake.opened[1].held} == {"j1", "gone", "ours"}


async def test_result_is_kept_past_its_lease_until_the_server_answers(running: Running) -> None:
    """Whether the claim still stands is the server's to say."""
    fake = FakePulsed(lease_seconds=1.0, heartbeat_seconds=0.1).start()
    go, ran = asyncio.Event(), 0
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        async def handle() -> None:
            nonlocal ran
            ran += 1
            await go.wait()

        async with running(p) as task:
            fake.deliver("j1")
            await eventually(lambda: ran == 1)
            fake.stop()
            go.set()
            await asyncio.sleep(5 * fake.lease_seconds)  # the fact under test: that time makes no difference
            assert not task.done()
            fake.start()
            await fake.until_async(lambda: fake.results)
    assert fake.results["j1"].success
    fake.stop()


async def test_claim_that_is_made_again_starts_beside_the_late_result_of_the_first(
    fake: FakePulsed, running: Running
) -> None:
    """An attempt that was not confirmed does not count: after its lease the job is claimed again."""
    ran: list[tuple[str, int, int]] = []
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            ran.append((ctx.job_id, ctx.attempt, ctx.run))

        fake.says_its_database_is_away = True
        async with running(p):
            fake.deliver("late")
            await eventually(lambda: ran)
            fake.deliver("late", run=2)
            await eventually(lambda: len(ran) == 2)
            fake.says_its_database_is_away = False
            await fake.until_async(lambda: fake.results)
    assert ran == [("late", 1, 1), ("late", 1, 2)]


async def test_release_is_repeated_past_the_lease_until_the_server_answers(running: Running) -> None:
    """A confirmation may have been stored, its answer lost: then only the release gives the attempt back."""
    fake = FakePulsed(lease_seconds=1.0, heartbeat_seconds=0.1).start()
    begun: list[str] = []
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            begun.append(ctx.job_id)

        fake.says_its_database_is_away = True
        async with running(p):
            fake.deliver("j1", confirm=True)
            await fake.until_async(lambda: fake.releases_refused >= 12)  # every 250 ms: for several leases
            fake.says_its_database_is_away = False
            await fake.until_async(lambda: fake.released)
    assert (begun, fake.released) == ([], ["j1"])
    fake.stop()
