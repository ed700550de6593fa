"""A gRPC channel without a network: the stubs of the SDK call the server of a kit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import Any

import grpc
import grpc.aio

from pulse.testing.server import KitServer, WouldWait
from pulse.testing.stand_ins import CallContext, not_in_kit, rpc_error
from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain.errors import PulseError
from pulse_server.domain.ids import parse_id
from pulse_server.domain.status import TERMINAL
from pulse_server.transport.grpc import convert_jobs
from pulse_server.transport.grpc.boundary import status_of
from pulse_server.transport.grpc.parsing import Parser, Unparsed

NOTHING_RUNS = (
    "In a test no worker runs beside it, so this wait would not end: call pulse_kit.drain() before it, or "
    "await pulse_kit.adrain()."
)


class KitChannel:
    """The part of a grpc.aio.Channel that the SDK uses."""

    def __init__(self, server: KitServer) -> None:
        self._server = server

    def unary_unary(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
        method = _name(path)

        async def call(request: Any, **_options: Any) -> Any:
            if method == "PreviewSchedule":  # it computes in a thread, and needs no store
                return await _translated(self._server.behavior(method)(request, CallContext()))
            try:
                return self._server.call(method, request)
            except WouldWait:
                raise rpc_error(grpc.StatusCode.FAILED_PRECONDITION, NOTHING_RUNS) from None

        return call

    def stream_unary(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
        method = _name(path)

        async def call(messages: Iterable[Any] | AsyncIterable[Any], **_options: Any) -> Any:
            if isinstance(messages, AsyncIterable):
                messages = [message async for message in messages]
            messages = list(messages)
            for message in messages:
                self._server.note_time(message)
            behavior = self._server.behavior(method)
            try:
                return self._server.run(behavior(None, StreamContext(messages)))
            except PulseError as error:
                raise rpc_error(status_of(error), str(error)) from None

        return call

    def unary_stream(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
        def call(*_requests: Any, **_options: Any) -> Stream:
            if _name(path) == "AwaitJobs":
                return AwaitJobs(self._server)
            return Stream(not_in_kit(_name(path)))

        return call

    stream_stream = unary_stream

    def get_state(self) -> grpc.ChannelConnectivity:
        return grpc.ChannelConnectivity.READY

    async def close(self) -> None: ...


class StreamContext(CallContext):
    """The context of a call with several messages."""

    def __init__(self, messages: Iterable[Any]) -> None:
        self._messages: Iterator[Any] = iter(messages)

    async def read(self) -> Unparsed | Any:
        message = next(self._messages, None)
        if message is None:
            return grpc.aio.EOF
        return Parser(type(message))(message.SerializeToString())


class Stream:
    """A stream that is refused."""

    def __init__(self, refusal: grpc.aio.AioRpcError | None) -> None:
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        if refusal is not None:
            self._answers.put_nowait(refusal)

    async def write(self, request: Any) -> None: ...

    async def done_writing(self) -> None: ...

    async def read(self) -> Any:
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self) -> None: ...

    def add_done_callback(self, _callback: object) -> None: ...


class AwaitJobs(Stream):
    """Waits for jobs. A finished job is the answer; a wait for any other job is refused.

    This is the one RPC that differs from pulsed: there, another process finishes the job.
    """

    def __init__(self, server: KitServer) -> None:
        super().__init__(None)
        self._server = server
        self._answers.put_nowait(pb.AwaitJobsResponse())

    async def write(self, request: pb.AwaitJobsRequest) -> None:
        answer = pb.AwaitJobsResponse()
        with self._server.lock:
            for job_id in request.add:
                job = self._server.repo.jobs.get(parse_id(job_id, "add"))
                if job is None:
                    answer.missing.append(job_id)
                elif job.status in TERMINAL:
                    answer.finished.append(convert_jobs.job_view(job))
                else:
                    sentence = f"Job {job.id} ({job.topic}) is {job.status}. {NOTHING_RUNS}"
                    self._answers.put_nowait(rpc_error(grpc.StatusCode.FAILED_PRECONDITION, sentence))
                    return
        self._answers.put_nowait(answer)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


async def _translated(answer: Any) -> Any:
    try:
        return await answer
    except PulseError as error:
        raise rpc_error(status_of(error), str(error)) from None
