"""A pulsed that speaks lines, in the test's event loop and without a database: it answers on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse.v1 import pulse_pb2_grpc
from tests.ports import reserve_port
from tests.sdk.columns import all_jobs
from tests.sdk.fake_pulsed import PATIENCE_SECONDS


class OpenLine:
    """One line of a client. Messages wait in `unanswered` unless the line answers by itself."""

    def __init__(self, server: LineServer, context: Any) -> None:
        self._server = server
        self._context = context
        self.unanswered: list[pb.StreamSubmitsRequest] = []
        self.has_ended = asyncio.Event()
        self.end_now: asyncio.Future[tuple[grpc.StatusCode, str]] = asyncio.get_running_loop().create_future()

    async def serve(self) -> None:
        reading = asyncio.ensure_future(self._read())
        try:
            await asyncio.wait({reading, self.end_now}, return_when=asyncio.FIRST_COMPLETED)
            if self.end_now.done() and self.end_now.result()[0] is not grpc.StatusCode.OK:
                await self._context.abort(*self.end_now.result())
        finally:
            reading.cancel()
            self.has_ended.set()

    async def _read(self) -> None:
        while (message := await self._context.read()) is not grpc.aio.EOF:
            self._server.store(message.request)
            if self._server.answers:
                await self.answer(message)
            else:
                self.unanswered.append(message)
            await self._server.announce()

    async def answer(self, message: pb.StreamSubmitsRequest) -> None:
        response = pb.SubmitJobsResponse(all_inserted=True)
        await self._context.write(pb.StreamSubmitsResponse(number=message.number, response=response))

    async def refuse(self, message: pb.StreamSubmitsRequest, code: grpc.StatusCode, sentence: str) -> None:
        refusal = pb.Refusal(code=code.value[0], message=sentence)
        await self._context.write(pb.StreamSubmitsResponse(number=message.number, refusal=refusal))

    def end(self, code: grpc.StatusCode = grpc.StatusCode.OK, sentence: str = "") -> None:
        self.end_now.set_result((code, sentence))


class LineServer(pulse_pb2_grpc.PulseServiceServicer):
    def __init__(self) -> None:
        self.answers = True
        """Whether lines answer by themselves."""
        self.has_lines = True
        self.refused_lines = 0
        self.lines: list[OpenLine] = []
        self.calls: list[pb.SubmitJobsRequest] = []
        self.call_refusal: tuple[grpc.StatusCode, str] | None = None
        self.stored: dict[str, int] = {}
        """How often the job of each id was sent."""
        self.port = reserve_port(self)
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    @property
    def line(self) -> OpenLine:
        """The line that was opened last."""
        return self.lines[-1]

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        pulse_pb2_grpc.add_PulseServiceServicer_to_server(self, self._server)
        assert self._server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        await self._server.start()

    async def stop(self) -> None:
        """Vanish, as a process that is killed does; `start` comes back at the same address."""
        assert self._server is not None
        await self._server.stop(grace=None)

    async def until(self, fact: Any) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(fact)

    async def announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def store(self, request: pb.SubmitJobsRequest) -> None:
        for job in all_jobs(request):
            self.stored[job.job_id] = self.stored.get(job.job_id, 0) + 1

    # ------------------------------------------------------------ the service

    async def SubmitJobs(self, request: pb.SubmitJobsRequest, context: Any) -> pb.SubmitJobsResponse:  # noqa: N802
        self.calls.append(request)
        if self.call_refusal is not None:
            await context.abort(*self.call_refusal)
        results = [
            pb.SubmitResult(job_id=job.job_id, duplicate=job.job_id in self.stored)
            for job in all_jobs(request)
        ]
        self.store(request)
        return pb.SubmitJobsResponse(results=results)

    async def StreamSubmits(self, _requests: Any, context: Any) -> None:  # noqa: N802
        if not self.has_lines:
            self.refused_lines += 1
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        self.lines.append(OpenLine(self, context))
        await self.announce()
        await self.line.serve()


@asynccontextmanager
async def line_server() -> AsyncIterator[LineServer]:
    server = LineServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
