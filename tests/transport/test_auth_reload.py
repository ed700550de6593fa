"""Users that change while their streams are open."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import PROMPT_SECONDS, eventually
from tests.transport.authorized import PASSWORD, answer, caller
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test
from tests.transport.streaming_worker import StreamingWorker

OK = grpc.StatusCode.OK
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@dataclass(frozen=True)
class Guarded:
    """A server whose users are in a file."""

    server: ServerUnderTest
    file: Path

    def worker(self, user: str, **request: Any) -> StreamingWorker:
        return StreamingWorker(caller(self.server.channel, user), f"{user}-1", topics=[user], **request)

    async def users(self, *entries: str) -> None:
        """Write the file and return once the server uses it."""
        self.write(*entries)
        access = self.server.app.doors.access
        assert access is not None
        assert access.users_file is not None
        access.read_again()
        await access.users_file.loop.wait_for_ticks(1)

    def write(self, *entries: str) -> None:
        self.file.write_text("".join(f"{entry.replace('*', PASSWORD)}\n" for entry in entries))

    async def submit(self, topic: str, count: int = 1, size: int = 0) -> list[str]:
        request = pb.SubmitJobsRequest(jobs=[pb.SubmitJobRequest(topic=topic, payload=bytes(size))] * count)
        answer = await caller(self.server.channel, "admin").SubmitJobs(request)
        return [result.job_id for result in answer.results]


@pytest.fixture
async def guarded(database_dsn: str, tmp_path: Path) -> AsyncIterator[Guarded]:
    file = tmp_path / "users"
    file.write_text(f"admin:{PASSWORD}\nann:{PASSWORD}:worker\nbob:{PASSWORD}:worker\n")
    async with server_under_test(database_dsn, users_file=file) as server:
        yield Guarded(server, file)


async def ended(worker: StreamingWorker) -> tuple[grpc.StatusCode, str]:
    """Read the stream to its end. Returns its status."""
    async with asyncio.timeout(PROMPT_SECONDS):
        try:
            while await worker._call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        return await worker._call.code(), await worker._call.details()


async def test_stream_of_a_removed_user_ends_and_the_others_stay(guarded: Guarded) -> None:
    async with guarded.worker("ann") as ann, guarded.worker("bob") as bob:
        await guarded.users("admin:*", "bob:*:worker")
        assert await ended(ann) == (UNAUTHENTICATED, "The user or the password is wrong.")
        (job_id,) = await guarded.submit("bob")
        assert (await bob.take_one()).job_id == job_id
    assert (await answer(caller(guarded.server.channel, "ann"), "GetJob"))[0] is UNAUTHENTICATED


async def test_undelivered_jobs_of_a_removed_user_go_back_with_their_attempt(guarded: Guarded) -> None:
    """Forty megabytes fit into no buffer: the worker does not read, so its jobs wait in the server."""
    async with guarded.worker("ann", capacity=40) as ann:
        for _ in range(20):
            await guarded.submit("ann", count=2, size=1_000_000)
        table = guarded.server.table
        await eventually(lambda: table.count("status = 'RUNNING'"))
        await guarded.users("admin:*", "bob:*:worker")
        gone_back = "status = 'RETRYING' AND queued AND attempts = 0"
        await eventually(lambda: table.count(gone_back))
        untouched = "status = 'PENDING' AND queued AND attempts = 0"
        delivered = "status = 'RUNNING' AND attempts = 1"
        assert await table.count(f"({gone_back}) OR ({untouched}) OR ({delivered})") == 40
        assert (await ended(ann))[0] is UNAUTHENTICATED


async def test_stream_ends_when_the_password_changes(guarded: Guarded) -> None:
    async with guarded.worker("ann") as ann:
        await guarded.users("admin:*", "ann:another:worker", "bob:*:worker")
        assert (await ended(ann))[0] is UNAUTHENTICATED


async def test_stream_stays_when_the_new_role_may_still_have_it(guarded: Guarded) -> None:
    async with guarded.worker("ann") as ann:
        await guarded.users("admin:*", "ann:*:admin", "bob:*:worker")
        (job_id,) = await guarded.submit("ann")
        assert (await ann.take_one()).job_id == job_id


async def test_stream_ends_with_the_reason_when_the_new_role_may_not_have_it(guarded: Guarded) -> None:
    async with guarded.worker("ann") as ann:
        await guarded.users("admin:*", "ann:*:viewer", "bob:*:worker")
        assert await ended(ann) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "User 'ann' has the role viewer, which may not call StreamJobs. Roles that may: admin, worker.",
        )
    assert (await answer(caller(guarded.server.channel, "ann"), "GetDispatchStatus"))[0] is OK


async def test_broken_file_leaves_everything_as_it_was(guarded: Guarded) -> None:
    async with guarded.worker("ann") as ann:
        await guarded.users("admin:*", "ann")
        (job_id,) = await guarded.submit("ann")
        assert (await ann.take_one()).job_id == job_id


async def test_change_is_noticed_without_a_signal(guarded: Guarded) -> None:
    """The loop checks the file by itself; this test only shortens its sleep."""
    access = guarded.server.app.doors.access
    assert access is not None
    assert access.users_file is not None
    async with guarded.worker("ann") as ann:
        guarded.write("admin:*", "bob:*:worker")
        for _ in range(3):
            access.users_file.loop.nudge()
            await access.users_file.loop.wait_for_ticks(1)
        assert (await ended(ann))[0] is UNAUTHENTICATED


async def test_stream_that_ended_is_forgotten(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def has_left() -> bool:
        return "worker_disconnected" in [record.message for record in caplog.records]

    async with guarded.worker("ann"):
        pass
    await eventually(has_left)
    async with guarded.worker("bob"):
        await guarded.users("admin:*")
    assert [vars(r)["user"] for r in caplog.records if r.message == "stream_revoked"] == ["bob"]


async def test_stream_of_a_user_ends_in_order_when_the_server_drains(guarded: Guarded) -> None:
    async with guarded.worker("ann") as ann:
        draining = asyncio.create_task(guarded.server.app.dispatch.hub.drain(SECOND))
        (goodbye,) = await ann.end()
        assert goodbye.draining
        await draining
