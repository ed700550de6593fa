"""The gRPC server: its options, its table of methods, and the port that it listens on.

Also gRPC's health protocol and reflection, for load balancers and tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import tuning
from pulse_server.base.metrics import Metrics
from pulse_server.dispatch.rpcs import DispatchRpcs
from pulse_server.doors.addresses import PortInUse
from pulse_server.doors.boundary import SERVICE, Parser, freed_if_aborted, handlers, require_readable
from pulse_server.doors.callers import AccessRpcs, ChangeLog
from pulse_server.doors.lines import Lines
from pulse_server.doors.quotas import CostlyCalls, searches, searches_or_skips
from pulse_server.doors.tls import Certificates
from pulse_server.schedules.rpcs import ScheduleRpcs
from pulse_server.steps.rpcs import StepRpcs
from pulse_server.topics.rpcs import TopicRpcs
from pulse_server.views.rpcs import AuditRpcs, ExportRpcs, OverviewRpcs
from pulse_server.work.job_rpcs import AwaitingRpcs, JobRpcs, SelectionRpcs
from pulse_server.work.worker_rpcs import WorkRpcs
from pulse_server.workflows.rpcs import WorkflowRpcs

HEALTH = "grpc.health.v1.Health"

_SERVICES = frozenset({"", SERVICE})  # the server as a whole, and its one service
_Context = grpc.aio.ServicerContext[Any, Any]


class Health:
    """Reports SERVING while the server is ready. Watchers receive each change.

    Unlike the library's implementation it ends the streams of watchers at a shutdown: an open stream would
    delay the shutdown until the drain times out.
    """

    def __init__(self) -> None:
        self._is_serving = False
        self._has_ended = False
        self._changed = asyncio.Event()

    def set(self, is_serving: bool) -> None:
        self._is_serving = is_serving
        self._wake_watchers()

    def end(self) -> None:
        """Send NOT_SERVING to the watchers and end their streams."""
        self._has_ended = True
        self._is_serving = False
        self._wake_watchers()

    def handlers(self) -> grpc.GenericRpcHandler:
        read = Parser(health_pb2.HealthCheckRequest)
        write = health_pb2.HealthCheckResponse.SerializeToString
        return grpc.method_handlers_generic_handler(
            HEALTH,
            {
                "Check": grpc.unary_unary_rpc_method_handler(freed_if_aborted(self._check), read, write),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch, read, write),
            },
        )

    async def _check(
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> health_pb2.HealthCheckResponse:
        await require_readable(request, context)
        if request.service not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service here.")
        return self._status(request.service)

    async def _watch(
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        await require_readable(request, context)
        sent = None
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status != sent:
                yield status
                sent = status
            if self._has_ended:
                return
            await changed.wait()

    def _status(self, service: str) -> health_pb2.HealthCheckResponse:
        status = health_pb2.HealthCheckResponse.NOT_SERVING
        if service not in _SERVICES:
            status = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        elif self._is_serving:
            status = health_pb2.HealthCheckResponse.SERVING
        return health_pb2.HealthCheckResponse(status=status)

    def _wake_watchers(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def add_reflection(server: grpc.aio.Server) -> None:
    """Add reflection, from which tools such as grpcurl read the contract."""
    library = reflection.aio.ReflectionServicer((SERVICE, HEALTH, reflection.SERVICE_NAME))

    async def readable(requests: AsyncIterator[Any], context: _Context) -> AsyncIterator[Any]:
        async for unparsed in requests:
            request = await unparsed.parse()
            await require_readable(request, context)
            yield request

    async def info(requests: AsyncIterator[Any], context: _Context) -> AsyncIterator[Any]:
        async for response in library.ServerReflectionInfo(readable(requests, context), context):
            yield response

    handler = grpc.stream_stream_rpc_method_handler(
        info,
        Parser(reflection_pb2.ServerReflectionRequest),
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(reflection.SERVICE_NAME, {"ServerReflectionInfo": handler}),)
    )


# Calls at a time that search or count jobs, fewer than READ_CONNECTIONS, and that compute in a thread.
COSTLY_SEARCHES = 3
COSTLY_COMPUTATIONS = 3
# Time for a connection to complete the handshake of HTTP/2, with TLS or without.
HANDSHAKE_TIMEOUT = timedelta(seconds=10)
# Time for a client to acknowledge the settings of the connection. A library does so at once. A
# connection that sent only the 33 bytes that begin HTTP/2 never does. gRPC's default is a minute.
SETTINGS_TIMEOUT = timedelta(seconds=10)
# Headers of a call: credentials and a trace's context are a few hundred bytes.
MAX_HEADER_BYTES = 16 * 1024
# The SDK pings half as often, if it has several servers to choose from. More often than this is taken for an
# attack.
PING_INTERVAL = timedelta(milliseconds=500)
# The server pings silent clients: a worker whose host vanished never closes its connection.
KEEPALIVE_INTERVAL = timedelta(seconds=30)
KEEPALIVE_TIMEOUT = timedelta(seconds=10)
# A worker has a stream and is never idle; an idle producer connects again unnoticed. gRPC does not know on
# which connections a user was authenticated: one without a user that answers pings stays this long, too.
CONNECTION_IDLE = timedelta(minutes=2)
# Calls at once on one connection; a client that has more lets them wait, on its own side.
CONNECTION_STREAMS = 1000


def _options(*, shares_port: bool) -> tuple[tuple[str, int], ...]:
    return (
        # Servers that share a port split its callers. Only processes of one supervisor may do so; any other
        # server has to fail.
        ("grpc.so_reuseport", int(shares_port)),
        ("grpc.max_receive_message_length", tuning.MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", tuning.MAX_MESSAGE_BYTES),
        # Equal, because between the two gRPC refuses at random.
        ("grpc.max_metadata_size", MAX_HEADER_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_HEADER_BYTES),
        # Buffer 64 KiB of an unread request, not as much as the network could carry.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_concurrent_streams", CONNECTION_STREAMS),
        # A silent connection must not keep a file descriptor.
        ("grpc.server_handshake_timeout_ms", _milliseconds(HANDSHAKE_TIMEOUT)),
        ("grpc.http2.settings_timeout", _milliseconds(SETTINGS_TIMEOUT)),
        ("grpc.max_connection_idle_ms", _milliseconds(CONNECTION_IDLE)),
        # A worker with long jobs receives nothing for minutes, and pings to detect a dead server. By default
        # gRPC takes these pings for an attack and closes the connection.
        ("grpc.http2.min_ping_interval_without_data_ms", _milliseconds(PING_INTERVAL)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", _milliseconds(KEEPALIVE_INTERVAL)),
        ("grpc.keepalive_timeout_ms", _milliseconds(KEEPALIVE_TIMEOUT)),
        # Without it an unanswered ping ends the connection after a minute, whatever the keepalive timeout is.
        ("grpc.http2.ping_timeout_ms", _milliseconds(KEEPALIVE_TIMEOUT)),
    )


def _milliseconds(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)


def grpc_server(
    make_server: Callable[..., grpc.aio.Server],
    jobs: JobRpcs,
    selections: SelectionRpcs,
    exports: ExportRpcs,
    awaiting: AwaitingRpcs,
    work: WorkRpcs,
    schedules: ScheduleRpcs,
    dispatch: DispatchRpcs,
    topics: TopicRpcs,
    steps: StepRpcs,
    workflows: WorkflowRpcs,
    overview: OverviewRpcs,
    audit: AuditRpcs,
    access: AccessRpcs,
    lines: Lines,
    *,
    change_log: ChangeLog,
    metrics: Metrics,
    clock: Callable[[], datetime],
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    shares_port: bool,
    health: Health,
    reflection: bool,
) -> grpc.aio.Server:
    server = make_server(options=_options(shares_port=shares_port), interceptors=interceptors)
    searching = CostlyCalls(COSTLY_SEARCHES)
    computing = CostlyCalls(COSTLY_COMPUTATIONS)
    server.add_generic_rpc_handlers(
        (
            handlers(
                {
                    "SubmitJob": jobs.submit_job,
                    "SubmitJobs": jobs.submit_jobs,
                    "StreamSubmits": lines.carrying("SubmitJobs", jobs.submit_jobs, pb.StreamSubmitsResponse),
                    "GetJob": jobs.get_job,
                    "AwaitJobs": awaiting.await_jobs,
                    "ListJobs": searching.limited(jobs.list_jobs, searches_or_skips),
                    "FindJobs": jobs.find_jobs,
                    "CancelJob": jobs.cancel_job,
                    "RetryJob": jobs.retry_job,
                    "PrioritizeJob": jobs.prioritize_job,
                    "DeleteJob": jobs.delete_job,
                    "CountJobs": searching.limited(selections.count_jobs),
                    "SearchJobs": searching.limited(exports.search_jobs),
                    "CancelJobs": searching.limited(selections.cancel_jobs, searches),
                    "RetryJobs": searching.limited(selections.retry_jobs, searches),
                    "PrioritizeJobs": searching.limited(selections.prioritize_jobs, searches),
                    "DeleteJobs": searching.limited(selections.delete_jobs, searches),
                    "UndoAction": selections.undo_action,
                    "ExportJobs": exports.export_jobs,
                    "StreamJobs": work.stream_jobs,
                    "ReportResult": work.report_result,
                    "ReportResults": work.report_results,
                    "StreamReports": lines.carrying(
                        "ReportResults", work.report_results, pb.StreamReportsResponse
                    ),
                    "Heartbeat": work.heartbeat,
                    "Heartbeats": work.heartbeats,
                    "Release": work.release,
                    "CreateSchedule": schedules.create_schedule,
                    "DeclareSchedules": schedules.declare_schedules,
                    "GetSchedule": schedules.get_schedule,
                    "ListSchedules": schedules.list_schedules,
                    "ListScheduleJobs": schedules.list_schedule_jobs,
                    "ListScheduleFires": schedules.list_schedule_fires,
                    "UpdateSchedule": schedules.update_schedule,
                    "PauseSchedule": schedules.pause_schedule,
                    "ResumeSchedule": schedules.resume_schedule,
                    "FireSchedule": schedules.fire_schedule,
                    "DeleteSchedule": schedules.delete_schedule,
                    "PreviewSchedule": computing.limited(schedules.preview_schedule),
                    "GetSchedulerStatus": schedules.get_scheduler_status,
                    "PauseDispatch": dispatch.pause_dispatch,
                    "ResumeDispatch": dispatch.resume_dispatch,
                    "GetDispatchStatus": dispatch.get_dispatch_status,
                    "SetWorkerState": dispatch.set_worker_state,
                    "SetTopic": topics.set_topic,
                    "DeclareTopics": topics.declare_topics,
                    "ListTopicSettings": topics.list_topic_settings,
                    "ListLimits": topics.list_limits,
                    "ListLanes": searching.limited(topics.list_lanes),
                    "HoldTopic": topics.hold_topic,
                    "SetLane": topics.set_lane,
                    "StoreSteps": steps.store_steps,
                    "TakeSignal": steps.take_signal,
                    "ListSteps": steps.list_steps,
                    "SignalJob": steps.signal_job,
                    "SubmitWorkflow": workflows.submit_workflow,
                    "AddToWorkflow": workflows.add_to_workflow,
                    "GetWorkflow": workflows.get_workflow,
                    "ListWorkflows": searching.limited(workflows.list_workflows),
                    "ListWorkflowJobs": workflows.list_workflow_jobs,
                    "CancelWorkflow": workflows.cancel_workflow,
                    "RetryWorkflow": workflows.retry_workflow,
                    "ListTopics": overview.list_topics,
                    "ListWorkers": overview.list_workers,
                    "ListServers": overview.list_servers,
                    "GetStatistics": computing.limited(overview.get_statistics),
                    "ListFindings": overview.list_findings,
                    "ListDeadLetterGroups": searching.limited(overview.list_dead_letter_groups),
                    "WatchJobs": overview.watch_jobs,
                    "ListAudit": searching.limited(audit.list_audit),
                    "Explain": overview.explain,
                    "WhoAmI": access.who_am_i,
                },
                metrics,
                change_log.recorded,
                clock,
            ),
        )
    )
    server.add_generic_rpc_handlers((health.handlers(),))
    if reflection:
        add_reflection(server)
    return server


def listen(server: grpc.aio.Server, address: str, certificates: Certificates | None = None) -> int:
    """Bind the address. Returns the port, which the system chooses if the address has port 0.

    With certificates the port accepts TLS only.
    """
    try:
        if certificates is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, certificates.server_credentials())
    except RuntimeError:
        port = 0
    if port == 0:
        raise PortInUse(address)
    return port
