"""A watcher made of plain calls: the test controls when it reads."""

import asyncio
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import PROMPT_SECONDS, eventually
from tests.transport.pulse_server_under_test import ServerUnderTest


class Watching:
    """One WatchJobs, open while the block runs. The block starts with the first message."""

    def __init__(self, stub: Any, **request: Any) -> None:
        self._call = stub.WatchJobs(pb.WatchJobsRequest(**request))
        self.missed = 0
        self._unread: list[pb.Transition] = []

    async def __aenter__(self) -> "Watching":
        welcome = await self.message()
        assert (len(welcome.transitions), welcome.missed) == (0, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()

    async def message(self) -> pb.WatchJobsResponse:
        async with asyncio.timeout(PROMPT_SECONDS):
            message = await self._call.read()
        assert message is not grpc.aio.EOF, f"the stream ended: {await self._call.code()}"
        read: pb.WatchJobsResponse = message
        return read

    async def see(self, count: int) -> list[pb.Transition]:
        """Return the next transitions, in the order in which they arrived."""
        while len(self._unread) < count:
            message = await self.message()
            self.missed += message.missed
            self._unread.extend(message.transitions)
        seen, self._unread = self._unread[:count], self._unread[count:]
        return seen

    async def statuses(self, count: int) -> list[tuple[str, int]]:
        return [(change.status, change.attempt) for change in await self.see(count)]

    async def end(self) -> grpc.StatusCode:
        """Read to the end of the stream. Returns its status."""
        async with asyncio.timeout(PROMPT_SECONDS):
            while await self._call.read() is not grpc.aio.EOF:
                continue
            code: grpc.StatusCode = await self._call.code()
        return code


async def wait_for_watcher(server: ServerUnderTest) -> None:
    """Return once the server knows of a watcher."""
    await eventually(lambda: server.app.watchers.is_watched)
