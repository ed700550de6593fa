"""A watcher made of bare calls: it reads when the test says so."""

import asyncio
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest

PATIENCE_SECONDS = 10


class Watching:
    """One WatchJobs, open for the length of a block. Entering the block returns once it was welcomed."""

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
        async with asyncio.timeout(PATIENCE_SECONDS):
            message = await self._call.read()
        assert message is not grpc.aio.EOF, f"the stream ended: {await self._call.code()}"
        read: pb.WatchJobsResponse = message
        return read

    async def see(self, count: int) -> list[pb.Transition]:
        """The next transitions, in the order in which they were told."""
        while len(self._unread) < count:
            message = await self.message()
            self.missed += message.missed
            self._unread.extend(message.transitions)
        seen, self._unread = self._unread[:count], self._unread[count:]
        return seen

    async def statuses(self, count: int) -> list[tuple[str, int]]:
        return [(change.status, change.attempt) for change in await self.see(count)]

    async def end(self) -> grpc.StatusCode:
        """Read to the end of the stream. Returns how it ended."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._call.read() is not grpc.aio.EOF:
                continue
            code: grpc.StatusCode = await self._call.code()
        return code


async def told_of_watchers(server: ServerUnderTest) -> None:
    """Return once the server knows that somebody watches."""
    await eventually(lambda: server.app.watchers.is_watched)
