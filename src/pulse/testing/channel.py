"""Where clients connect while a kit is open: a gRPC channel without a network, to the server of the kit."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterable, Callable, Iterable
from datetime import UTC
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from pulse.errors import ClientClosed
from pulse.testing.server import CallContext, KitServer, rpc_error
from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.ids import parse_id
from pulse_server.base.sharing import unsampled
from pulse_server.doors.boundary import SERVICE, wire_duration
from pulse_server.jobs import messages as jobs_messages
from pulse_server.jobs.rules import TERMINAL

if TYPE_CHECKING:
    from pulse.wire.endpoint import Endpoint

NOTHING_RUNS = (
    "In a test no worker runs beside it, so this wait would not end: call pulse_kit.drain() before it, or "
    "await pulse_kit.adrain()."
)
_METHODS = pb.DESCRIPTOR.services_by_name[SERVICE.rpartition(".")[2]].methods_by_name
# Calls that need no policy but those of the topics in their requests. The others may be about any topic.
_OF_JOBS = frozenset(
    {"AwaitJobs", "GetJob", "FindJobs", "CancelJob", "StoreSteps", "TakeSignal", "ListSteps", "SignalJob"}
)
_SUBMITS = frozenset({"SubmitJob", "SubmitJobs", "SubmitWorkflow", "AddToWorkflow"})


class ToKit:
    """All clients use the server of the kit, whatever their addresses are."""

    runs_workers = False

    def __init__(self, server: KitServer, declare: Callable[[Iterable[str] | None], None]) -> None:
        """`declare` is called before each call, with the topics of its jobs; None: it may be about any."""
        self._channel = KitChannel(server, declare)
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the handlers, while they run."""

    def check(self) -> None: ...

    def check_database(self) -> None:
        for_django = ' Or set "ENQUEUE" to "on_commit" in the settings of the tests.'
        raise ClientClosed(
            "The testing kit has no database for your connection: what pulse.sql, pulse.outbox and "
            "ctx.complete store there, it does not see. Use the fixture pulse_server, and connect the "
            "application to its `database_url`."
            + (for_django if "pulse.django.enqueueing" in sys.modules else "")
        )

    def connect(self, endpoint: Endpoint) -> tuple[Endpoint, Callable[[Endpoint], grpc.aio.Channel]]:
        return endpoint, lambda _endpoint: cast("grpc.aio.Channel", self._channel)


class KitChannel:
    """The part of a grpc.aio.Channel that the SDK uses."""

    def __init__(self, server: KitServer, declare: Callable[[Iterable[str] | None], None]) -> None:
        self._server = server
        self._declare = declare

    def unary_unary(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
        async def call(request: Any, **_options: Any) -> Any:
            method = _name(path)
            self._prepare(method, [request])
            if method == "HoldTopic" and request.HasField("until"):
                request = self._hold_by_the_clock(request)
            if method == "GetWorkflow" and request.HasField("wait"):
                return self._ended_workflow(path, request)
            return self._server.call(path, [request])

        return call

    def stream_unary(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
        async def call(messages: Iterable[Any] | AsyncIterable[Any], **_options: Any) -> Any:
            if isinstance(messages, AsyncIterable):
                messages = [message async for message in messages]
            messages = list(messages)
            self._prepare(_name(path), messages)
            return self._server.call(path, messages)

        return call

    def unary_stream(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
        def call(request: Any = None, **_options: Any) -> Stream | AwaitJobs:
            if _name(path) == "AwaitJobs":
                return AwaitJobs(self._server)
            self._prepare(_name(path), [])
            return Stream(self._server, path, request)

        return call

    stream_stream = unary_stream

    def get_state(self) -> grpc.ChannelConnectivity:
        return grpc.ChannelConnectivity.READY

    async def close(self) -> None: ...

    def _prepare(self, method: str, requests: list[Any]) -> None:
        """Declare the settings that the call needs, and let the clock catch up with a time in it."""
        if method in _SUBMITS:
            self._declare({topic for request in requests for topic in _topics(request)})
        elif method not in _OF_JOBS:
            self._server.store.has_settings = True
            self._declare(None)
        if any(map(_names_a_time, requests)):
            self._server.catch_up()

    def _hold_by_the_clock(self, request: pb.HoldTopicRequest) -> pb.HoldTopicRequest:
        """Return the request with a duration, by the clock of the kit: pulsed would take its machine's."""
        left = request.until.ToDatetime(UTC) - self._server.now()
        return pb.HoldTopicRequest(topic=request.topic, duration=wire_duration(left), reason=request.reason)

    def _ended_workflow(self, path: str, request: pb.GetWorkflowRequest) -> Any:
        at_once = pb.GetWorkflowRequest.FromString(request.SerializeToString())
        at_once.ClearField("wait")
        answer = self._server.call(path, [at_once])
        if not answer.workflow.HasField("finished_at"):
            raise rpc_error(grpc.StatusCode.FAILED_PRECONDITION, NOTHING_RUNS)
        return answer


class Stream(CallContext):
    """A stream of answers: the client reads in its event loop what the server writes in another."""

    def __init__(self, server: KitServer, path: str, request: Any) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._answer_type = getattr(pb, _METHODS[_name(path)].output_type.name)
        self._serving = server.start(self._serve(server.store.calls.handler(path), request))

    # The side of the client.

    async def read(self) -> Any:
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self) -> None:
        self._serving.cancel()

    def add_done_callback(self, _callback: object) -> None: ...

    # The side of the server.

    async def write(self, answer: Any) -> None:
        data = answer if isinstance(answer, bytes) else answer.SerializeToString()
        self._pass_on(self._answer_type.FromString(data))

    async def _serve(self, handler: Any, request: Any) -> None:
        unsampled.set(True)
        end: Any = grpc.aio.EOF
        try:
            await handler.unary_stream(request, self)
        except grpc.aio.AbortError:
            end = self.failure
        finally:
            self._pass_on(end)

    def _pass_on(self, answer: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop of the client is closed
            self._loop.call_soon_threadsafe(self._answers.put_nowait, answer)


class AwaitJobs:
    """Waits for jobs. A finished job is the answer; a wait for any other job is refused.

    This is the one RPC that differs from pulsed: there, another process finishes the job.
    """

    def __init__(self, server: KitServer) -> None:
        self._server = server
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._answers.put_nowait(pb.AwaitJobsResponse())

    async def write(self, request: pb.AwaitJobsRequest) -> None:
        answer = pb.AwaitJobsResponse()
        for job_id in request.add:
            job = self._server.row(parse_id(job_id, "add"))
            if job is None:
                answer.missing.append(job_id)
            elif job.status in TERMINAL:
                answer.finished.append(jobs_messages.job_view(job))
            else:
                sentence = f"Job {job.id} ({job.topic}) is {job.status}. {NOTHING_RUNS}"
                self._answers.put_nowait(rpc_error(grpc.StatusCode.FAILED_PRECONDITION, sentence))
                return
        self._answers.put_nowait(answer)

    async def read(self) -> Any:
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def done_writing(self) -> None: ...

    def cancel(self) -> None: ...

    def add_done_callback(self, _callback: object) -> None: ...


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _topics(request: Any) -> Iterable[str]:
    match request:
        case pb.SubmitJobRequest():
            yield request.topic
        case pb.WorkflowJob():
            yield request.job.topic
        case pb.SubmitJobsRequest():
            for job in (*request.jobs, *request.unique_jobs, request.columns.options):
                yield job.topic
        case _:
            for job in request.jobs:
                yield from _topics(job)


def _names_a_time(request: Any) -> bool:
    match request:
        case pb.SubmitJobRequest():
            return request.HasField("run_at")
        case pb.WorkflowJob():
            return request.job.HasField("run_at")
        case pb.CreateScheduleRequest() | pb.UpdateScheduleRequest():
            return request.HasField("at")
        case pb.SubmitJobsRequest() | pb.SubmitWorkflowRequest():
            return any(map(_names_a_time, request.jobs))
    return False
