"""The server of a kit: calls of clients, claims of its jobs, and the loops of pulsed when they are to run.

Clients connect to it while a kit is open: a gRPC channel without a network. No RPC, no check and no rule of
the queue is written anew here.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakSet

import grpc
import grpc.aio

from pulse.errors import ClientClosed, error_for_code
from pulse.jobs.models import JobInfo, job_info
from pulse.testing.store import LEASE, WORKER, give_back, lend
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.servers import FROM_PULSED
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import parse_id
from pulse_server.base.sharing import unsampled
from pulse_server.database.statements import with_fragments
from pulse_server.dispatch.workers import Session
from pulse_server.doors.boundary import SERVICE, wire_duration
from pulse_server.jobs import messages as jobs_messages
from pulse_server.jobs.leases import claimed_jobs, with_steps
from pulse_server.jobs.reads import job_from_row
from pulse_server.jobs.reports import Slots
from pulse_server.jobs.rules import TERMINAL, Claim, ClaimedJob, Job
from pulse_server.work.worker_rpcs import DeliveryEncoder

if TYPE_CHECKING:
    from pulse.wire.endpoint import Endpoint
    from pulse_server.app import App

_SLOT = Slots([WORKER], [False], [0])
# Claims of a limited topic without a job, while jobs still enter its lanes: a thousand at each.
_MOST_CLAIMS = 100
_ENTERING = timedelta(milliseconds=20)
# Rounds of the loops before the next job. More: a loop does not do what the look asks it to do.
_MOST_ROUNDS = 1000

# What the loops of a server have to do now, when the next job is due, and the topics with ready jobs, in the
# order of their first ones. The walks take a probe for each topic with jobs, however many have handlers.
_LOOK = with_fragments("""
    WITH RECURSIVE plain (topic) AS (
        (SELECT job.topic FROM pulse.jobs AS job WHERE {is_claimable} ORDER BY job.topic LIMIT 1)
        UNION ALL
        SELECT (
            SELECT job.topic FROM pulse.jobs AS job
            WHERE job.topic > plain.topic AND {is_claimable} ORDER BY job.topic LIMIT 1)
        FROM plain WHERE plain.topic IS NOT NULL
    ),
    laned (topic) AS (
        (SELECT job.topic FROM pulse.jobs AS job
            WHERE {stands_in_lane} AND {may_start} ORDER BY job.topic LIMIT 1)
        UNION ALL
        SELECT (
            SELECT job.topic FROM pulse.jobs AS job
            WHERE job.topic > laned.topic AND {stands_in_lane} AND {may_start} ORDER BY job.topic LIMIT 1)
        FROM laned WHERE laned.topic IS NOT NULL
    ),
    job AS (
        SELECT plain.topic, best.* FROM plain CROSS JOIN LATERAL (
            SELECT job.priority, job.submitted_at, job.id FROM pulse.jobs AS job
            WHERE job.topic = plain.topic AND {is_claimable} ORDER BY {claim_order} LIMIT 1) AS best
        UNION ALL
        SELECT laned.topic, best.* FROM laned CROSS JOIN LATERAL (
            SELECT job.priority, job.submitted_at, job.id FROM pulse.jobs AS job
            WHERE job.topic = laned.topic AND {stands_in_lane} AND {may_start}
            ORDER BY job.lane, {lane_order} LIMIT 1) AS best
    )
    SELECT EXISTS (SELECT FROM pulse.workflow_notices),
        EXISTS (
            SELECT FROM pulse.jobs AS job
            WHERE job.start_by <= now() AND job.attempts = 0
              AND COALESCE(job.finished_at, 'infinity') = 'infinity'),
        next.run_at <= now(), next.run_at,
        ARRAY(SELECT job.topic FROM job ORDER BY {claim_order})
    FROM (
        SELECT min(job.next_run_at) AS run_at FROM pulse.jobs AS job
        WHERE NOT job.queued AND job.finished_at IS NULL AND job.held IS NULL
    ) AS next
""")
_ROWS = with_fragments(
    "SELECT {job}, job.payload, job.history, job.result, job.progress ->> 'cursor' AS cursor "
    "FROM pulse.all_jobs AS job WHERE $1::uuid IS NULL OR job.id = $1 ORDER BY job.submitted_at, job.id"
)
_ROW = _ROWS.replace("$1::uuid IS NULL OR ", "").partition("ORDER BY")[0]
# One job, due or not, and whatever its limits are, with the columns of claim_limited.
_CLAIM_ONE = with_fragments("""
    UPDATE pulse.jobs AS job
    SET status = 'RUNNING', queued = true, tier = NULL, rank_at = NULL, pool = NULL, lane_held = NULL,
        attempts = COALESCE($2::int - 1, job.attempts) + 1, run = job.run + 1, delivered = true,
        locked_by = $3, lease_until = clock_timestamp() + $4::interval, started_at = clock_timestamp()
    WHERE job.id = $1
    RETURNING 1 AS slot, 1 AS worker, {claimed_job}, false AS confirm, 0::float8 AS waited_seconds,
        NULL::float8 AS age_seconds, job.steps IS NOT NULL AS has_steps, job.progress, job.lane
""")
_NEXT_FIRE = "SELECT min(next_run_at) FROM pulse.schedules WHERE NOT paused"


class Look(NamedTuple):
    """What there is to do now."""

    has_notices: bool
    has_unstarted: bool
    has_due: bool | None
    next_due: datetime | None
    topics: list[str]


class Next(NamedTuple):
    """What a kit does next."""

    topics: list[str]
    """Topics to make ready first."""
    running: Running | None


class Running(Session):
    """The session of one attempt, as pulsed has one for each worker. It learns that the claim has ended."""

    def __init__(self, job: ClaimedJob, assignment: pb.JobAssignment, app: App) -> None:
        super().__init__(
            WORKER, frozenset(), 0, speaks_batches=False, run_id="", backlog=app.dispatch.roster.backlog
        )
        self.assignment = assignment
        self.claim = job.claim
        self._is_stopped = False
        self._stop: Callable[[], None] | None = None

    def stop_claim(self, claim: Claim) -> None:
        self.settle(claim.job_id)
        self._is_stopped = True
        if self._stop is not None:
            self._stop()

    @contextlib.contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` if the claim ends while the block runs, or has ended already."""
        self._stop = stop
        if self._is_stopped:
            stop()
        try:
            yield
        finally:
            self._stop = None


class KitServer:
    """pulsed, as the kit calls it. It runs in the event loop of the store: these methods block meanwhile."""

    def __init__(self) -> None:
        self.store = store = lend(datetime.now(UTC))
        self.app = store.app
        self._encoder = DeliveryEncoder(self.app.topics.settings.rules)
        self._streams: WeakSet[Future[None]] = WeakSet()
        self._is_apart = False
        self.next_start: datetime | None = None
        """When the limits of a topic let its next job start, as of the last look."""

    def close(self) -> None:
        """End the streams, and let another kit have the store."""
        for stream in self._streams:
            stream.cancel()
        give_back()

    def start(self, stream: Coroutine[Any, Any, None]) -> Future[None]:
        """Serve a stream until it ends, is canceled, or the kit is closed."""
        future = self.store.start(stream)
        self._streams.add(future)
        return future

    # ------------------------------------------------------------ time

    def now(self) -> datetime:
        """Return the time of the queue: the real one at first, after that only the test moves it."""
        return self.store.run(self.store.now())

    def move_to(self, moment: datetime) -> None:
        """Move the time to this moment, unless it is past."""
        self._is_apart = True
        self.store.run(self.store.move_to(moment))

    def catch_up(self) -> None:
        """Move the time to the real one, unless the test has moved it away.

        An application computes a `run_at` from the real time, which is later than the start of the test.
        """
        if not self._is_apart:
            self.store.run(self.store.move_to(datetime.now(UTC)))

    # ------------------------------------------------------------ calls of clients

    def call(self, path: str, requests: list[Any]) -> Any:
        """Answer a call that has one request, or several. Raises the errors of gRPC."""
        handler: Any = self.store.calls.handler(path)
        # Copies, as over a network: the caller may change its request afterwards.
        copies = [type(request).FromString(request.SerializeToString()) for request in requests]
        return self.store.run(answered(handler, copies))

    def ask(self, method: str, request: Any) -> Any:
        """Answer a call of the kit itself. Raises the errors of the SDK."""
        try:
            return self.call(f"/{SERVICE}/{method}", [request])
        except grpc.aio.AioRpcError as error:
            raise error_for_code(error.code().value[0], error.details() or "") from None

    # ------------------------------------------------------------ the worker's side

    def serve(self, topics: frozenset[str]) -> None:
        """Connect the kit as the worker of these topics."""
        if topics != self.store.topics:
            self.store.run(self.store.serve(topics))

    def look(self) -> Look:
        """Do what is due in the loops of pulsed, except schedules. Returns what is ready then."""
        return self.store.run(self._look())

    async def _look(self) -> Look:
        for _ in range(_MOST_ROUNDS):
            look = Look(*(await self.store.fetch(_LOOK))[0])
            if look.has_notices:
                await self.app.workflows.settler.tick()
            if look.has_unstarted:
                await self.app.work.start_limits.tick()
            if look.has_due:
                await self.app.work.promoter.tick()
            if not any(look[:3]):
                break
        return look

    def next(self, may_start: Callable[[str], bool | None]) -> Next:
        """Lease the job that comes first, of the topics that may start. Limits and pauses may be in the way.

        `may_start` is asked for topics with ready jobs, in order: whether a job may be leased now. False: the
        answer has the topics from this one on. None: the kit does not serve the topic.
        """
        return self.store.run(self._next(may_start))

    async def _next(self, may_start: Callable[[str], bool | None]) -> Next:
        self.next_start = None
        topics = (await self._look()).topics
        for place, topic in enumerate(topics):
            may = may_start(topic)
            if may is False:
                return Next(topics[place:], None)
            if may and (running := await self._claim(topic)) is not None:
                return Next([], running)
        return Next([], None)

    async def _claim(self, topic: str) -> Running | None:
        if topic not in self.app.dispatch.roster.limited.pools:
            jobs = await self.app.dispatch.claims.claim([topic], _SLOT)
            return self._running(jobs[0]) if jobs else None
        for _ in range(_MOST_CLAIMS):
            answer = await self.app.dispatch.claims.claim_limited([topic], _SLOT)
            if answer.jobs:
                return self._running(answer.jobs[0])
            seconds = answer.next_starts.get(topic, float("inf"))
            if seconds > _ENTERING.total_seconds():
                break
        if seconds < LEASE.total_seconds():
            start = await self.store.now() + timedelta(seconds=seconds)
            self.next_start = min(self.next_start or start, start)
        return None

    def claim_job(self, job_id: str, attempt: int | None) -> Running:
        """Lease this job, due or not."""
        return self.store.run(self._claim_job(job_id, attempt))

    async def _claim_job(self, job_id: str, attempt: int | None) -> Running:
        rows = await self.store.fetch(_CLAIM_ONE, job_id, attempt, WORKER, LEASE)
        (job,) = claimed_jobs([row[:-1] for row in rows], _SLOT)
        (job,) = await with_steps(self.store.database.hot, [job])
        return self._running(job._replace(lane=rows[0]["lane"] or None))

    def _running(self, job: ClaimedJob) -> Running:
        data = self._encoder.encode_assignments([job])
        running = Running(job, pb.StreamJobsResponse.FromString(data).assignments[0], self.app)
        self.app.dispatch.roster.add(running, [running.claim])
        return running

    def report(self, running: Running, request: pb.ReportResultsRequest | None) -> bool:
        """End the attempt and store its result. None: there is none, as its job was canceled."""
        return self.store.run(self._report(running, request))

    def report_and_next(
        self, running: Running, request: pb.ReportResultsRequest, may_start: Callable[[str], bool | None]
    ) -> tuple[bool, Next]:
        """Do the work of `report` and of `next`."""

        async def both() -> tuple[bool, Next]:
            return await self._report(running, request), await self._next(may_start)

        return self.store.run(both())

    async def _report(self, running: Running, request: pb.ReportResultsRequest | None) -> bool:
        try:
            if request is None:
                return False
            answer = await answered(self.store.calls.handler(f"/{SERVICE}/ReportResults"), [request])
            return not answer.refused
        finally:
            self.app.dispatch.roster.remove(running)

    def release(self, running: Running) -> None:
        """Give a job back without a result, such as one that was claimed for nothing."""

        async def release() -> None:
            self.app.dispatch.roster.remove(running)
            await self.app.dispatch.claims.release([running.claim])

        self.store.run(release())

    # ------------------------------------------------------------ schedules

    def fire_schedules(self) -> None:
        """Fire the schedules that are due."""
        self.store.run(self.app.schedules.scheduler.tick())

    def next_fire(self) -> datetime | None:
        """Return when the next schedule is due."""
        ((moment,),) = self.store.run(self.store.fetch(_NEXT_FIRE))
        return moment  # type: ignore[no-any-return]

    # ------------------------------------------------------------ rows

    def rows(self) -> list[Job]:
        """Return the jobs as stored, in the order in which they were enqueued."""
        return [job_from_row(row) for row in self.store.run(self.store.fetch(_ROWS, None))]

    def row(self, job_id: str) -> Job | None:
        """Return a job as stored. None: there is none."""
        try:
            rows = self.store.run(self.store.fetch(_ROW, parse_id(job_id)))
        except InvalidArgument:  # nothing that could be an id
            return None
        return job_from_row(rows[0]) if rows else None


class CallContext:
    """The context of a call in the process. The caller is this process, on a server without users."""

    def __init__(self) -> None:
        self.failure: grpc.aio.AioRpcError | None = None

    def peer(self) -> str:
        return "unix:pulse-kit"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def time_remaining(self) -> None:
        return None

    def set_trailing_metadata(self, _metadata: object) -> None: ...

    async def abort(self, code: grpc.StatusCode, sentence: str, trailing_metadata: object = ()) -> None:
        self.failure = rpc_error(code, sentence)
        raise grpc.aio.AbortError


class SeveralRequests(CallContext):
    """The context of a call with several requests."""

    def __init__(self, requests: list[Any], deserialize: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._requests = iter(requests)
        self._deserialize = deserialize

    async def read(self) -> Any:
        request = next(self._requests, None)
        return grpc.aio.EOF if request is None else self._deserialize(request.SerializeToString())


async def answered(handler: Any, requests: list[Any]) -> Any:
    """Return the answer to a call. Raises the errors of gRPC."""
    unsampled.set(True)
    context: CallContext
    if handler.request_streaming:
        context = SeveralRequests(requests, handler.request_deserializer)
    else:
        context = CallContext()
    try:
        if handler.request_streaming:
            return await handler.stream_unary(None, context)
        return await handler.unary_unary(requests[0], context)
    except grpc.aio.AbortError:
        assert context.failure is not None
        raise context.failure from None


def view(row: Job) -> JobInfo:
    """Return a job as a client reads it."""
    return job_info(jobs_messages.job_view(row))


def rpc_error(code: grpc.StatusCode, sentence: str) -> grpc.aio.AioRpcError:
    """Return the error that a stub raises for an answer of pulsed."""
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata((FROM_PULSED, "1")), details=sentence
    )


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
            + (for_django if "pulse.django.clients" in sys.modules else "")
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
