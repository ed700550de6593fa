"""Progress over real gRPC: with heartbeats, reports and releases, and to watchers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import PROMPT_SECONDS, eventually
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker, claim_of
from tests.transport.test_two_replicas import both_listen
from tests.transport.watching import Watching


async def report(server: ServerUnderTest, job: pb.JobAssignment, **progress: Any) -> list[pb.Claim]:
    """Send a heartbeat with progress. Returns the claims that are lost."""
    request = pb.HeartbeatsRequest(worker_id="w1", claims=[claim_of(job)])
    request.progress.add(**progress)
    return list((await server.stub.Heartbeats(request)).stop)


async def start(server: ServerUnderTest, worker: StreamingWorker) -> pb.JobAssignment:
    await server.submit()
    return await worker.take_one()


async def test_job_shows_what_its_heartbeat_reported(server: ServerUnderTest) -> None:
    async with server.worker("w1") as worker:
        job = await start(server, worker)
        assert await report(server, job, fraction=0.25, text="10 of 40", cursor=b"[10]", number=1) == []
        progress = (await server.get(job.job_id)).progress

    assert (progress.fraction, progress.text, progress.cursor) == (0.25, "10 of 40", b"[10]")
    assert (progress.attempt, progress.since_fraction) == (1, 0.0)
    assert progress.HasField("reported_at")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"fraction": 7.0}, (1.0, "")),
        ({"fraction": -1.0}, (0.0, "")),
        ({"fraction": float("nan")}, (0.0, "")),
        ({"fraction": 0.5, "text": "x" * 1000}, (0.5, "x" * 200)),
        ({"fraction": 0.5, "text": "a\x00b\nc"}, (0.5, "a b c")),
        ({"fraction": 0.5, "cursor": b"[1"}, (0.5, "")),
        ({"fraction": 0.5, "cursor": b"[" * 4000}, (0.5, "")),
        ({"fraction": 0.5, "cursor": b'"\xff"'}, (0.5, "")),
        ({"fraction": 0.5, "cursor": b'"' + b"x" * 5000 + b'"'}, (0.5, "")),
        ({"fraction": 0.5, "number": -(2**63)}, (0.5, "")),
    ],
)
async def test_absurd_progress_is_cut_and_the_heartbeat_counts(
    server: ServerUnderTest, sent: dict[str, Any], kept: tuple[float, str]
) -> None:
    async with server.worker("w1") as worker:
        job = await start(server, worker)
        assert await report(server, job, **sent) == []
        progress = (await server.get(job.job_id)).progress

    assert (progress.fraction, progress.text, progress.cursor) == (*kept, b"")


async def test_progress_of_no_claim_is_left_out(server: ServerUnderTest) -> None:
    async with server.worker("w1") as worker:
        job = await start(server, worker)
        for index in (-1, 1, 2**31 - 1):
            assert await report(server, job, index=index, fraction=0.5) == []
        assert not (await server.get(job.job_id)).HasField("progress")


async def test_lost_claim_stores_no_progress(server: ServerUnderTest) -> None:
    async with server.worker("w1") as worker:
        job = await start(server, worker)
        await worker.release(job)
        again = await worker.take_one()
        job.attempt = 7
        assert await report(server, job, fraction=0.5) == [claim_of(job)]
        assert not (await server.get(again.job_id)).HasField("progress")


async def test_failure_and_release_carry_the_last_progress(server: ServerUnderTest) -> None:
    async with server.worker("w1") as worker:
        job = await start(server, worker)
        request = pb.ReleaseRequest(worker_id="w1", claims=[claim_of(job)])
        request.progress.add(fraction=0.25, cursor=b"10")
        await server.stub.Release(request)
        again = await worker.take_one()
        assert (again.attempt, again.progress.fraction, again.progress.cursor) == (1, 0.25, b"10")
        result = pb.Result(job_id=job.job_id, attempt=1, error="boom")
        result.progress.fraction, result.progress.cursor = 0.5, b"20"
        result.retry_after.FromMilliseconds(1)
        await server.stub.ReportResults(pb.ReportResultsRequest(worker_id="w1", results=[result]))
        third = await worker.take_one()

    assert (third.attempt, third.progress.attempt, third.progress.cursor) == (2, 1, b"20")


async def test_watcher_sees_progress_only_if_it_asks_for_it(server: ServerUnderTest) -> None:
    async with (
        server.worker("w1") as worker,
        Watching(server.stub, progress=True) as watching,
        Watching(server.stub) as plain,
    ):
        job = await start(server, worker)
        await report(server, job, fraction=0.5, text="half", cursor=b"20", number=1)
        await worker.complete(job)
        *_, progressed, completed = await watching.see(4)
        seen = await plain.see(3)

    assert (progressed.status, progressed.attempt, progressed.worker_id) == ("RUNNING", 1, "w1")
    assert (progressed.progress.fraction, progressed.progress.text) == (0.5, "half")
    assert progressed.progress.cursor == b""
    assert completed.status == "COMPLETED"
    assert [change.status for change in seen] == ["PENDING", "RUNNING", "COMPLETED"]
    assert not any(change.HasField("progress") for change in (*seen, completed))


async def test_progress_at_another_server_is_seen(database_dsn: str) -> None:
    async with server_under_test(database_dsn) as here, server_under_test(database_dsn) as there:
        await both_listen(here)
        async with Watching(here.stub, progress=True) as watching, there.worker("w1") as worker:
            await eventually(lambda: there.app.watchers._others_watch_progress_until > 0)
            job = await start(there, worker)
            await report(there, job, fraction=0.5, text="hälfte", number=1)
            while True:
                async with asyncio.timeout(PROMPT_SECONDS):
                    (change,) = await watching.see(1)
                if change.HasField("progress"):
                    break

    assert (change.job_id, change.status, change.topic) == (job.job_id, "RUNNING", "mail")
    assert (change.progress.fraction, change.progress.text, change.progress.attempt) == (0.5, "hälfte", 1)
    assert change.progress.HasField("since")
