"""The server of the testing kit behind the same fixture as a real one: tests of RPCs run over both.

It adds what a kit leaves out on purpose: a stream that delivers, and a clock that runs. A test that reads the
database, or calls an RPC that the kit does not have, fails: it belongs to NEED_A_SERVER of conftest.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import grpc
import grpc.aio
import pytest

from pulse.testing.channel import KitChannel, Stream
from pulse.testing.server import LEASE, SETTINGS, KitServer
from pulse.testing.stand_ins import KitClock
from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse_server.domain.slots import Slots
from tests.eventually import PROMPT_SECONDS
from tests.transport.pulse_server_under_test import ServerUnderTest

_POLL_SECONDS = 0.005


class RunningClock(KitClock):
    """The real time. No two readings are equal."""

    def now(self) -> datetime:
        self._now = max(datetime.now(UTC), self._now + timedelta(microseconds=1))
        return self._now


class WorkStream(Stream):
    """StreamJobs: a welcome, then the jobs that are due."""

    def __init__(self, server: KitServer, request: pb.StreamJobsRequest) -> None:
        super().__init__(None)
        self._server = server
        self._request = request
        limits = pb.StepBounds(steps=SETTINGS.steps.steps, bytes=SETTINGS.steps.bytes)
        welcome = pb.StreamWelcome(max_result_bytes=SETTINGS.max_result_bytes, steps=limits)
        self._answers.put_nowait(pb.StreamJobsResponse(welcome=welcome))

    async def read(self) -> Any:
        while self._answers.empty():
            with self._server.lock:
                self._server.make_ready()
                self._server.fire_schedules()
                slots = Slots([self._request.worker_id], [False], [0])
                claimed = self._server.run(self._server.repo.claim_batch(self._request.topics, slots, LEASE))
            if claimed:
                return pb.StreamJobsResponse(assignments=[self._server._assignment(claimed[0])])
            await asyncio.sleep(_POLL_SECONDS)
        return await super().read()


class Channel(KitChannel):
    def unary_unary(self, path: str, *args: Any, **kwargs: Any) -> Any:
        call = super().unary_unary(path)

        async def known(request: Any, **options: Any) -> Any:
            try:
                return await call(request, **options)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    pytest.fail(f"{error.details()}")
                raise

        return known

    def unary_stream(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if path.endswith("StreamJobs"):
            return lambda request, **_: WorkStream(self._server, request)
        if not path.endswith("AwaitJobs"):
            return lambda *_args, **_kwargs: pytest.fail(f"the kit has no {path}")
        return super().unary_stream(path)

    stream_stream = unary_stream


class KitTable:
    """The rows in memory."""

    def __init__(self, server: KitServer) -> None:
        self._server = server

    @property
    def connection(self) -> NoReturn:
        pytest.fail("the kit has no database")

    async def row(self, job_id: str) -> dict[str, Any]:
        row = dataclasses.asdict(self._server.repo.jobs[job_id])
        return {**row, "queued": row["ready"]}  # as the column of the table is named

    async def count(self, condition: str = "true") -> int:
        if condition != "true":
            pytest.fail("the kit has no SQL")
        return len(self._server.repo.jobs)

    async def everything(self) -> list[str]:
        repo = self._server.repo
        return [repr(row) for row in (*repo.jobs.values(), *repo.schedules.values())]

    async def wait_until(self, job_id: str, **columns: Any) -> dict[str, Any]:
        async with asyncio.timeout(PROMPT_SECONDS):
            while True:
                self._server.make_ready()
                row = await self.row(job_id)
                if all(str(row[name]) == str(value) for name, value in columns.items()):
                    return row
                await asyncio.sleep(_POLL_SECONDS)


class NoApp:
    """Stands for the app of a server, which a kit does not have."""

    def __getattr__(self, name: str) -> NoReturn:
        pytest.fail("the kit has no app")


def kit_under_test() -> ServerUnderTest:
    """Return a server under test that is the server of a kit."""
    server = KitServer(RunningClock())
    channel: Any = Channel(server)
    table: Any = KitTable(server)
    app: Any = NoApp()
    return ServerUnderTest(app, "kit", channel, PulseServiceStub(channel), table)
